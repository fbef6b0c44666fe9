"""Before training: chunks in worker processes, engines of regexes, and how many distinct pretokens a text has."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import regex

from experiments.benchmarks.ladder.chunks import count_file
from experiments.benchmarks.ladder.measure import PATTERN, corpus, fresh, power_law
from tokenizer import Batch, _native, count_pretokens, patterns, reference, train_bpe
from tokenizer.train.summary import summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from rich.console import Console

END = "<|endoftext|>"
CHUNK_BYTES = 22_000_000
"""Text for the chunks: as much as the source's validation set."""
ENGINE_BYTES = 8_000_000
"""Text for the engines; the slowest of them cuts some 2 MB a second."""

# Cuts as the named pattern does, and is not its spelling: no fast path knows it.
CUSTOM = f"{patterns.resolve(PATTERN).regex}|(?!)"


@dataclass
class Rate:
    """One way to do a job: its seconds, the bytes of text, and the result."""

    name: str
    n_bytes: int
    seconds: float
    result: str
    peak_mb: float | None = None

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


# --- Engines ---


def _python_regex(texts: list[str], *, count: bool) -> tuple[float, int]:
    pattern = regex.compile(patterns.resolve(PATTERN).regex)
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    n = 0
    for text in texts:
        pieces = pattern.findall(text)
        n += len(pieces)
        if count:
            counts.update(pieces)
    return time.perf_counter() - started, n


def _oniguruma(texts: list[str], *, count: bool) -> tuple[float, int]:
    from tokenizers import Regex, pre_tokenizers

    splitter = pre_tokenizers.Split(Regex(patterns.resolve(PATTERN).regex), "isolated")
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    n = 0
    for text in texts:
        pieces = splitter.pre_tokenize_str(text)
        n += len(pieces)
        if count:
            counts.update(piece for piece, _ in pieces)
    return time.perf_counter() - started, n


def _core(texts: list[str], pattern: str, *, count: bool) -> tuple[float, int]:
    batch = Batch.from_texts(texts)
    started = time.perf_counter()
    if count:
        n = count_pretokens([batch], pattern, threads=1).n_total
    else:
        n = _native.count_pieces(batch, patterns.resolve(pattern).regex)
    return time.perf_counter() - started, n


def engines(arguments: argparse.Namespace, console: Console) -> tuple[list[Rate], bool]:
    """Split alone, and split and count, one thread each. Also returns whether all cut equally many pieces."""
    texts = list(corpus(arguments, ENGINE_BYTES).documents())
    size = sum(len(text.encode()) for text in texts)
    jobs: dict[str, Callable[[bool], tuple[float, int]]] = {
        "Oniguruma (HF Split)": lambda count: _oniguruma(texts, count=count),
        "regex (Python)": lambda count: _python_regex(texts, count=count),
        "fancy-regex (the core, any other pattern)": lambda count: _core(texts, CUSTOM, count=count),
        "scanner (the core, named patterns)": lambda count: _core(texts, PATTERN, count=count),
    }
    rates = []
    for name, job in jobs.items():
        for what, count in (("split", False), ("split + count", True)):
            seconds, n = job(count)
            rates.append(Rate(f"{name}: {what}", size, seconds, f"{n:,} pieces"))
            console.print(f"{name}: {what} ({seconds:.1f} s)", style="dim")
    return rates, len({rate.result for rate in rates}) == 1


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
