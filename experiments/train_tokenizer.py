"""Train a tokenizer on files: `python -m experiments.train_tokenizer FILES... --vocab-size N --to FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.cli.console import Reporter, finish, si, training_summary
from experiments.cli.options import Parser, add_text, command, open_text
from experiments.cli.sizes import parse_count, parse_size
from superbpe import PHASE1, PRESETS, train_superbpe
from superbpe.rules import TRANSITION
from tokenizer import UserError, count_pretokens, train_bpe
from tokenizer.train.bpe import merges_that_fit
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS
from tokenizer.urls import shown


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "train",
        "Train a BPE or SuperBPE tokenizer on text files.",
        epilog="Sweeps, mixtures, filters and language models are settings of `superbpe pipeline`.",
    )
    add_text(options)
    options.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="folder to write")
    options.add_argument(
        "--vocab-size", type=parse_count, required=True, metavar="N", help="bytes, merges and special tokens together"
    )
    options.add_argument(
        "--superbpe", choices=PRESETS, metavar="PRESET", help=f"train superwords: {', '.join(PRESETS)}"
    )
    options.add_argument(
        "--transition",
        type=_transition,
        metavar="SHARE",
        help="share of the vocabulary that phase 1 fills (the preset's)",
    )
    options.add_argument("--pattern", help="name or regex (that of the preset, otherwise gpt2)")
    options.add_argument(
        "--special",
        nargs="+",
        default=list(DEFAULT_SPECIAL_TOKENS),
        metavar="STRING",
        help=f"special tokens ({' '.join(DEFAULT_SPECIAL_TOKENS)})",
    )
    options.add_argument("--memory", type=parse_size, metavar="SIZE", help="memory for tables, such as 4GB (no limit)")
    options.add_argument("--threads", type=int, help="threads (all cores)")
    return options


def _transition(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.to.exists() and not (arguments.to.is_dir() and not any(arguments.to.iterdir())):
        raise UserError(f"--to {arguments.to} exists; name another folder, or remove it")
    if arguments.transition is not None and not arguments.superbpe:
        raise UserError(f"--transition {arguments.transition} needs phase 2; add --superbpe PRESET")
    merges_that_fit(arguments.vocab_size, arguments.special)
    reporter = Reporter()
    corpus = open_text(arguments, arguments.text)
    limit = corpus.config.document_limit_bytes
    for (path, form), size in zip(corpus.files, corpus.sizes(), strict=True):
        if arguments.superbpe and form == "txt" and not arguments.separator and size > limit:
            raise UserError(
                f"{path} is one document of more than {si(limit)}B, which phase 2 cannot read; give the string between "
                "its documents, as in --separator '\\n\\n'"
            )
    phase1 = PHASE1[arguments.superbpe] if arguments.superbpe else {"pattern": "gpt2", "unit": "document"}
    common = {"threads": arguments.threads, "memory_bytes": arguments.memory, "progress": reporter.progress}
    with reporter.stage("count"):
        counts = count_pretokens(
            corpus,
            arguments.pattern or phase1["pattern"],
            unit=phase1["unit"],
            special_tokens=arguments.special,
            **common,
        )
    reporter.say(f"{si(counts.n_distinct)} distinct pretokens in {si(counts.n_bytes)}B")
    with reporter.stage("phase 1"):
        tokenizer = train_bpe(
            counts, arguments.vocab_size, special_tokens=arguments.special, progress=reporter.progress
        )
    reporter.detail(training_summary(tokenizer))
    if arguments.superbpe:
        with reporter.stage("phase 2"):
            tokenizer = train_superbpe(
                tokenizer,
                corpus,
                vocab_size=arguments.vocab_size,
                rules=arguments.superbpe,
                transition=TRANSITION[arguments.superbpe] if arguments.transition is None else arguments.transition,
                **common,
            )
        reporter.say(f"{len(tokenizer.superword_ids()):,} superwords")
    for phase in {"phase1", "phase2"} & tokenizer.provenance.keys():
        tokenizer.provenance[phase]["text"] = list(map(shown, arguments.text))
    tokenizer.save(arguments.to)
    reporter.say(repr(tokenizer))
    finish(arguments.to, then=["inspect", arguments.to, "--text", *arguments.text])


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
