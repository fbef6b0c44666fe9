"""Phase 1 on the counts of more text than there is: `python -m experiments.benchmarks.merge_loop FILES`.

The counts of the files are scaled up as Heaps' and Zipf's laws predict. Distinct pretokens grow as a power of the text,
with the exponent beta between an eighth of the documents and all of them; so the counts of new pretokens follow
P(count >= n) = n to the power -beta. A new pretoken is the beginning of one rare pretoken and the end of another.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import si, stderr
from tokenizer import PretokenCounts, UserError, count_pretokens, train_bpe
from tokenizer.corpus.corpus import Corpus

_RARE = 2
"""New pretokens are made of those with at most this count."""
_CHUNK = 1_000_000
_MOST = 10_000
"""The greatest count of a new pretoken: all frequent ones occur in the files."""


def exponent(options: argparse.Namespace, counts: PretokenCounts) -> float:
    """Exponent of Heaps' law between an eighth of the documents and all of them."""
    config = replace(common.corpus(options.paths, options.field, options.max_bytes).config, sample=1 / 8)
    part = count_pretokens(Corpus(config), options.pattern)
    return math.log(counts.n_distinct / part.n_distinct) / math.log(counts.n_bytes / part.n_bytes)


def crossed(counts: PretokenCounts, n: int, rng: np.random.Generator) -> Any:
    """Make pretokens: the beginning of a rare one and the end of another, cut between characters.

    Args:
        counts: The counts whose rare pretokens are used.
        n: Number of pretokens to make; some are equal.
        rng: Source of randomness.

    Returns:
        A large binary array of Arrow.
    """
    import pyarrow as pa

    rare, lengths = np.flatnonzero(counts.counts <= _RARE), np.diff(counts.offsets)
    one, two = rng.choice(rare, n), rng.choice(rare, n)
    end = _at_character(counts, one, np.ceil(rng.random(n) * lengths[one]).astype(np.int64))
    start = _at_character(counts, two, np.floor(rng.random(n) * lengths[two]).astype(np.int64))
    pieces = np.stack([end, lengths[two] - start], axis=1)
    first = np.stack([counts.offsets[one], counts.offsets[two] + start], axis=1).ravel()
    ends = np.cumsum(pieces.ravel())
    source = np.arange(ends[-1]) + np.repeat(first - ends + pieces.ravel(), pieces.ravel())
    offsets = np.append(0, np.cumsum(pieces.sum(axis=1)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(counts.data[source])]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), n, buffers)


def _at_character(
    counts: PretokenCounts, which: npt.NDArray[np.int64], at: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Move positions in pretokens to the next beginning of a character."""
    lengths = np.diff(counts.offsets)[which]
    while (inside := (at < lengths) & _continues(counts, counts.offsets[which] + at)).any():
        at = at + inside
    return at


def _continues(counts: PretokenCounts, at: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the bytes continue a character in UTF-8."""
    found: npt.NDArray[np.bool_] = counts.data[np.minimum(at, len(counts.data) - 1)] & 0xC0 == 0x80
    return found


def scaled_up(counts: PretokenCounts, n_distinct: int, beta: float, seed: int) -> PretokenCounts:
    """Scale counts up to the text that has this number of distinct pretokens."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rng = np.random.default_rng(seed)
    factor = (n_distinct / counts.n_distinct) ** (1 / beta)
    buffers = [None, pa.py_buffer(counts.offsets), pa.py_buffer(counts.data)]
    strings = pa.chunked_array([pa.LargeBinaryArray.from_buffers(pa.large_binary(), counts.n_distinct, buffers)])
    while (missing := n_distinct - len(strings)) > 0:
        more = [crossed(counts, _CHUNK, rng) for _ in range(math.ceil(1.1 * missing / _CHUNK))]
        strings = pa.chunked_array([pc.unique(pa.chunked_array([*strings.chunks, *more]))])
    strings = strings.combine_chunks()[:n_distinct]
    numbers = np.empty(n_distinct, np.uint64)
    numbers[: counts.n_distinct] = counts.counts * factor
    share = 1 - rng.random(n_distinct - counts.n_distinct)
    numbers[counts.n_distinct :] = np.minimum(share ** (-1 / beta), _MOST)
    order = pc.sort_indices(strings)
    _, offsets, data = strings.take(order).buffers()
    return replace(
        counts,
        data=np.frombuffer(data, np.uint8),
        offsets=np.frombuffer(offsets, np.int64)[: n_distinct + 1],
        counts=numbers[order.to_numpy()],
        n_bytes=round(counts.n_bytes * factor),
        n_documents=round(counts.n_documents * factor),
    )


def cached_counts(options: argparse.Namespace, counts: PretokenCounts, beta: float, n_distinct: int) -> Path:
    """Scale counts up, or return the file of an earlier run.

    Raises:
        UserError: If the text has as many distinct pretokens already.
    """
    if n_distinct <= counts.n_distinct:
        raise UserError(f"--distinct {n_distinct} must be above the {counts.n_distinct} of the files")

    def write(folder: Path) -> None:
        scaled_up(counts, n_distinct, beta, options.seed).save(folder / "counts.parquet")

    key = [counts.n_distinct, counts.n_bytes, options.pattern, n_distinct, beta, options.seed]
    return common.cached(options.cache, "scaled-counts", key, write) / "counts.parquet"


def measured(path: Path, options: argparse.Namespace) -> common.Result:
    """Train on counts, each time in a fresh process."""
    rounds = []
    for _ in range(options.rounds):
        facts, usage = common.fresh(train, path, options.vocab_size)
        rounds.append(facts | usage)
    return common.Result("", rounds)


def train(path: Path, vocab_size: int) -> dict[str, Any]:
    """Load counts and train phase 1 on them."""
    started = time.perf_counter()
    counts = PretokenCounts.load(path)
    loaded = time.perf_counter()
    found = train_bpe(counts, vocab_size).provenance["phase1"]
    ended = time.perf_counter()
    return {
        "bytes": counts.n_bytes,
        "distinct": counts.n_distinct,
        "pretokens": counts.n_total,
        "load": loaded - started,
        "seconds": ended - loaded,
        "merges": found["merges"],
        "last count": found["last_count"],
    }


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Phase 1 on the counts of more text than there is.")
    options.add_argument("--vocab-size", type=common.positive, default=131_072)
    options.add_argument("--pattern", default="gpt2")
    options.add_argument("--distinct", type=common.positive, nargs="+", default=[10_000_000, 30_000_000])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--cache", type=Path, default=Path("artifacts/benchmarks"), help="for the counts")
    options.set_defaults(rounds=1)
    return options.parse_args(argv)


@common.command
def main(argv: list[str]) -> int:
    """Make the counts, train on each and print the table; return the exit code."""
    options = parse(argv)
    table = Table(title=f"Phase 1 to {options.vocab_size:,} tokens, {options.pattern}", caption="medians; one thread")
    for column in (
        "GB of text",
        "distinct pretokens",
        "pretokens",
        "last count",
        "load s",
        "merge s",
        "CPU s",
        "peak MB",
    ):
        table.add_column(column, justify="right")
    counts = count_pretokens(common.corpus(options.paths, options.field, options.max_bytes), options.pattern)
    beta = exponent(options, counts)
    stderr.print(f"distinct pretokens grow as the power {beta:.3f} of the text", style="dim")
    for n_distinct in options.distinct:
        result = measured(cached_counts(options, counts, beta, n_distinct), options)
        facts = result.facts
        table.add_row(
            f"{facts['bytes'] / 1e9:.1f}",
            f"{facts['distinct']:,}",
            si(facts["pretokens"]),
            f"{facts['last count']:,}",
            *(f"{result.median(name):.0f}" for name in ("load", "seconds", "cpu", "peak_mb")),
        )
    common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
