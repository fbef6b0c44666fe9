"""Scanning and counting only, on text in memory: `python -m experiments.benchmarks.scanning FILES`.

Scanning finds the ends of a pattern's pieces; counting also counts the pieces. HF's pre-tokenizer and the `regex`
module are measured for comparison, on less text. "Per core" means per second of CPU time, which other processes affect
less than the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import regex
import tokenizers
from rich.table import Table

from experiments.benchmarks import common
from tokenizer import Batch, _native, count_pretokens, patterns
from tokenizer.patterns import Pattern

HF, REGEX = "HF pre-tokenizer", "regex module"
DEFAULT_PATTERNS = ("gpt2", "cl100k", "o200k", "superbpe")


@dataclass
class Row:
    """Measurements of one method with one pattern.

    Attributes:
        run: The work that is timed.
        count: Number of pieces in its result; not timed, because pieces as Python objects cost more than finding them.
        expected: Expected number of pieces, if known.
    """

    pattern: str
    way: str
    batches: Sequence[Batch]
    run: Callable[[], Any]
    count: Callable[[Any], int] = int
    expected: int | None = None
    pieces: int = 0
    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Measure one round."""
        clock, cpu = time.perf_counter(), time.process_time()
        result = self.run()
        self.cpu.append(time.process_time() - cpu)
        self.clock.append(time.perf_counter() - clock)
        self.pieces = self.count(result)

    def rate(self, seconds: list[float]) -> float:
        """Megabytes per second."""
        return sum(batch.n_bytes for batch in self.batches) / statistics.median(seconds) / 1e6


def rows(pattern: Pattern, batches: Sequence[Batch], few: Sequence[Batch], threads: Sequence[int]) -> list[Row]:
    """Return all methods for a pattern: ours on `batches`, the slow ones on `few`."""
    texts = [batch.text(i) for batch in few for i in range(len(batch))]
    sequence = pattern.regex.split("\n")  # one regex per line; each splits the pieces of the line before
    splitter = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(tokenizers.Regex(part), "isolated") for part in sequence]
    )
    compiled = regex.compile(sequence[-1])
    all_pieces, few_pieces = (
        sum(_native.count_pieces(batch, pattern.regex) for batch in over) for over in (batches, few)
    )

    def hugging_face() -> list[Any]:
        held = [tokenizers.PreTokenizedString(text) for text in texts]
        for one in held:
            splitter.pre_tokenize(one)
        return held

    def count(n: int) -> Row:
        return Row(
            pattern.name,
            f"counting, {n} thread{'s'[: n > 1]}",
            batches,
            lambda: count_pretokens(batches, pattern, threads=n).n_total,
            expected=all_pieces,
        )

    measured = [
        Row(pattern.name, "scanning", batches, lambda: sum(_native.count_pieces(b, pattern.regex) for b in batches)),
        *map(count, threads),
        Row(
            *(pattern.name, HF, few, hugging_face),
            count=lambda held: sum(len(one.get_splits()) for one in held),
            expected=few_pieces,
        ),
    ]
    if len(sequence) == 1:
        finds = (pattern.name, REGEX, few, lambda: sum(1 for text in texts for _ in compiled.finditer(text)))
        measured.append(Row(*finds, expected=few_pieces))
    return measured


def first(batches: Sequence[Batch], n_bytes: int) -> list[Batch]:
    """Return the first documents, up to about `n_bytes`."""
    texts: list[str] = []
    for batch in batches:
        for i in range(len(batch)):
            if n_bytes <= 0:
                return [Batch.from_texts(texts)]
            texts.append(batch.text(i))
            n_bytes -= len(texts[-1].encode())
    return [Batch.from_texts(texts)]


def report(measured: Sequence[Row]) -> bool:
    """Print the table; return whether all agree on the pieces, except `regex`, which has another Unicode version."""
    table = Table(title="Text in memory", caption="medians; MB/s by the clock, and per second of CPU time (per core)")
    for column in ("pattern", "", "MB", "MB/s", "MB/s per core", "speed-up of scanning", "pieces"):
        table.add_column(column, justify="left" if column in ("pattern", "") else "right")
    scanning = {row.pattern: row.rate(row.cpu) for row in measured if row.way == "scanning"}
    agree = True
    for i, row in enumerate(measured):
        differs = row.expected is not None and row.pieces != row.expected
        agree = agree and (not differs or row.way == REGEX)
        table.add_row(
            *(row.pattern, row.way, f"{sum(batch.n_bytes for batch in row.batches) / 1e6:.1f}"),
            *(
                f"{row.rate(row.clock):.1f}",
                f"{row.rate(row.cpu):.1f}",
                f"{scanning[row.pattern] / row.rate(row.cpu):.1f} x",
            ),
            f"{row.pieces:,}" + (f" (ours: {row.expected:,})" if differs else ""),
            end_section=measured[i + 1 : i + 2] != [] and measured[i + 1].pattern != row.pattern,
        )
    common.CONSOLE.print(table)
    return agree


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Scanning and counting only, on text in memory.")
    options.add_argument("--patterns", nargs="+", default=list(DEFAULT_PATTERNS))
    options.add_argument(
        "--threads", type=common.positive, nargs="+", default=[1, 2], help="threads for counting (default 1 2)"
    )
    options.add_argument(
        "--slow-bytes", type=common.size, default=5_000_000, help="text for HF and regex (default 5MB)"
    )
    options.set_defaults(max_bytes=100_000_000)
    return options.parse_args(argv)


@common.command
def main(argv: list[str]) -> int:
    """Measure in turn and print the table; return 1 if pieces differ, 2 for a user error."""
    options = parse(argv)
    batches = list(common.corpus(options.paths, options.field, options.max_bytes).batches())
    few = first(batches, options.slow_bytes or sum(batch.n_bytes for batch in batches))
    resolved = [patterns.resolve(pattern) for pattern in options.patterns]
    measured = [row for pattern in resolved for row in rows(pattern, batches, few, options.threads)]
    for _ in range(options.rounds):
        for row in measured:
            row.measure()
    return 0 if report(measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
