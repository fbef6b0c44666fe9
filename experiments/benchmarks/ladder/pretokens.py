"""Before training: counting in worker processes, and the number of distinct pretokens by length of the text."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from experiments.benchmarks.ladder.chunks import count_file
from experiments.benchmarks.ladder.measure import PATTERN, corpus, fresh, power_law
from tokenizer import Batch, count_pretokens, patterns, reference, train_bpe
from tokenizer.train.summary import summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from rich.console import Console

END = "<|endoftext|>"
CHUNK_BYTES = 22_000_000
"""Text for the chunks: as much as the source's validation set."""


@dataclass
class Rate:
    """One way to do a job: its seconds, the bytes of text, and the result."""

    name: str
    n_bytes: int
    seconds: float
    result: str
    peak_mb: float

    @property
    def mb_per_second(self) -> float:
        """Megabytes (10^6 bytes) per second."""
        return self.n_bytes / self.seconds / 1e6


# --- Chunks ---


def _serial(path: Path) -> tuple[float, Counter[bytes]]:
    pattern = patterns.resolve(PATTERN).regex
    started = time.perf_counter()
    counts = reference.count_pretokens([path.read_bytes().decode()], pattern, special_tokens=[END])
    return time.perf_counter() - started, counts


def _in_chunks(path: Path, workers: int) -> tuple[float, Counter[bytes]]:
    pattern = patterns.resolve(PATTERN).regex
    started = time.perf_counter()
    counts = count_file(path, pattern, special_tokens=[END], workers=workers)
    return time.perf_counter() - started, counts


def _natively(path: Path) -> tuple[float, Counter[bytes]]:
    started = time.perf_counter()
    counts = count_pretokens([Batch.from_texts([path.read_bytes().decode()])], PATTERN, special_tokens=[END])
    return time.perf_counter() - started, Counter(dict(counts.items()))


def chunks(arguments: argparse.Namespace, console: Console) -> tuple[list[Rate], bool, dict[str, Any]]:
    """The beginning of the text as one file with special tokens, counted by one process and by several.

    Returns:
        The rates, whether all counts were equal, and the summary of a vocabulary of 10,000 trained on them, with
        all its tokens by length.
    """
    texts = list(corpus(arguments, CHUNK_BYTES).documents())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_bytes(END.join(texts).encode())
        size = path.stat().st_size
        jobs: dict[str, tuple[Callable[..., tuple[float, Counter[bytes]]], *tuple[Any, ...]]] = {
            "Python, 1 process": (_serial, path)
        }
        for workers in sorted({2, arguments.workers}):
            jobs[f"Python, {workers} workers, chunks at {END}"] = (_in_chunks, path, workers)
        jobs["native"] = (_natively, path)
        rates, expected, equal = [], None, True
        for name, (job, *parameters) in jobs.items():
            (seconds, counts), peak = fresh(job, *parameters)
            expected = counts if expected is None else expected
            equal = equal and counts == expected
            rates.append(Rate(name, size, seconds, f"{len(counts):,} distinct of {counts.total():,}", peak))
            console.print(f"chunks: {name} ({seconds:.1f} s)", style="dim")
        batch = Batch.from_texts([path.read_bytes().decode()])
    tokenizer = train_bpe(count_pretokens([batch], PATTERN, special_tokens=[END]), 10_000, special_tokens=[END])
    return rates, equal, summary(tokenizer, longest=10_000)


# --- Heaps' law ---


@dataclass
class Growth:
    """Pretokens of the beginnings of a text, and Heaps' law, distinct = k total^beta, fitted to the longer half."""

    n_bytes: list[int]
    total: list[int]
    distinct: list[int]
    k: float
    beta: float


def heaps(arguments: argparse.Namespace) -> Growth:
    """Counts beginnings of the text, each about twice as long as the one before.

    Every beginning is a whole number of documents, so a text of few documents gives fewer points.
    """
    n_bytes = count_pretokens(corpus(arguments).batches(), PATTERN).n_bytes
    found = {}
    for halvings in range(11, -1, -1):
        counts = count_pretokens(corpus(arguments, max(n_bytes >> halvings, 1)).batches(), PATTERN)
        found[counts.n_bytes] = counts.n_total, counts.n_distinct
    total, distinct = [entry[0] for entry in found.values()], [entry[1] for entry in found.values()]
    half = len(found) // 2  # a single document can weigh much in the shorter ones
    k, beta = power_law(total[half:], distinct[half:]) if len(found) > 2 else (float("nan"), float("nan"))
    return Growth(list(found), total, distinct, k, beta)
