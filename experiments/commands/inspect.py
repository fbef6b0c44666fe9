from __future__ import annotations

__doc__ = """`superbpe inspect TOKENIZER [--against OTHER] [--text FILE...]`: a page about a vocabulary.

Writes into the folder `--out`: `vocabulary.html`, a page that opens offline (search over all tokens, merge trees and
contexts, live segmentation of any text); its numbers as `vocabulary.json`; and `tokens-LABEL.parquet`, a table of all
tokens. With `--history` also `merges-LABEL.parquet`, one row per merge with its effect on the text, and bytes per token
at that size of the vocabulary.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cli.arguments import (
    TOKENIZER,
    Parser,
    add_text_settings,
    named,
    number,
    open_exact,
    open_text,
    out_folder,
    pattern_of,
    size,
    tokenizers_of,
)
from experiments.cli.console import finish
from experiments.numbers import si
from experiments.progress import print_table
from experiments.report import vocabulary, vocabulary_page
from experiments.report.vocabulary import Side
from experiments.shell import operand
from superbpe.inspection import history
from tokenizer import UserError
from tokenizer._native import Batch
from tokenizer.corpus import embedded
from tokenizer.corpus.seen import saw
from tokenizer.durable import replacing, write_json, write_whole
from tokenizer.files import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tokenizer import Corpus

EMBEDDED = "embedded"


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("inspect", __doc__)
    add = options.add_argument
    add("tokenizer", metavar="TOKENIZER", help=f"{TOKENIZER}; NAME=TOKENIZER names it")
    add("--against", nargs="+", default=[], metavar="OTHER", help="tokenizers to compare, as TOKENIZER")
    add("--pattern", nargs="+", default=[], metavar="[NAME=]PATTERN", help="pattern, for formats without one")
    add("--text", nargs="+", default=[], metavar="FILE", help="held-out text; embedded: that of the embedded corpus")
    add_text_settings(options)
    add("--max-bytes", type=size, default=10_000_000, help="most text, an even share of each file (10MB)")
    add("--out", type=Path, default=Path("vocabulary"), metavar="FOLDER", help="(%(default)s; results are replaced)")
    add("--alpha", type=number(0), default=2.5, help="order of the Rényi entropy (%(default)s)")
    add("--history", action="store_true", help="log each merge and its effect on --text")
    return options


def run(arguments: argparse.Namespace) -> None:
    """Inspect the vocabularies and write the page."""
    if arguments.history and not arguments.text:
        raise UserError("--history needs a text on which merges are counted; add --text FILE")
    paths = tokenizers_of([arguments.tokenizer, *arguments.against])
    patterns = [pattern_of(arguments, paths, name) for name in paths]
    tokenizers = [open_exact(path, pattern=pattern) for path, pattern in zip(paths.values(), patterns, strict=True)]
    with out_folder(arguments.out):
        corpus = open_text(arguments, arguments.text) if arguments.text and EMBEDDED not in arguments.text else None
        batches = _embedded(arguments) if corpus is None else _shares(corpus, arguments.max_bytes)
        sides = [
            vocabulary.side(label, path, tokenizer, batches, alpha=arguments.alpha)
            for (label, path), tokenizer in zip(paths.items(), tokenizers, strict=True)
        ]
        measured, text = sides[0].measured, ", ".join(map(shown, arguments.text))
        if measured is not None and measured.bytes >= arguments.max_bytes:
            text += f", of which {si(measured.bytes)}B, a share of each file (--max-bytes)"
        if batches:
            hashes = np.concatenate([batch.hashes() for batch in batches])
            answers = {one.label: saw(one.tokenizer, hashes, corpus) for one in sides}
            said = [answer.sentence(label) for label, answer in answers.items() if answer.saw or answer.unknown]
            text += f" ({'; '.join(said)})" if said else ""
        report = vocabulary.gather(sides, text or None)
        written = _write(arguments, report, sides)
        _print(report)
        if arguments.history:
            written += _history(arguments.out, sides, batches)
    pattern = [f"--pattern={patterns[0]}"] if patterns[0] else []
    finish(*written, then=["export", operand(named(arguments.tokenizer)[1]), "exported", *pattern, "--to", "hf"])


def _embedded(arguments: argparse.Namespace) -> list[Batch]:
    """The embedded corpus's held-out text; empty if `--text` was not given."""
    if not arguments.text:
        return []
    if arguments.text != [EMBEDDED]:
        raise UserError(f"--text {EMBEDDED} is the embedded corpus, which cannot be mixed with files; use one of them")
    taken, room = [], arguments.max_bytes
    for document in embedded.split(embedded.documents())[1]:
        if room > 0:
            taken.append(document.text)
            room -= len(document.text.encode())
    return [Batch.from_texts(taken)]


def _shares(corpus: Corpus, max_bytes: int) -> list[Batch]:
    """The beginning of each file, so that every file has the same share of `max_bytes`, or all of its text."""
    batches, parts = list[Batch](), sorted(corpus.parts("all", target_bytes=0), key=lambda part: part.stored_bytes)
    for n, part in enumerate(parts):
        room = (max_bytes - sum(batch.n_bytes for batch in batches)) // (len(parts) - n)
        part.config, part.skipped = replace(part.config, max_bytes=max(room, 1)), corpus.skipped
        batches += part.batches("all")
    corpus.report_skipped()
    return batches or list(corpus.batches("all"))  # an error, with the reason


def _write(arguments: argparse.Namespace, report: dict[str, Any], sides: Sequence[Side]) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    page, numbers = arguments.out / "vocabulary.html", arguments.out / "vocabulary.json"
    write_whole(page, vocabulary_page.render(report, sides))
    write_json(numbers, report)
    written = [page, numbers]
    for one in sides:
        path = _table_of(arguments.out, "tokens", one)
        others = [other for other in sides if other is not one]
        with replacing(path) as file:
            pq.write_table(pa.table(vocabulary.table(one, others)), file, compression="zstd")
        written.append(path)
    return written


def _print(report: dict[str, Any]) -> None:
    rows = report["tokenizers"]
    measured = f", measured on {report['text']}" if report["text"] else ""
    print_table(report["title"] + measured, ["", *(row["label"] for row in rows)], vocabulary.numbers(report))
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
        print_table(
            f"Superwords of {rows[0]['label']}", ["kind", "superwords", "count", "for example"], kinds, text=(0, 3)
        )


def _table_of(folder: Path, what: str, side: Side) -> Path:
    return folder / f"{what}-{re.sub(r'[^A-Za-z0-9._-]+', '-', side.label).strip('-')}.parquet"


def _history(folder: Path, sides: Sequence[Side], batches: Sequence[Batch]) -> list[Path]:
    """Write the effect of each merge on the text."""
    import pyarrow.parquet as pq

    written = []
    for side in sides:
        measured = history.measure(side.tokenizer, batches)
        path = _table_of(folder, "merges", side)
        with replacing(path) as file:
            pq.write_table(history.merge_log(side.tokenizer, history=measured), file, compression="zstd")
        written.append(path)
    return written
