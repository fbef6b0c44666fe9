from __future__ import annotations

__doc__ = """`superbpe fertility TOKENIZER... TEXT...`: count and compare the tokens that tokenizers need for a text.

TOKENIZER is a folder, a file in any known format, or a repository of the Hugging Face Hub; TEXT a file that ends in
.txt, .jsonl, .csv or .parquet, also compressed. Both may be named: NAME=PATH. Writes `fertility.html`, a page that
opens offline, its numbers as `fertility.json` and `fertility.csv`.
"""

import re
from pathlib import Path, PurePath
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
    pattern_of,
    text_options,
    tokenizers_of,
    with_pattern,
)
from experiments.cli.console import finish
from experiments.fertility import measures
from experiments.fertility.tallies import SOURCE, read, tally, text_of
from experiments.progress import Reporter
from experiments.report import fertility_page as page
from experiments.report.figures import to_csv
from experiments.report.labels import describe_phase1
from tokenizer import Tokenizer, UserError
from tokenizer.corpus.seen import KEY, Answer, Read, Recorder, saw
from tokenizer.corpus.text_files import is_array
from tokenizer.durable import write_json, write_whole
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tokenizer.external.load import Pretrained
    from tokenizer.progress import Progress

PAGE, NUMBERS, TABLE = "fertility.html", "fertility.json", "fertility.csv"
_TEXT = re.compile(r"\.(txt|text|jsonl|ndjson|csv|tsv|parquet)(\.(gz|zst|zstd))?$", re.IGNORECASE)
_LINES, _COLUMNS = 12, 6
"""Most sources or scripts in a table of the terminal, and columns of the comparison; the page has all."""


class Arm(NamedTuple):
    """A tokenizer, and the entries of `--training` that name its training text."""

    name: str
    loaded: Pretrained
    training: tuple[str, ...]


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
        help="training text of all tokenizers, or of the one called NAME, to find measured documents in; without "
        "it, they are looked up in what the tokenizer's own folder recorded",
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
            reads = _reads(arguments, arms, reporter.progress)
            answers = [saw(arm.loaded.tokenizer, documents.hashes, text, read=reads[arm.name]) for arm in arms]
        with reporter.stage("tokens"):
            tokenizers = [arm.loaded.tokenizer for arm in arms]
            tallies = tally(tokenizers, text, documents, threads=threads, progress=reporter.progress)
        report = measures.report(arguments, text, documents, reference, deployed)
        report |= {"phase1": describe_phase1(dict(zip(names, tokenizers, strict=True))), "tokenizers": []}
        for arm, counted, answer in zip(arms, tallies, answers, strict=True):
            if not counted.tokens.any():
                raise UserError(f"{arm.name} gives no token for this text; leave it out")
            rows = measures.rows(
                arm.name, counted, documents, tallies[names.index(reference)],
                alpha=arguments.alpha, deployed=deployed,
                in_training=None if answer.unknown and not answer.saw else answer.seen,
            )  # fmt: skip
            report["rows"] += rows
            report["tokenizers"].append(_described(arm, rows, reads[arm.name], answer))
        write_json(out / NUMBERS, report)
        write_whole(out / TABLE, to_csv(report["rows"]))
        write_whole(out / PAGE, page.render(report))
    for name, table in page.tables(report).items():
        n_columns = _COLUMNS if name == "comparison" else None
        reporter.table(table.title, table.header[:n_columns], [row[:n_columns] for row in table.rows[:_LINES]])
    for note in page.notes(report):
        reporter.say(note, style="yellow")
    fewest_first = sorted(zip(arms, tallies, strict=True), key=lambda one: int(one[1].tokens.sum()))
    then: list[str] = []
    if best := next((arm for arm, _ in fewest_first if isinstance(arm.loaded.tokenizer, Tokenizer)), None):
        then = ["inspect", *with_pattern(best.loaded.source, pattern_of(arguments, names, best.name))]
        then += text_options(arguments, [named(entry)[1] for entry in entries])
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
    training = [of_tokenizer("--training", entry, paths) for entry in arguments.training]
    arms = []
    for name, path in paths.items():
        named_text = tuple(text for of, text in training if of in (None, name))
        arms.append(Arm(name, open_any(path, pattern=pattern_of(arguments, paths, name)), named_text))
    return arms


def _reads(arguments: argparse.Namespace, arms: Sequence[Arm], progress: Progress | None) -> dict[str, Read | None]:
    """The record of the training text of each tokenizer, by name: its own, or that of `--training`, read once."""
    texts: dict[tuple[str, ...], Read] = {}
    for training in dict.fromkeys(arm.training for arm in arms if arm.training):
        recorder, n_bytes, tick = Recorder(), 0, Throttle(progress, "bytes of training text")
        for batch in recorder.batches(open_text(arguments, training), readers=2, in_order=False):
            tick(n_bytes := n_bytes + batch.n_bytes)
        texts[training] = recorder.read()
    own = {arm.name: getattr(arm.loaded.tokenizer, "provenance", {}).get(KEY) for arm in arms}
    return {arm.name: texts.get(arm.training, own[arm.name]) for arm in arms}


def _described(arm: Arm, rows: Sequence[dict[str, Any]], read: Read | None, answer: Answer) -> dict[str, Any]:
    """The entry of a tokenizer in `fertility.json`."""
    in_training = None
    if answer.saw or not answer.unknown:
        sources = [row["group"] for row in rows if row["by"] == SOURCE and row["in_training_bytes"]]
        sizes = {"documents": int(answer.seen.sum()), "looked_up": answer.looked_up}
        sizes["bytes"] = rows[0]["in_training_bytes"]
        in_training = {**sizes, "files": answer.files, "sources": sources or [rows[0]["group"]]}
    places = None if read is None else [place for text in read["texts"] for place in text["places"]]
    return {
        "name": arm.name,
        **arm.loaded.about(),
        "superwords": len(arm.loaded.tokenizer.superword_ids()),
        "training_text": None if places is None else [PurePath(place).name or place for place in places],
        "in_training": in_training,
        "unknown_training": answer.unknown,
        "loses_text": bool(rows[0]["changed_documents"] or rows[0]["lost_bytes"]),
    }
