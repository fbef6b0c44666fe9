"""Inspect a vocabulary: `python -m experiments.inspect_vocab TOKENIZER [--against OTHER] [--text FILE...]`.

Writes into the folder `--out`: `vocabulary.html`, a page that opens offline (search over all tokens, merge trees and
contexts, live segmentation of any text); its numbers as `vocabulary.json`; `tokens-LABEL.parquet`, a table of all
tokens; and with `--figures` the charts for papers. Prints a summary.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.console import finish, percent, print_table, si
from experiments.cli.options import Parser, add_text_settings, add_tokenizer, command, labels_of, open_exact, open_text
from experiments.report import vocabulary, vocabulary_page
from experiments.report.figures import FORMATS, save
from experiments.report.training_counts import training_counts
from experiments.report.vocabulary import Settings, Side
from experiments.report.vocabulary_charts import figures
from superbpe.inspection import tokens
from tokenizer import UserError, storage
from tokenizer._native import Batch
from tokenizer.corpus import embedded
from tokenizer.durable import replacing, write_json, write_whole
from tokenizer.patterns import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

EMBEDDED = "embedded"


def parser() -> Parser:
    """Options of the command."""
    usual = Settings()
    options = Parser(
        "inspect",
        "Inspects a vocabulary, alone or against others, and measures it on text: a page, JSON, a summary.",
    )
    add_tokenizer(options)
    options.add_argument("--against", nargs="+", default=[], metavar="OTHER", help="tokenizers to compare")
    options.add_argument(
        "--text", nargs="+", default=[], metavar="FILE",
        help="held-out text, files as in corpus.paths; 'embedded' for the embedded corpus's held-out documents",
    )  # fmt: skip
    add_text_settings(options)
    options.add_argument("--max-bytes", type=int, default=10_000_000, help="use at most this much text (%(default)s)")
    options.add_argument("--out", type=Path, default=Path("vocabulary"), metavar="FOLDER", help="(%(default)s)")
    options.add_argument("--label", help="name of the tokenizer in the report")
    options.add_argument("--against-label", nargs="+", default=[], metavar="LABEL", help="names of the others")
    options.add_argument("--against-pattern", nargs="+", default=[], metavar="PATTERN", help="patterns of the others")
    options.add_argument("--words", metavar="PATTERN", help="pattern that defines pretokens, if not the tokenizer's")
    options.add_argument("--alpha", type=float, default=usual.alpha, help="order of the Rényi entropy (%(default)s)")
    options.add_argument("--listed", type=int, default=usual.listed, help="rows of each list (%(default)s)")
    options.add_argument(
        "--contexts", type=int, default=usual.contexts, help="occurrences to show per token (%(default)s)"
    )
    options.add_argument(
        "--context-bytes", type=int, default=usual.most_context_bytes,
        help="bytes of context for all occurrences, at most (%(default)s)",
    )  # fmt: skip
    options.add_argument(
        "--figures", nargs="*", choices=FORMATS, metavar="FORMAT", help=f"write the charts: {', '.join(FORMATS)} (all)"
    )
    return options


def _run(arguments: argparse.Namespace) -> None:
    for name, least in (("listed", 0), ("contexts", 1), ("context_bytes", 0), ("max_bytes", 1)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name.replace('_', '-')} {getattr(arguments, name)} must be at least {least}")
    settings = Settings(
        alpha=arguments.alpha,
        listed=arguments.listed,
        contexts=arguments.contexts,
        most_context_bytes=arguments.context_bytes,
    )
    batches = _batches(arguments)
    words = None if arguments.words is None else resolve(arguments.words)
    labels = _labels(arguments)
    patterns = [arguments.pattern, *_one_each("pattern", arguments)]

    def side(source: str, label: str, pattern: str | None) -> Side:
        tokenizer = open_exact(source, pattern=pattern)
        return vocabulary.side(
            label, source, tokenizer, batches, alpha=settings.alpha,
            trained=training_counts(Path(source), tokenizer), described=tokens.describe(tokenizer, words),
        )  # fmt: skip

    paths = [arguments.tokenizer, *arguments.against]
    sides = [side(*each) for each in zip(paths, labels, patterns, strict=True)]
    report = vocabulary.gather(sides, settings, ", ".join(arguments.text) or None)
    storage.disk.make_folder(arguments.out)
    written = _write(arguments, report, sides)
    _print(report)
    finish(*written, then=["export", arguments.tokenizer, "FOLDER", "--to", "hf"])


def _batches(arguments: argparse.Namespace) -> list[Batch]:
    """The text for all tokenizers; empty if `--text` was not given."""
    if not arguments.text:
        return []
    if EMBEDDED not in arguments.text:
        return list(open_text(arguments, arguments.text, max_bytes=arguments.max_bytes).batches("all"))
    if arguments.text != [EMBEDDED]:
        raise UserError(f"--text {EMBEDDED} is the embedded corpus, which cannot be mixed with files; use one of them")
    taken, room = [], arguments.max_bytes
    for document in embedded.documents():
        if room > 0 and embedded.is_heldout(document.group, 0.25):
            taken.append(document.text)
            room -= len(document.text.encode())
    return [Batch.from_texts(taken)]


def _labels(arguments: argparse.Namespace) -> list[str]:
    """Labels of all tokenizers: as given, or their names."""
    paths = [arguments.tokenizer, *arguments.against]
    given = [arguments.label, *_one_each("label", arguments)]
    labels = [label or name for label, name in zip(given, labels_of(paths), strict=True)]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two tokenizers are called {twice[0]!r}; name them with --label and --against-label")
    return labels


def _one_each(option: str, arguments: argparse.Namespace) -> list[str | None]:
    """The values of `--against-OPTION`, one per tokenizer of `--against`; None if the option was not given."""
    given = getattr(arguments, f"against_{option}") or [None] * len(arguments.against)
    if len(given) != len(arguments.against):
        raise UserError(
            f"--against-{option} has {len(given)} values for {len(arguments.against)} tokenizers; give one for each"
        )
    return list(given)


def _write(arguments: argparse.Namespace, report: dict[str, Any], sides: Sequence[Side]) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    page, numbers = arguments.out / "vocabulary.html", arguments.out / "vocabulary.json"
    write_whole(page, vocabulary_page.render(report, sides))
    write_json(numbers, report)
    written = [page, numbers]
    for one in sides:
        path = arguments.out / f"tokens-{re.sub(r'[^A-Za-z0-9._-]+', '-', one.label).strip('-')}.parquet"
        others = [other for other in sides if other is not one]
        with replacing(path) as file:
            pq.write_table(pa.table(vocabulary.table(one, others)), file, compression="zstd")
        written.append(path)
    if arguments.figures is not None:
        written += save(figures(report), arguments.out / "figures", arguments.figures or FORMATS)
    return written


def _print(report: dict[str, Any]) -> None:
    rows = report["tokenizers"]
    lines, caption = [], ""
    for name, key in (
        ("tokens", "ordinary"), ("superwords", "superwords"), ("other tokens across pretokens", "crossing"),
        ("parts of characters", "partial"), ("unreachable", "unreachable"), ("never produced", "never_produced"),
    ):  # fmt: skip
        lines.append([name, *("–" if row[key] is None else f"{row[key]:,}" for row in rows)])
    lines.append(["near-duplicates", *(f"{row['near_duplicates']['tokens']:,}" for row in rows)])
    if report["text"]:
        measured = [row["on_text"] for row in rows]
        alpha = f"{measured[0]['alpha']:g}"
        caption = f"on {si(measured[0]['bytes'])}B of {report['text']}"
        for name, key, form in (
            ("bytes per token", "bytes_per_token", "{:.3f}".format), ("tokens per word", "fertility", "{:.3f}".format),
            ("utilisation", "utilisation", percent), ("superwords among tokens", "superword_tokens", percent),
            ("other tokens across pretokens", "crossing_tokens", percent),
            (f"Rényi efficiency (α={alpha}), over log2 |V|", "renyi_efficiency", "{:.4f}".format),
            ("… over log2 of the tokens that occur", "renyi_efficiency_observed", "{:.4f}".format),
        ):  # fmt: skip
            lines.append([name, *(form(each[key]) for each in measured)])
    print_table(report["title"], ["", *(row["label"] for row in rows)], lines, caption)
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


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
