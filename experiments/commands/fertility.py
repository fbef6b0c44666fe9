"""`superbpe fertility TOKENIZER... TEXT...`: count and compare the tokens that tokenizers need for a text.

TOKENIZER is a folder, a file in any known format, or a repository of the Hugging Face Hub; TEXT a file that ends in
.txt, .jsonl, .csv or .parquet, also compressed. Both may be named: NAME=PATH. Writes `fertility.html`, a page that
opens offline, its numbers as `fertility.json` and `fertility.csv`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cli.arguments import (
    TOKENIZER,
    TOKENIZER_FILES,
    Parser,
    add_text_settings,
    add_threads,
    named,
    number,
    of_tokenizer,
    open_any,
    open_text,
    out_folder,
    text_options,
    tokenizers_of,
)
from experiments.cli.console import Reporter, finish
from experiments.fertility import measures
from experiments.fertility.tallies import SOURCE, read, recorded_text, tally, text_of
from experiments.report import fertility_page as page
from experiments.report.figures import to_csv
from experiments.report.labels import describe_phase1
from tokenizer import Tokenizer, UserError
from tokenizer.corpus.overlap import find_overlap, measured_text
from tokenizer.corpus.text_files import is_array
from tokenizer.durable import write_json, write_whole
from tokenizer.files import digest
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer import Corpus
    from tokenizer.external.load import Pretrained
    from tokenizer.progress import Progress

PAGE, NUMBERS, TABLE = "fertility.html", "fertility.json", "fertility.csv"
_TEXT = re.compile(r"\.(txt|text|jsonl|ndjson|csv|tsv|parquet)(\.(gz|zst|zstd))?$", re.IGNORECASE)
_LINES, _COLUMNS = 12, 6
"""Most sources or scripts in a table of the terminal, and columns of the comparison; the page has all."""


class Arm(NamedTuple):
    """A tokenizer, its training text as far as it can be read, and the names of that text; None if it is unknown."""

    name: str
    loaded: Pretrained
    training: list[Corpus]
    trained_on: list[str] | None


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("fertility", __doc__)
    add = options.add_argument
    add(
        "given", nargs="+", metavar="TOKENIZER|TEXT",
        help=f"tokenizers ({TOKENIZER}) and texts (.txt, .jsonl, .csv, .parquet, a .json array; "
        "also compressed or as a glob); "
        "NAME=PATH names a tokenizer, or the source of a text",
    )  # fmt: skip
    add("--text", nargs="+", default=[], metavar="[NAME=]PATH", help="more text, such as folders")
    add("--reference", metavar="NAME", help="tokenizer to compare the others with (the first)")
    add("--out", type=Path, default=Path("fertility"), metavar="FOLDER", help="(fertility; replaces earlier results)")
    add(
        "--training", nargs="+", default=[], metavar="[NAME=]PATH",
        help="training text of all tokenizers, or of the one called NAME, to find measured documents in; by itself, "
        "the command finds the text that a tokenizer's own folder recorded",
    )  # fmt: skip
    add("--pattern", nargs="+", default=[], metavar="[NAME=]PATTERN", help="pattern, for formats without one")
    add_text_settings(options)
    add("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    measures.add_deployment(options)
    add("--alpha", type=number(0), default=measures.ALPHA, help="order of the Rényi entropy (%(default)s)")
    add_threads(options)
    return options


def run(arguments: argparse.Namespace) -> None:
    """Count the tokens, write the page, and print the tables."""
    threads, reporter = thread_count(arguments.threads), Reporter()
    deployed = measures.deployment(arguments.deployment)
    entries = [*filter(_is_text, arguments.given), *arguments.text]
    if not entries:
        raise UserError(
            f"no text given, only tokenizers ({', '.join(arguments.given)}); name files that end in "
            ".txt, .jsonl, .csv or .parquet, or give other files and folders with --text"
        )
    text, arms = text_of(arguments, entries), _arms(arguments)
    names = [arm.name for arm in arms]
    reference = arguments.reference or names[0]
    if reference not in names:
        raise UserError(f"--reference {reference!r} is not a tokenizer; the names are {', '.join(names)}")
    with out_folder(arguments.out) as out:
        with reporter.stage("text"):
            documents = read(text, reporter.progress)
            overlaps = _overlaps(arms, text, threads, reporter.progress)
        with reporter.stage("tokens"):
            tokenizers = [arm.loaded.tokenizer for arm in arms]
            tallies = tally(tokenizers, text, documents, threads=threads, progress=reporter.progress)
        report = measures.report(arguments, text, documents, reference, deployed)
        report |= {"phase1": describe_phase1(dict(zip(names, tokenizers, strict=True))), "tokenizers": []}
        for arm, counted, overlap in zip(arms, tallies, overlaps, strict=True):
            if not counted.tokens.any():
                raise UserError(f"{arm.name} gives no token for this text; leave it out")
            rows = measures.rows(
                arm.name, counted, documents, tallies[names.index(reference)],
                alpha=arguments.alpha, deployed=deployed, in_training=overlap,
            )  # fmt: skip
            report["rows"] += rows
            report["tokenizers"].append(_described(arm, rows, overlap))
        write_json(out / NUMBERS, report)
        write_whole(out / TABLE, to_csv(report["rows"]))
        write_whole(out / PAGE, page.render(report))
    for name, table in page.tables(report).items():
        n_columns = _COLUMNS if name == "comparison" else None
        reporter.table(table.title, table.header[:n_columns], [row[:n_columns] for row in table.rows[:_LINES]])
    for note in page.notes(report):
        reporter.say(note, style="yellow")
    fewest_first = sorted(zip(arms, tallies, strict=True), key=lambda one: int(one[1].tokens.sum()))
    own = [arm.loaded.source for arm, _ in fewest_first if isinstance(arm.loaded.tokenizer, Tokenizer)]
    then = ["inspect", own[0], *text_options(arguments, [named(entry)[1] for entry in entries])] if own else []
    finish(*(arguments.out / name for name in (PAGE, TABLE, NUMBERS)), then=then)


def _is_text(entry: str) -> bool:
    path = Path(named(entry)[1])
    if path.name in TOKENIZER_FILES:
        return False
    return _TEXT.search(path.name) is not None or (path.suffix.lower() == ".json" and is_array(path))


def _arms(arguments: argparse.Namespace) -> list[Arm]:
    paths = tokenizers_of([entry for entry in arguments.given if not _is_text(entry)])
    if not paths:
        raise UserError("no tokenizer given; name folders, files or repositories of the Hugging Face Hub")
    patterns = [of_tokenizer("--pattern", entry, paths) for entry in arguments.pattern]
    training = [of_tokenizer("--training", entry, paths) for entry in arguments.training]
    arms = []
    for name, path in paths.items():
        pattern = next((pattern for of, pattern in patterns if of in (None, name)), None)
        loaded = open_any(path, pattern=pattern)
        corpora = [open_text(arguments, [text]) for of, text in training if of in (None, name)]
        trained_on = None
        if not corpora:  # the training text that the tokenizer's own folder names, if it can still be read
            trained_on = recorded_text(loaded.tokenizer) or None
            with suppress(OSError, UserError, TypeError):  # moved, deleted, or written by another version
                share = getattr(loaded.tokenizer, "provenance", {}).get("choose", {}).get("heldout_fraction", 0.0)
                corpora = [open_text(arguments, trained_on, heldout_fraction=share)] if trained_on else []
        files = [corpus.source(file) for corpus in corpora for file, _ in corpus.files]
        arms.append(Arm(name, loaded, corpora, files or trained_on))
    return arms


def _overlaps(
    arms: Sequence[Arm], text: Corpus, threads: int, progress: Progress | None = None
) -> list[NDArray[np.bool_] | None]:
    """Whether each document is in the training text of each tokenizer; None if that text cannot be read."""
    overlaps: dict[str, NDArray[np.bool_] | None] = {digest([]): None}
    keys = [digest([corpus.identity() for corpus in arm.training]) for arm in arms]
    for key, arm in zip(keys, arms, strict=True):
        if key not in overlaps:  # each text is read once
            batches = chain.from_iterable(corpus.batches("train", readers=2, in_order=False) for corpus in arm.training)
            measured = measured_text(text.batches("all"))
            overlaps[key] = find_overlap(measured, batches, threads=threads, progress=progress).whole
    return [overlaps[key] for key in keys]


def _described(arm: Arm, rows: Sequence[dict[str, Any]], overlap: NDArray[np.bool_] | None) -> dict[str, Any]:
    """The entry of a tokenizer in `fertility.json`."""
    in_training = None
    if overlap is not None:
        sources = [row["group"] for row in rows if row["by"] == SOURCE and row["in_training_bytes"]]
        sizes = {"documents": int(overlap.sum()), "bytes": rows[0]["in_training_bytes"]}
        in_training = {**sizes, "sources": sources or [rows[0]["group"]]}
    return {
        "name": arm.name,
        **arm.loaded.about(),
        "superwords": len(arm.loaded.tokenizer.superword_ids()),
        "training_text": arm.trained_on,
        "in_training": in_training,
        "loses_text": bool(rows[0]["changed_documents"] or rows[0]["lost_bytes"]),
    }
