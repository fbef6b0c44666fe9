"""The command `superbpe`: finds a command's module, parses its arguments, runs it, and turns errors into one line.

A command line passes through `process.py` (signals, closed streams and encodings, before anything slow is imported),
`main.py`, `arguments.py` (the parser, and what several commands share), the command's module in `experiments.commands`,
and `console.exit_code`, where every error becomes a line and an exit code. Only `superbpe pipeline` has a
configuration, whose settings are KEY=VALUE: `experiments.compose` has Hydra compose it and checks it before any text is
read.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

from experiments.cli.console import complain, complain_of_bug, exit_code, spell
from experiments.cli.process import restore
from experiments.progress import console
from tokenizer.errors import UserError, did_you_mean

COMMANDS: dict[str, dict[str, str]] = {
    "tokenizers": {
        "choose": "find the tokenizers that are worth a comparison for a text",
        "train": "train BPE or SuperBPE on files",
        "encode": "encode files into shards",
        "fertility": "count and compare the tokens that tokenizers need for a text",
        "inspect": "a page about a vocabulary, alone or against others",
        "export": "convert a tokenizer or a model to another format",
        "extend": "continue training to a larger vocabulary",
        "trim": "remove the tokens that a text does not need, from a model too",
        "push": "upload a tokenizer and its card to the Hugging Face Hub",
    },
    "experiments": {
        "pipeline": "train tokenizers and models, compare them, write a report",
        "compare": "compare runs on one page, or price them for a deployment",
        "status": "list the artifacts, and remove those that nothing needs",
    },
    "models": {
        "score": "compare language models from anywhere on a text",
        "generate": "samples of several models side by side",
        "downstream": "evaluate models on lm-eval tasks",
        "extend-model": "extend a model to a tokenizer with more tokens",
    },
}
"""Purpose of each command, by group. The module is the name with underscores."""
NAMES = [name for group in COMMANDS.values() for name in group]


def main() -> None:
    """Run the command that the first argument names with the other arguments, and exit.

    Under `torchrun`, rank 0 runs the stages of `pipeline`; the other ranks take part in training and evaluation.
    """
    sys.excepthook = lambda _kind, error, _trace: complain_of_bug(error)
    words = sys.argv[1:]
    if words[:1] != ["pipeline"] or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        _end(run(words))
    from lm.train import distributed  # Torch takes a second to load

    restore()  # rank 0 handles signals while it runs a stage; the other ranks end on them
    try:
        sys.exit(distributed.launch(lambda: run(words)))
    except UserError as error:
        complain(error)
        sys.exit(2)


def _end(code: int) -> NoReturn:
    """Exit. The interpreter would flush output again that could not be written, and fail."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.exit(code)


def run(argv: list[str]) -> int:
    """Run the command that the first argument names with the other arguments; return the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        width = max(map(len, NAMES)) + 2
        lines = ["usage: superbpe COMMAND ...", ""]
        for title, group in COMMANDS.items():
            lines += [f"{title}:", *(f"  {name:<{width}}{purpose}" for name, purpose in group.items()), ""]
        lines.append("superbpe COMMAND --help shows its options; superbpe --version shows the version.")
        return exit_code(lambda: console.print("\n".join(lines), soft_wrap=True))
    if argv[0] == "--version":
        from importlib.metadata import version

        return exit_code(lambda: console.print(f"superbpe {version('superbpe-framework')}"))
    name = argv[0].replace("_", "-")
    if name not in NAMES:
        complain(UserError(f"unknown command {argv[0]!r}{did_you_mean(name, NAMES)}; superbpe --help lists them"))
        return 2
    try:
        command = importlib.import_module(f"experiments.commands.{name.replace('-', '_')}")
        parser = command.parser()
        spell(parser.spelling())
        arguments = parser.parse_args(argv[1:])
    except (UserError, ModuleNotFoundError) as error:
        complain(error)
        return 2
    except SystemExit as end:  # argparse has printed the help or a mistake
        return int(end.code or 0)
    return exit_code(lambda: command.run(arguments), parser.after_stop)
