"""`superbpe inspect TOKENIZER [--against OTHER] [--text FILE...]`: a page about a vocabulary.

Writes into the folder `--out`: `vocabulary.html`, a page that opens offline (search over all tokens, merge trees and
contexts, live segmentation of any text); its numbers as `vocabulary.json`; and `tokens-LABEL.parquet`, a table of all
tokens. With `--history` also `merges-LABEL.parquet`, one row per merge with its effect on the text, and bytes per token
at that size of the vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.api import inspect_vocabulary
from experiments.cli.arguments import (
    OUT,
    TOKENIZER,
    Parser,
    add_text_settings,
    named,
    needs_pages,
    number,
    open_all,
    open_exact,
    open_text,
    out_folder,
    pattern_of,
    size,
    tokenizers_of,
)
from experiments.cli.console import finish
from experiments.progress import Table, print_table
from experiments.report import vocabulary
from experiments.shell import operand
from tokenizer import UserError
from tokenizer.files import shown
from tokenizer.formats.readers import READERS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("inspect", __doc__)
    add = options.add_argument
    add("tokenizer", metavar="TOKENIZER", help=f"{TOKENIZER}; NAME=TOKENIZER names it")
    add("--against", nargs="+", default=[], metavar="OTHER", help="tokenizers to compare, as TOKENIZER")
    add("--pattern", nargs="+", default=[], metavar="[NAME=]PATTERN", help="pattern, for formats without one")
    add("--text", nargs="+", default=[], metavar="FILE", help="held-out text")
    add_text_settings(options)
    add("--max-bytes", type=size, default=10_000_000, help="most text, an even share of each file (default: 10MB)")
    add("--out", type=Path, default=Path("vocabulary"), metavar="FOLDER", help=OUT)
    add("--alpha", type=number(0), default=2.5, help="order of the Rényi entropy")
    add("--history", action="store_true", help="log each merge and its effect on --text")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Inspect the vocabularies and write the page."""
    if arguments.history and not arguments.text:
        raise UserError("--history needs a text on which merges are counted; add --text FILE")
    paths = tokenizers_of([arguments.tokenizer, *arguments.against])
    tokenizers = open_all(open_exact, arguments, paths)
    needs_pages()
    with out_folder(arguments.out, texts=arguments.text) as out:
        found = inspect_vocabulary(
            tokenizers,
            open_text(arguments, arguments.text) if arguments.text else [],
            sources=paths,
            text_name=", ".join(map(shown, arguments.text)),
            max_bytes=arguments.max_bytes,
            alpha=arguments.alpha,
            history=arguments.history,
            out=out,
        )
    _print(found.numbers)
    own = pattern_of(arguments, paths, next(iter(paths)))
    pattern = [f"--pattern={own}"] if own else []
    then = ["export", operand(named(arguments.tokenizer)[1]), "exported", *pattern, "--to", "hf"]
    opens = found.numbers["tokenizers"][0]["opens_in"].get(READERS[0]) == "yes"
    finish(*found.written, then=then if opens and not Path("exported").exists() else ())


def _print(report: Mapping[str, Any]) -> None:
    print_table(vocabulary.numbers(report))
    if report["superwords"]["n"]:
        kinds = [
            [
                kind["kind"],
                f"{kind['superwords']:,}",
                "–" if kind["count"] is None else f"{kind['count']:,}",
                "  ".join(repr(text) for text in kind["examples"][:4]),
            ]
            for kind in report["superwords"]["kinds"]
            if kind["superwords"]
        ]
        title = f"Superwords of {report['tokenizers'][0]['label']}"
        print_table(Table(title, ["kind", "superwords", "count", "for example"], kinds, text=(0, 3)))
