"""The trainers: one loop, and for each rung of the ladder a way to store words and a way to find the best pair.

>>> TRAINERS["lazy-heap"]({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
[(b'e', b'r', 8), (b'w', b'er', 8)]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any

from experiments.benchmarks.ladder import native
from experiments.benchmarks.ladder.parallel import ParallelWords
from experiments.benchmarks.ladder.selection import (
    CachedTopPairs,
    HeapPairs,
    PairCounts,
    RecountedPairs,
    SortedPairs,
    Ties,
)
from experiments.benchmarks.ladder.words import IndexedWords, InPlaceWords, RecountedWords, TrackedWords, Words
from tokenizer.reference import Accept, Merge, Word, train_naive

MOST_PIECES = 50_000_000
"""The naive rung rejects more pieces than this, which would take about 10 GB."""


def each_piece(words: Iterable[tuple[Word, int]]) -> Words:
    """Every piece of the text by itself, as in the textbook."""
    words = list(words)
    if (n_pieces := sum(count for _, count in words)) > MOST_PIECES:
        raise ValueError(
            f"{n_pieces:,} pieces are too many to store one by one (at most {MOST_PIECES:,}); use 'deduplicated'"
        )
    return RecountedWords((word, 1) for word, count in words for word in repeat(word, count))


RUNGS: dict[str, tuple[Callable[[Iterable[tuple[Word, int]]], Words], Callable[[Words, Ties], PairCounts]]] = {
    "naive": (each_piece, RecountedPairs),
    "deduplicated": (RecountedWords, RecountedPairs),
    "incremental": (TrackedWords, PairCounts),
    "indexed": (IndexedWords, PairCounts),
    "in-place": (InPlaceWords, PairCounts),
    "fast-max": (InPlaceWords, SortedPairs),
    "lazy-heap": (InPlaceWords, HeapPairs),
    "parallel": (ParallelWords, SortedPairs),
    "approximate": (InPlaceWords, CachedTopPairs),
}
"""The rungs in Python, from the slowest: how each stores the words, and how it finds the best pair."""


def start(rung: str, words: Mapping[Word, int], ties: Ties) -> tuple[Words, PairCounts]:
    """Build a rung's words and counts."""
    store, select = RUNGS[rung]
    stored = store(words.items())
    return stored, select(stored, ties)


def learn(words: Words, pairs: PairCounts, *, min_count: int = 1, accept: Accept = lambda *_: True) -> Iterator[Merge]:
    """Yield merges, each after it was applied, until no pair is left.

    Args:
        words: The corpus.
        pairs: The counts of its pairs; new tokens are added to its ties.
        min_count: Pairs that occur less often are not merged.
        accept: Decides about each pair. A rejected pair is dropped for good, as is one that spells an existing token.
    """
    order = pairs.ties.order
    while True:
        started = time.perf_counter()
        count, pair = pairs.best()
        pairs.seconds += time.perf_counter() - started
        if pair is None or count < min_count:
            return
        token = pair[0] + pair[1]
        if token in order or not accept(*pair, count):
            pairs.drop(pair)
            continue
        order[token] = len(order)
        pairs.change(words.merge(pair))
        yield (*pair, count)


def train_words(
    rung: str, words: Mapping[Word, int], n_merges: int, *, tokens: Iterable[bytes], tie_break: str, **options: Any
) -> list[Merge]:
    """Learn the merges of `tokenizer.reference.train_words`, with the same options, by a rung of `RUNGS`."""
    stored, pairs = start(rung, words, Ties(tokens, tie_break))
    try:
        return list(islice(learn(stored, pairs, **options), n_merges))
    finally:
        stored.close()


TRAINERS: dict[str, Callable[..., list[Merge]]] = {
    **{rung: partial(train_naive, train=partial(train_words, rung)) for rung in RUNGS},
    "native": native.train,
}
"""Every trainer by name, from the slowest to the Rust core, with the arguments of `tokenizer.reference.train_naive`."""

EXACT = tuple(name for name in TRAINERS if name != "approximate")
"""The trainers that learn the same merges."""


def divergence(exact: Sequence[Merge], approximate: Sequence[Merge]) -> dict[str, int | float | None]:
    """Compare approximate merges with the exact ones.

    Returns:
        merges: Number of exact merges.
        first_difference: Rank of the first merge that differs; None if none does.
        in_place: Share of the ranks with the same merge.
        shared: Share of the exact merges that were learned at any rank.
    """
    theirs = [(left, right) for left, right, _ in approximate]
    ours = [(left, right) for left, right, _ in exact]
    same = [a == b for a, b in zip(ours, theirs, strict=False)]
    differs = not all(same) or len(ours) != len(theirs)
    most = max(len(ours), len(theirs), 1)
    return {
        "merges": len(ours),
        "first_difference": (same.index(False) if False in same else len(same)) if differs else None,
        "in_place": sum(same) / most if most else 1.0,
        "shared": len(set(ours) & set(theirs)) / max(len(ours), 1),
    }
