"""The command `superbpe`, which runs every command of `experiments` by name."""

from __future__ import annotations

import runpy
import sys
from typing import NamedTuple

from experiments.cli.console import complain, console
from tokenizer.errors import UserError, did_you_mean
from tokenizer.extras import MissingExtra


class Command(NamedTuple):
    """A command.

    Attributes:
        module: Module in `experiments`.
        purpose: What it does, in a few words.
    """

    module: str
    purpose: str


SETTINGS = "experiments (settings are KEY=VALUE)"
GROUPS: dict[str, dict[str, Command]] = {
    "tokenizers": {
        "train": Command("train_tokenizer", "train BPE or SuperBPE on files"),
        "encode": Command("encode", "encode files into shards"),
        "count-tokens": Command("count_tokens", "count the tokens of files"),
        "fertility": Command("fertility.command", "compare the tokens that tokenizers need for a text"),
        "inspect": Command("inspect_vocab", "a page about a vocabulary, alone or against others"),
        "history": Command("history", "what each merge of a training brought"),
        "export": Command("export", "convert a tokenizer to another format"),
        "extend": Command("extend", "continue training to a larger vocabulary"),
        "push": Command("push", "upload a tokenizer and its card to the Hugging Face Hub"),
    },
    SETTINGS: {
        "pipeline": Command("pipeline", "train tokenizers and models, compare them, write a report"),
        "bakeoff": Command("bakeoff", "compare tokenizers over budgets and seeds"),
        "count": Command("count", "the pipeline up to the counts"),
        "train-bpe": Command("train_bpe", "... up to phase 1"),
        "train-superbpe": Command("train_superbpe", "... up to phase 2"),
        "shard": Command("shard_corpus", "... up to the shards"),
        "train-lm": Command("train_lm", "... up to the language models"),
        "evaluate": Command("evaluate", "... up to the comparison"),
    },
    "results": {
        "compare": Command("compare", "several runs on one page"),
        "reprice": Command("reprice", "a ladder of budgets under other assumptions"),
        "robustness": Command("robustness", "the models of a run on perturbed text"),
        "status": Command("status", "list the artifacts"),
        "clean": Command("clean", "remove artifacts that nothing needs"),
    },
    "models": {
        "generate": Command("generate", "samples of several models side by side"),
        "downstream": Command("downstream", "evaluate models on lm-eval tasks"),
        "lm-eval": Command("eval_harness", "lm-eval's own command line, with --model superbpe"),
        "extend-model": Command("extend_model", "extend a model to a tokenizer with more tokens"),
        "export-model": Command("export_hf", "write a model for transformers, vLLM or llama.cpp"),
    },
    "shell": {
        "completion": Command("completion", "print the completion script of bash, zsh or fish"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main() -> None:
    """Run the command that the first argument names, or list all commands; exit."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run the command that the first argument names with the other arguments; return the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        console.print(listing(), soft_wrap=True, markup=False, highlight=False)
        return 0
    if argv[0] == "--version":
        from importlib.metadata import version

        console.print(f"superbpe {version('superbpe-framework')}")
        return 0
    name = argv[0].replace("_", "-")
    if name not in COMMANDS:
        complain(UserError(f"unknown command {argv[0]!r}{did_you_mean(name, COMMANDS)}; superbpe --help lists them"))
        return 2
    module = f"experiments.{COMMANDS[name].module}"
    before, sys.argv = sys.argv, [module, *argv[1:]]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except MissingExtra as error:
        complain(error)
        return 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return 0


def listing() -> str:
    """All commands by group."""
    width = max(map(len, COMMANDS)) + 2
    lines = ["usage: superbpe COMMAND ...", ""]
    for title, group in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<{width}}{command.purpose}" for name, command in group.items()), ""]
    return "\n".join([*lines, "superbpe COMMAND --help shows its options; superbpe --version shows the version."])
