"""`superbpe choose TEXT...`: which tokenizer for this text, before any model is trained.

Trains a grid of tokenizers on most of the text, counts their tokens on documents that none of them was trained on, and
prices a model that is served with each. Names at most four finalists and the command that compares them by language
models on a third part of the text. Writes `choose.html`, a page that opens offline, its numbers as `choose.json` and
`choose.csv`, and the finalists as folders. NAME=PATH names the source of a text. An interrupted command resumes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import (
    OUT,
    STANDARD_INPUT,
    Parser,
    add_deployment,
    add_text,
    add_threads,
    needs_pages,
    number,
    open_any,
    open_sources,
    out_folder,
    tokenizers_of,
    transition,
    whole,
)
from experiments.cli.console import finish
from experiments.fertility.choice import LATEX, NUMBERS, PAGE, PATTERNS, PRESETS_TRIED, TABLE, choose_tokenizers
from experiments.numbers import duration
from experiments.progress import Reporter
from experiments.shell import command_text, operand
from superbpe import PRESETS
from tokenizer.errors import UserError
from tokenizer.formats.readers import summary

if TYPE_CHECKING:
    import argparse


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("choose", __doc__, "trained tokenizers are kept, and the same command resumes after them")
    add = options.add_argument
    add_text(options)
    add("--out", type=Path, default=Path("choose"), metavar="FOLDER", help=OUT)
    add("--against", nargs="+", default=[], metavar="[NAME=]TOKENIZER", help="existing tokenizers to compare")
    add("--reference", metavar="NAME", help="tokenizer to compare with (default: BPE of the same size)")
    add("--sizes", nargs="+", type=whole(257), metavar="N", help="sizes of the vocabulary (default: 8k 16k 32k 64k)")
    add(
        "--patterns",
        nargs="+",
        metavar="PATTERN",
        help=f"patterns (default: {' '.join(PATTERNS)} and the presets' own)",
    )
    add(
        "--presets",
        nargs="*",
        choices=PRESETS,
        metavar="PRESET",
        help=f"superwords (default: {' '.join(PRESETS_TRIED)})",
    )
    add(
        "--transitions", nargs="+", type=transition, metavar="SHARE",
        help="where superwords start: shares of the vocabulary, or numbers of tokens (default: 0.8 0.9)",
    )  # fmt: skip
    add("--quick", action="store_true", help="a small grid: o200k, digits at 0.9, 16k and 32k")
    add(
        "--with",
        dest="run",
        type=Path,
        metavar="RUN",
        help="folder of a run of models, to show their loss beside the cost",
    )
    add(
        "--heldout",
        type=number(0, 0.5),
        help="share of documents to hold out, half for models (default: 0.2, at most 10 MB)",
    )
    add("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    add_deployment(options)
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Train the grid, measure it, write the page, and print the answer."""
    if STANDARD_INPUT in arguments.text:
        raise UserError("the commands that choose prints name the text again, so it cannot be -; save it to a file")
    reporter = Reporter()
    against = {name: open_any(path) for name, path in tokenizers_of(arguments.against).items()}
    text = open_sources(arguments, arguments.text)
    needs_pages()
    with out_folder(arguments.out, texts=text.config.all_paths) as out:
        choice = choose_tokenizers(
            text,
            against=against,
            reference=arguments.reference,
            sizes=arguments.sizes,
            patterns=arguments.patterns,
            presets=arguments.presets,
            transitions=arguments.transitions,
            quick=arguments.quick,
            run=arguments.run,
            heldout=arguments.heldout,
            deployment=arguments.deployment,
            out=out,
            threads=arguments.threads,
            reporter=reporter,
        )
    from experiments.report import choose_page as page  # Altair is slow to import

    report = choice.save()
    reporter.table(page.short_table(report))
    reporter.say(page.headline(report), style="bold")
    for one in choice.finalists[1:]:
        if not one.cheapest:  # which the headline says
            reporter.say(f"{one.name} is {one.why}.")
        if one.command:
            reporter.say(f"to extend your tokenizer to {one.name}: {command_text(['superbpe', *one.command])}")
    for one in choice.finalists:
        if one.opens_in:
            reporter.say(f"{one.name} {summary(one.opens_in)}.")
    for note in page.notes(report):
        reporter.say(note, style="yellow")
    if choice.bakeoff.seconds:
        reporter.say(
            f"comparing their models takes about {duration(choice.bakeoff.seconds)} on two cores, evaluation included"
        )
    then = choice.bakeoff.command or ["inspect", operand(choice.finalists[0].folder)]
    finish(*(arguments.out / name for name in (PAGE, TABLE, LATEX, NUMBERS)), then=then)
