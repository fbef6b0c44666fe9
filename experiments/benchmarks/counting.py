"""Scanning, counting and reading by kind of text: `python -m experiments.benchmarks.counting [FILES]`.

Scanning finds the ends of a pattern's pieces; counting also counts the pieces. Both read text in memory. Reading
decompresses and parses a `.jsonl.zst` file; zstd alone only decompresses it. Everything runs on one thread. The text is
that of `kinds`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from rich.table import Table

from experiments.benchmarks import common, kinds
from tokenizer import Batch, Corpus, CorpusConfig, _native, count_pretokens, patterns
from tokenizer.patterns import Pattern

BUFFER = 1 << 20
"""Bytes that zstd alone decompresses at a time, as the reader does."""


def decompress(path: Path) -> None:
    """Decompress a file into a buffer."""
    buffer = bytearray(BUFFER)
    with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as stream:
        while stream.readinto(buffer):
            pass


def read(path: Path) -> None:
    """Read the documents of a file."""
    for _ in Corpus(CorpusConfig(paths=[str(path)])).batches():
        pass


def works(texts: Sequence[str], pattern: Pattern, path: Path) -> dict[str, Callable[[], object]]:
    """Return what is timed; `path` is a file to write."""
    batch = Batch.from_texts(texts)
    with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        for text in texts:
            stream.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    return {
        "scanning": lambda: _native.count_pieces(batch, pattern.regex),
        "counting": lambda: count_pretokens([batch], pattern, threads=1),
        "zstd": lambda: decompress(path),
        "reading": lambda: read(path),
    }


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a piece of work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Scanning, counting and reading by kind of text.", paths="*")
    kinds.add_kinds(options)
    options.add_argument("--pattern", default="gpt2", help="pattern of the pretokens (default gpt2)")
    options.set_defaults(max_bytes=10_000_000, rounds=7)
    return options.parse_args(argv)


@common.command
def main(argv: list[str]) -> int:
    """Measure in turn and print the table; return 2 for a user error."""
    options = parse(argv)
    pattern = patterns.resolve(options.pattern)
    texts = kinds.chosen(options, kinds.collected(kinds.documents(options), options.max_bytes)[1])
    with tempfile.TemporaryDirectory() as folder:
        timed = {
            (kind, name): work
            for number, (kind, documents) in enumerate(texts.items())
            for name, work in works(documents, pattern, Path(folder) / f"{number}.jsonl.zst").items()
        }
        rounds = [{key: seconds(work) for key, work in timed.items()} for _ in range(options.rounds)]
    table = Table(
        title=f"Pattern {pattern.name}, one thread",
        caption=f"MB of text per CPU second, and ratios of times; medians of {options.rounds}",
    )
    for column in ("kind", "MB", "scanning", "counting", "times scanning", "zstd alone", "reading", "times zstd"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, documents in texts.items():
        megabytes = sum(len(text.encode()) for text in documents) / 1e6

        def rate(name: str, kind: str = kind, megabytes: float = megabytes) -> str:
            return f"{megabytes / statistics.median(found[kind, name] for found in rounds):.0f}"

        def ratio(name: str, base: str, kind: str = kind) -> str:
            return f"{statistics.median(found[kind, name] / found[kind, base] for found in rounds):.2f}"

        table.add_row(
            *(kind, f"{megabytes:.1f}", rate("scanning"), rate("counting"), ratio("counting", "scanning")),
            *(rate("zstd"), rate("reading"), ratio("reading", "zstd")),
        )
    common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
