"""The command `python -m experiments.fertility`."""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cli.compose import load
from experiments.cli.console import Reporter, finish, percent, si
from experiments.cli.options import (
    TOKENIZER,
    TOKENIZER_FILES,
    Parser,
    add_text_settings,
    command,
    labels_of,
    open_any,
    open_text,
    report_skipped,
)
from experiments.cluster import machines_of
from experiments.fertility import measures
from experiments.fertility.documents import ALL, SCRIPT, SOURCE, Text
from experiments.fertility.reading import Reading, tally
from experiments.fertility.serving import costs, deployment
from experiments.fertility.training_text import recorded
from experiments.report import fertility as page
from experiments.report.figures import FORMATS, save, to_csv
from experiments.store.manifest import command_line
from lm.data.shards import END_OF_TEXT
from tokenizer import UserError, storage
from tokenizer.checksums import digest
from tokenizer.durable import write_json, write_whole
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from experiments.config import RunnerConfig
    from experiments.fertility.documents import Documents
    from experiments.fertility.reading import Reading, tally
    from lm.evaluate.deployment import Deployment
    from tokenizer import Corpus
    from tokenizer.pretrained import Pretrained

PAGE, NUMBERS, TABLE = "fertility.html", "fertility.json", "fertility.csv"
_TEXT = re.compile(r"\.(txt|text|jsonl|ndjson|parquet)(\.(gz|zst|zstd))?$", re.IGNORECASE)
_COLUMNS = 6
"""Most groups in a table of the terminal."""


@dataclass(frozen=True)
class Arm:
    """A tokenizer of the comparison.

    Attributes:
        name: Its name.
        loaded: The tokenizer and its origin.
        training: Its training text, as far as it is known.
    """

    name: str
    loaded: Pretrained
    training: list[Corpus]


class Overlap(NamedTuple):
    """Measured documents that are in training text.

    Attributes:
        text: Names of the training files.
        documents: bool[n_documents], whether a document has the same text as one of theirs.
    """

    text: list[str]
    documents: NDArray[np.bool_]


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "fertility",
        "Compares tokenizers by the tokens that they need for a text: a page, CSV, JSON, a table.",
    )
    options.add_argument(
        "given", nargs="+", metavar="TOKENIZER|TEXT",
        help=f"tokenizers ({TOKENIZER}) and texts (.txt, .jsonl, .parquet, also compressed or as a glob); "
        "NAME=PATH names a tokenizer, or the source of a text",
    )  # fmt: skip
    options.add_argument("--text", nargs="+", default=[], metavar="[NAME=]PATH", help="more text, such as folders")
    options.add_argument("--reference", metavar="NAME", help="tokenizer to compare the others with (the first)")
    options.add_argument("--out", type=Path, default=Path("fertility"), metavar="FOLDER", help="(%(default)s)")
    options.add_argument("--title", default="Tokens that a text needs", help="heading of the page")
    options.add_argument(
        "--training", nargs="+", default=[], metavar="[NAME=]PATH",
        help="training text of all tokenizers, or of the one called NAME, to find measured documents in; the text of a "
        "tokenizer in a folder of artifacts is found by itself",
    )  # fmt: skip
    options.add_argument(
        "--pattern", nargs="+", default=[], metavar="NAME=PATTERN",
        help="pattern, for formats without one (GPT-2's files, tiktoken's)",
    )  # fmt: skip
    add_text_settings(options)
    options.add_argument("--source-field", metavar="FIELD", help="field that names the source (default: the file)")
    options.add_argument("--max-bytes", type=int, help="use at most this much of each text")
    options.add_argument("--sources", type=int, default=50, help="tell at most this many sources apart (%(default)s)")
    options.add_argument(
        "--deployment", nargs="+", default=["dense-8b"], metavar="PRESET|KEY=VALUE",
        help="model to price serving for: a preset of `deployment` and its other settings (%(default)s)",
    )  # fmt: skip
    options.add_argument("--alpha", type=float, default=2.5, help="order of the Rényi entropy (%(default)s)")
    options.add_argument(
        "--memory-mb", type=int, default=1024,
        help="memory for counts; the text is read again for tokenizers beyond it (%(default)s)",
    )  # fmt: skip
    options.add_argument("--threads", type=int, help="threads (default: SUPERBPE_THREADS, or all cores)")
    options.add_argument(
        "--runner", nargs="+", default=["local"], metavar="NAME|KEY=VALUE",
        help="where the text is read: local or ray, and settings of `runner` (%(default)s)",
    )  # fmt: skip
    options.add_argument(
        "--figures", nargs="*", choices=FORMATS, metavar="FORMAT", help=f"write the charts: {', '.join(FORMATS)} (all)"
    )
    return options


def _run(arguments: argparse.Namespace) -> None:
    for name, least in (("sources", 2), ("memory_mb", 1), ("max_bytes", 1)):
        if (value := getattr(arguments, name)) is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} {value} must be at least {least}")
    if not arguments.alpha > 0:
        raise UserError(f"--alpha {arguments.alpha:g} must be greater than 0, as an order of a Rényi entropy")
    thread_count(arguments.threads)  # fails early
    reporter = Reporter()
    deployed, runner = deployment(arguments.deployment), _runner(arguments)
    texts = _texts(arguments)
    arms = _arms(arguments)
    reference = _reference(arguments.reference, arms)
    with _reading(arguments, runner, texts, arms, reporter) as reading:
        with reporter.stage("text"):
            documents = reading.documents(arguments.sources)
            overlaps = _overlaps(arms, reading)
        ordered = [reference, *(arm for arm in arms if arm is not reference)]
        rows: dict[str, list[measures.Row]] = {}
        with reporter.stage("tokens"):
            tallies = tally(
                reading, [arm.loaded.tokenizer for arm in ordered], documents, alpha=arguments.alpha,
                memory_bytes=arguments.memory_mb * 1_000_000, progress=reporter.progress,
            )  # fmt: skip
            for arm, counted in zip(ordered, tallies, strict=True):
                if arm is reference:
                    reference_tokens = counted.tokens
                if not counted.tokens.any():
                    raise UserError(f"{arm.name} gives no token for this text; leave it out")
                found = overlaps[arm.name]
                in_training = None if found is None else found.documents
                rows[arm.name] = measures.rows(arm.name, counted, reference_tokens, arguments.alpha, in_training)
    report_skipped(reporter, *(text.corpus for text in texts))
    report = _report(arguments, arms, reference, texts, documents, rows, overlaps, deployed)
    storage.disk.make_folder(arguments.out)
    write_json(arguments.out / NUMBERS, report)
    write_whole(arguments.out / TABLE, to_csv(report["rows"]))
    write_whole(arguments.out / PAGE, page.render(report))
    if arguments.figures is not None:
        save(page.figures(report), arguments.out / "figures", arguments.figures or FORMATS)
    _print(reporter, report)
    named = [_named(entry)[1] for entry in arguments.given if not _is_text(entry)]
    against = ["--against", *named[1:]] if named[1:] else []
    finish(*(arguments.out / name for name in (PAGE, TABLE, NUMBERS)), then=["inspect", named[0], *against])


def _named(entry: str) -> tuple[str | None, str]:
    """Split NAME=PATH; None for an entry without a name."""
    name, equals, path = entry.partition("=")
    return (name, path) if equals and not Path(entry).exists() else (None, entry)


def _is_text(entry: str) -> bool:
    path = Path(_named(entry)[1])
    return _TEXT.search(path.name) is not None and path.name not in TOKENIZER_FILES


def _texts(arguments: argparse.Namespace) -> list[Text]:
    found, seen = [], set()
    for entry in [*filter(_is_text, arguments.given), *arguments.text]:
        name, path = _named(entry)
        corpus = open_text(arguments, [path], source_field=arguments.source_field, max_bytes=arguments.max_bytes)
        for file in (file.resolve() for file, _ in corpus.files):
            if file in seen:
                raise UserError(f"{file} is named twice, by {entry!r} for the second time; name each text once")
            seen.add(file)
        found.append(Text(name, corpus))
    if not found:
        raise UserError(
            f"no text given, only tokenizers ({', '.join(arguments.given)}); name files that end in "
            ".txt, .jsonl or .parquet, or give other files and folders with --text"
        )
    return found


def _arms(arguments: argparse.Namespace) -> list[Arm]:
    paths: dict[str, str] = {}
    entries = [_named(entry) for entry in arguments.given if not _is_text(entry)]
    for (name, path), unnamed in zip(entries, labels_of([path for _, path in entries]), strict=True):
        label = name or unnamed
        if label in paths:
            raise UserError(f"two tokenizers are called {label!r}; write NAME=PATH, as in other={path}")
        paths[label] = path
    if not paths:
        raise UserError("no tokenizer given; name folders, files or repositories of the Hugging Face Hub")
    patterns = dict(_for_arm("--pattern", entry, paths) for entry in arguments.pattern)
    if None in patterns:
        raise UserError(f"--pattern {patterns[None]!r} must name its tokenizer: NAME=PATTERN")
    training = [(name, open_text(arguments, [path])) for name, path in (
        _for_arm("--training", entry, paths) for entry in arguments.training
    )]  # fmt: skip
    arms = []
    for name, path in paths.items():
        loaded = open_any(path, add_special_tokens=[END_OF_TEXT], pattern=patterns.get(name))
        given = [corpus for other, corpus in training if other in (None, name)]
        known = recorded(Path(path)) if Path(path).exists() else None
        arms.append(Arm(name, loaded, given or ([] if known is None else [known])))
    return arms


def _for_arm(option: str, entry: str, arms: Iterable[str]) -> tuple[str | None, str]:
    """Split NAME=VALUE of an option; NAME must be a tokenizer."""
    name, value = _named(entry)
    if name is not None and name not in arms:
        raise UserError(f"{option} {entry!r}: no tokenizer is called {name!r}; the names are {', '.join(arms)}")
    return name, value


def _reference(name: str | None, arms: Sequence[Arm]) -> Arm:
    for arm in arms:
        if name in (None, arm.name):
            return arm
    raise UserError(f"--reference {name!r} is not a tokenizer; the names are {', '.join(arm.name for arm in arms)}")


def _runner(arguments: argparse.Namespace) -> RunnerConfig:
    found = load([f"runner.{word}" if "=" in word else f"runner={word}" for word in arguments.runner]).runner
    return found if arguments.threads is None else replace(found, threads=arguments.threads)


@contextmanager
def _reading(
    arguments: argparse.Namespace, runner: RunnerConfig, texts: Sequence[Text], arms: Sequence[Arm], reporter: Reporter
) -> Iterator[Reading]:
    """Yield what reads the text, on this machine or on a cluster."""
    machines = machines_of(runner)
    corpora = [*(text.corpus for text in texts), *chain.from_iterable(arm.training for arm in arms)]
    tasks = arguments.out / f".tasks-{digest([corpus.identity() for corpus in corpora])[:12]}"
    with machines.results(tasks) as folder:
        yield Reading(machines, texts, folder, reporter.progress)


def _overlaps(arms: Sequence[Arm], reading: Reading) -> dict[str, Overlap | None]:
    """Overlap of each tokenizer's training text with the documents; None if its training text is unknown."""
    found: dict[str, Overlap] = {}
    overlaps: dict[str, Overlap | None] = {}
    for arm in arms:
        overlaps[arm.name] = None
        if any(corpus.files for corpus in arm.training):
            key = digest([corpus.identity() for corpus in arm.training])
            if key not in found:
                names = [path.name for corpus in arm.training for path, _ in corpus.files]
                found[key] = Overlap(names, reading.overlap(arm.training))
            overlaps[arm.name] = found[key]
    return overlaps


def _report(
    arguments: argparse.Namespace,
    arms: Sequence[Arm],
    reference: Arm,
    texts: Sequence[Text],
    documents: Documents,
    rows: dict[str, list[measures.Row]],
    overlaps: dict[str, Overlap | None],
    deployed: Deployment,
) -> dict[str, Any]:
    """All numbers, as written to `fertility.json`."""
    found: list[dict[str, Any]] = []
    for arm in arms:
        overall = rows[arm.name][0]
        training = overlaps[arm.name]
        found.append(
            {
                "name": arm.name,
                **arm.loaded.about(),
                "vocab_size": arm.loaded.tokenizer.vocab_size - len(arm.loaded.added),
                "superwords": len(arm.loaded.tokenizer.superword_ids()),
                "training_text": None if training is None else training.text,
                "in_training": None if training is None else {
                    "documents": int(training.documents.sum()),
                    "bytes": overall.in_training_bytes,
                    "sources": [
                        row.group for row in rows[arm.name] if row.by == SOURCE and row.in_training_bytes
                    ],
                },
                "loses_text": bool(overall.changed_documents or overall.lost_bytes),
            }
        )  # fmt: skip
    return {
        "title": arguments.title,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "alpha": arguments.alpha,
        "confidence": measures.CONFIDENCE,
        "least_documents": measures.LEAST_DOCUMENTS,
        "reference": reference.name,
        "text": {
            "files": [str(path) for text in texts for path, _ in text.corpus.files],
            "documents": len(documents),
            "bytes": int(documents.n_bytes.sum()),
            "words": int(documents.n_words.sum()),
        },
        "tokenizers": found,
        "deployment": {"name": " ".join(arguments.deployment), **asdict(deployed)},
        "rows": [
            row.flat() | costs(deployed, arm.loaded.tokenizer.vocab_size, row) for arm in arms for row in rows[arm.name]
        ],
    }


def _print(reporter: Reporter, report: dict[str, Any]) -> None:
    """Print the table of all text, and tokens against the reference by source and script."""
    rows = {(row["tokenizer"], row["by"], row["group"]): row for row in report["rows"]}
    overall = {row["tokenizer"]: row for row in report["rows"] if row["by"] == ALL}
    text = report["text"]
    lines = []
    for arm in report["tokenizers"]:
        row = overall[arm["name"]]
        lines.append(
            [
                arm["name"],
                page.with_interval(row, "bytes_per_token").replace(page.PLUS_MINUS, "\n± "),
                page.with_interval(row, "tokens_per_word").replace(page.PLUS_MINUS, "\n± "),
                "" if arm["name"] == report["reference"] else page.premium(row).replace(page.PLUS_MINUS, "\n± "),
                f"{si(row['vocabulary'])}\n{percent(row['used'] / max(row['vocabulary'], 1), 0)}",
                f"{row['renyi_efficiency']:.3f}",
                page.lost(row) or "none",
                "unknown" if arm["in_training"] is None else percent(row["in_training_bytes"] / row["bytes"]),
            ]
        )
    title = f"{si(text['bytes'])}B of text in {text['documents']:,} documents"
    head = ["", "bytes/\ntoken", "tokens/\nword", f"tokens against\n{report['reference']}", "tokens\nused",
            f"Rényi\nα={report['alpha']:g}", "text\nlost", "text in\ntraining"]  # fmt: skip
    reporter.table(title, head, lines)
    reporter.table(
        f"Serving, {report['deployment']['name']}",
        ["", *page.SERVING.values()],
        [[name, *(page.priced(row, overall[report["reference"]], measure) for measure in page.SERVING)]
         for name, row in overall.items()],
    )  # fmt: skip
    for by in (SOURCE, SCRIPT):
        groups = list(dict.fromkeys(row["group"] for row in report["rows"] if row["by"] == by))
        if len(groups) < 2 or len(report["tokenizers"]) < 2:
            continue
        others = [arm["name"] for arm in report["tokenizers"] if arm["name"] != report["reference"]]
        more = "" if len(groups) <= _COLUMNS else f" (the largest of {len(groups)})"
        reporter.table(
            f"Tokens against {report['reference']} by {by}{more}",
            ["", *groups[:_COLUMNS]],
            [[name, *(page.premium(rows[name, by, group]) for group in groups[:_COLUMNS])] for name in others],
        )
    for note in page.notes(report):
        reporter.say(note, style="yellow")


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
