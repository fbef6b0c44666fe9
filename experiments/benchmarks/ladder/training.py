"""Training with every rung: total time by vocabulary size, and time per merge as training proceeds."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import regex

from experiments.benchmarks.common import fresh
from experiments.benchmarks.ladder.measure import PATTERN, Curve, Seconds, Work, corpus
from experiments.benchmarks.ladder.native import as_tokenizer
from experiments.benchmarks.ladder.native import train as train_native
from experiments.benchmarks.ladder.selection import Ties
from experiments.benchmarks.ladder.trainers import RUNGS, TRAINERS, divergence, learn, start
from tokenizer import Batch, PretokenCounts, count_pretokens, patterns
from tokenizer.alphabet import printable
from tokenizer.reference import as_words, byte_alphabet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import numpy.typing as npt
    from rich.console import Console

    from tokenizer.reference import Merge

NAIVE_BYTES = 2_000_000
"""The naive rung uses only the beginning of the text; its time is proportional to the number of pieces."""

HF = "HF tokenizers"


def run_rung(rung: str, path: Path, n_merges: int, limit: float) -> tuple[Curve, list[Merge]]:
    """Train until the merges are done or the limit (seconds, without setup) is reached."""
    words = as_words(dict(PretokenCounts.load(path).items()))
    started = time.perf_counter()
    stored, pairs = start(rung, words, Ties(byte_alphabet(), "lowest-ids"))
    begun = time.perf_counter()
    curve = Curve(begun - started, [], [], finished=True)
    merges: list[Merge] = []
    for merge in itertools.islice(learn(stored, pairs), n_merges):
        merges.append(merge)
        curve.at.append(time.perf_counter() - begun)
        curve.selecting.append(pairs.seconds)
        if curve.at[-1] > limit and len(merges) < n_merges:
            curve.finished = False
            break
    stored.close()
    return curve, merges


def symbols_left(counts: PretokenCounts, merges: list[Merge]) -> tuple[npt.NDArray[np.float64], ...]:
    """Number of symbols before each merge and after the last: in the corpus, and in its distinct pretokens.

    The numbers come from encoding at about 20 points per factor of ten merges; between these they are interpolated.
    """
    tokenizer = as_tokenizer((left, right) for left, right, _ in merges)
    words = Batch.from_buffers(counts.data, counts.offsets)
    numbers = {0, *(round(10 ** (step / 20)) for step in range(20 * 7)), len(merges)}
    knots = sorted(number for number in numbers if number <= len(merges))
    lengths = [np.diff(tokenizer.cut(256 + number).encode_batch(words)[1]) for number in knots]
    every = np.arange(len(merges) + 1)
    of_corpus = [int((length * counts.counts.astype(np.int64)).sum()) for length in lengths]
    of_distinct = [int(length.sum()) for length in lengths]
    return np.interp(every, knots, of_corpus), np.interp(every, knots, of_distinct)


def work_of(rung: str, n_words: int, of_corpus: npt.NDArray[np.float64], of_distinct: npt.NDArray[np.float64]) -> Work:
    """Work of a rung for each merge. Each application of a merge removes one symbol.

    Recounting and rewriting visit each symbol. Searching a word for a token costs as much as six symbols, plus its
    symbols (measured: 0.04 microseconds, and 0.006 per symbol).
    """
    if rung == "naive":
        return Work(of_corpus[:-1], recounting=True)
    if rung == "deduplicated":
        return Work(of_distinct[:-1], recounting=True)
    if rung == "incremental":
        return Work(of_distinct[:-1] + 6 * n_words)
    return Work(-np.diff(of_distinct))


def run_native(path: Path, sizes: list[int]) -> tuple[dict[int, float], list[Merge]]:
    """Seconds of a run with each number of merges, and the merges of the longest run."""
    counts = dict(PretokenCounts.load(path).items())
    seconds = {}
    merges: list[Merge] = []
    for n_merges in sizes:
        started = time.perf_counter()
        merges = train_native(counts, n_merges)
        seconds[n_merges] = time.perf_counter() - started
    return seconds, merges


def run_hugging_face(arguments: argparse.Namespace, vocab_size: int) -> tuple[float, float, list[tuple[str, str]]]:
    """Seconds until HF has read the last document, seconds after that, and the merges in HF's notation."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    documents = list(corpus(arguments).documents())
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(patterns.resolve(PATTERN).regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, initial_alphabet=alphabet)
    taken = started = time.perf_counter()

    def texts() -> Iterator[str]:
        nonlocal taken
        yield from documents
        taken = time.perf_counter()

    trained.train_from_iterator(texts(), trainer)
    ended = time.perf_counter()
    merges = [tuple(merge) for merge in json.loads(trained.to_str())["model"]["merges"]]
    return taken - started, ended - taken, merges


def preprocess(arguments: argparse.Namespace, n_bytes: int, limit: float, distinct: bool) -> Seconds:
    """Time to split the text with Python's `regex` into lists of bytes: all pieces, or each distinct piece once."""
    pattern = regex.compile(patterns.resolve(PATTERN).regex)
    texts = list(corpus(arguments, None if distinct else NAIVE_BYTES).documents())
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    done = kept = 0
    for text in texts:
        pieces = pattern.findall(text)
        if distinct:
            counts.update(pieces)
        else:
            kept += len([list(piece.encode()) for piece in pieces])
        done += len(text.encode())
        if time.perf_counter() - started > limit:
            break
    kept += len([list(piece.encode()) for piece in counts])
    seconds = time.perf_counter() - started
    return Seconds(seconds * n_bytes / max(done, 1), measured=done == n_bytes)


@dataclass
class Row:
    """Results of a trainer.

    Attributes:
        per_merge: Mean seconds per merge, by half-open interval of merges; only complete intervals.
        points: Number of a merge and mean seconds of the merges around it, for the plot.
        merges_done: Number of merges within the limit.
        selecting_share: Share of the time after setup that finding the best pair took.
    """

    name: str
    preprocessing: Seconds
    training: dict[int, Seconds]
    per_merge: dict[tuple[int, int], float]
    points: list[tuple[float, float]]
    merges_done: int
    selecting_share: float | None = None
    peak_mb: float | None = None
    remark: str = ""
    same: bool = True


@dataclass
class Training:
    """Results of all trainers, and statistics of the text."""

    n_bytes: int
    n_distinct: int
    n_total: int
    stretches: list[tuple[int, int]]
    rows: list[Row] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        """Whether all exact trainers gave the same merges."""
        return all(row.same for row in self.rows)


def stretches(n_merges: int) -> list[tuple[int, int]]:
    """Half-open intervals of merges that start at 1, 10, 100 and so on."""
    edges = [1]
    while edges[-1] * 10 < n_merges + 1:
        edges.append(edges[-1] * 10)
    return [*itertools.pairwise(edges), (edges[-1], n_merges + 1)]


def _between(totals: dict[int, float]) -> list[tuple[float, float]]:
    """Number of a merge and mean seconds around it, for a trainer that reports only totals."""
    known = sorted(({0: 0.0} | totals).items())
    return [
        (max(fewer, 1) ** 0.5 * more**0.5, (after - before) / (more - fewer))
        for (fewer, before), (more, after) in itertools.pairwise(known)
    ]


def _rung_row(rung: str, curve: Curve, sizes: list[int], bins: list[tuple[int, int]], preprocessing: Seconds) -> Row:
    fine = sorted({round(10 ** (step / 8)) for step in range(8 * 7)})
    means = [((first * last) ** 0.5, curve.per_merge(first, last)) for first, last in itertools.pairwise(fine)]
    whole = {(first, last): curve.per_merge(first, last) for first, last in bins}
    return Row(
        rung,
        preprocessing,
        {vocab_size: curve.total(vocab_size - 256) for vocab_size in sizes},
        {stretch: seconds for stretch, seconds in whole.items() if seconds is not None},
        [(number, seconds) for number, seconds in means if seconds is not None],
        len(curve.at),
        curve.selecting_share,
    )


def _say_divergence(merges: list[Merge], exact: list[Merge]) -> str:
    found = divergence(exact[: len(merges)], merges)
    if found["first_difference"] is None:
        return "no difference"
    return f"differs from merge {found['first_difference'] + 1:,}; shares {found['shared']:.2%} of the merges"


def measure(arguments: argparse.Namespace, console: Console) -> Training:
    """Run every rung, the Rust core and HF, one after the other."""
    sizes = sorted(arguments.vocab_sizes)
    most = sizes[-1] - 256
    batches = list(corpus(arguments).batches())  # the other preprocessing starts with text in memory, too
    started = time.perf_counter()
    counts = count_pretokens(batches, PATTERN)
    native_preprocessing = Seconds(time.perf_counter() - started)
    del batches
    result = Training(counts.n_bytes, counts.n_distinct, counts.n_total, stretches(most))
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder) / "whole.parquet", Path(folder) / "part.parquet"
        counts.save(whole)
        beginning = count_pretokens(corpus(arguments, NAIVE_BYTES).batches(), PATTERN)
        beginning.save(part)
        (seconds, exact), usage = fresh(run_native, whole, [size - 256 for size in sizes])
        native = Row(
            "native",
            native_preprocessing,
            {size: Seconds(seconds[size - 256]) for size in sizes},
            {},
            _between(seconds),
            len(exact),
            peak_mb=usage["peak_mb"],
        )
        left = symbols_left(counts, exact)
        by_piece, _ = fresh(preprocess, arguments, counts.n_bytes, arguments.limit, False)
        by_distinct, _ = fresh(preprocess, arguments, counts.n_bytes, arguments.limit, True)
        for rung in RUNGS:
            naive = rung == "naive"
            (curve, merges), usage = fresh(run_rung, rung, part if naive else whole, most, arguments.limit)
            curve.work = work_of(rung, counts.n_distinct, *left)
            if naive:
                curve.scale = counts.n_total / max(beginning.n_total, 1)
            row = _rung_row(rung, curve, sizes, result.stretches, by_piece if naive else by_distinct)
            row.peak_mb = usage["peak_mb"]
            expected = TRAINERS["native"](dict(beginning.items()), len(merges)) if naive else exact
            if rung == "approximate":
                row.remark = _say_divergence(merges, exact)
            else:
                row.same = merges == expected[: len(merges)]
                row.remark = "" if row.same else "OTHER MERGES"
            if curve.scale != 1:
                row.remark += f"run on {beginning.n_bytes / 1e6:.1f} MB, times {curve.scale:.1f}"
            result.rows.append(row)
            console.print(f"{rung}: {len(curve.at):,} merges", style="dim")
    result.rows += [native, _hugging_face_row(arguments, sizes, exact, console)]
    return result


def _hugging_face_row(arguments: argparse.Namespace, sizes: list[int], exact: list[Merge], console: Console) -> Row:
    """HF trains only from text, and pretokenizes it while reading.

    The time of a run without merges after the last document counts as preprocessing in all runs.
    """
    rest = min(fresh(run_hugging_face, arguments, 256)[0][1] for _ in range(3))  # the fastest of three
    totals: dict[int, float] = {}
    before = []
    usage: dict[str, float] = {}
    same, done = True, 0
    ours = [(printable(left), printable(right)) for left, right, _ in exact]
    for size in sizes:
        (taking, after, merges), usage = fresh(run_hugging_face, arguments, size)
        before.append(taking + rest)
        totals[size - 256] = max(after - rest, 0.0)  # noise can make the difference negative
        same = same and merges == ours[: size - 256]
        done = len(merges)
        console.print(f"{HF}: vocabulary {size:,}", style="dim")
    preprocessing = Seconds(statistics.median(before))
    training = {size: Seconds(totals[size - 256]) for size in sizes}
    remark = "" if same else "OTHER MERGES"
    return Row(HF, preprocessing, training, {}, _between(totals), done, None, usage["peak_mb"], remark, same)
