"""The trainers: one loop, and for each rung of the ladder a way to hold words and a way to find the best pair.

>>> TRAINERS["lazy-heap"]({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
[(b'e', b'r', 8), (b'w', b'er', 8)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat

from experiments.benchmarks.ladder import native
from experiments.benchmarks.ladder.parallel import ParallelWords
from experiments.benchmarks.ladder.selection import (
    CachedTopPairs,
    HeapPairs,
    PairCounts,
    RecountedPairs,
    Selection,
    SortedPairs,
    Ties,
)
from experiments.benchmarks.ladder.words import IndexedWords, InPlaceWords, RecountedWords, TrackedWords, Words
from tokenizer.reference import Accept, Merge, Word, as_words, byte_alphabet, phase1_rules

MOST_PIECES = 50_000_000
"""The naive rung rejects more pieces than this; they would take some 10 GB."""


def _naive(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """Every piece of the text by itself, all recounted and rewritten for every merge: the textbook's four lines."""
    if (n_pieces := sum(words.values())) > MOST_PIECES:
        msg = f"{n_pieces:,} pieces are too many to hold one by one (at most {MOST_PIECES:,}); use 'deduplicated'"
        raise ValueError(msg)
    held = RecountedWords((word, 1) for word, count in words.items() for word in repeat(word, count))
    return held, RecountedPairs(held, ties)


def _deduplicated(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """The same over distinct pieces with their counts."""
    held = RecountedWords(words.items())
    return held, RecountedPairs(held, ties)


def _incremental(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """Counts change at the seams of each merge; words are still all looked at."""
    held = TrackedWords(words)
    return held, PairCounts(held.pair_counts(), ties)


def _indexed(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """An index from pairs to words: withdraw, rewrite, register."""
    held = IndexedWords(words)
    return held, PairCounts(held.pair_counts(), ties)


def _in_place(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """The index again, over lists that are edited in place."""
    held = InPlaceWords(words.items())
    return held, PairCounts(held.pair_counts(), ties)


def _fast_max(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """In place, and counts in a sorted dictionary."""
    held = InPlaceWords(words.items())
    return held, SortedPairs(held.pair_counts(), ties)


def _lazy_heap(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """In place, and counts in a heap with lazy deletion."""
    held = InPlaceWords(words.items())
    return held, HeapPairs(held.pair_counts(), ties)


def _parallel(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """Fast max, with the words in worker processes until merges are cheap."""
    held = ParallelWords(words)
    return held, SortedPairs(held.pair_counts(), ties)


def _approximate(words: Mapping[Word, int], ties: Ties) -> tuple[Words, Selection]:
    """In place, and the best pair from a cached top tenth: its merges may differ from all the others'."""
    held = InPlaceWords(words.items())
    return held, CachedTopPairs(held.pair_counts(), ties)


RUNGS: dict[str, Callable[[Mapping[Word, int], Ties], tuple[Words, Selection]]] = {
    "naive": _naive,
    "deduplicated": _deduplicated,
    "incremental": _incremental,
    "indexed": _indexed,
    "in-place": _in_place,
    "fast-max": _fast_max,
    "lazy-heap": _lazy_heap,
    "parallel": _parallel,
    "approximate": _approximate,
}
"""The rungs in Python, from the slowest: words and ties to a way to hold the words and one to find the best pair."""


def learn(words: Words, pairs: Selection, *, min_count: int = 1, accept: Accept = lambda *_: True) -> Iterator[Merge]:
    """Yields merges one after the other, each applied when it is yielded, until no pair is left.

    Args:
        words: the corpus.
        pairs: the counts of its pairs; new tokens are added to its ties.
        min_count: pairs that occur less often are not merged.
        accept: a pair that it rejects is dropped for good, as is one that spells an existing token.
    """
    order = pairs.ties.order
    while True:
        count, pair = pairs.best()
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
    rung: str,
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Accept,
) -> list[Merge]:
    """The merges of `tokenizer.reference.train_words`, which has the same other arguments, by a rung of `RUNGS`."""
    held, pairs = RUNGS[rung](words, Ties(tokens, tie_break))
    try:
        return list(islice(learn(held, pairs, min_count=min_count, accept=accept), n_merges))
    finally:
        held.close()


def _train(
    rung: str,
    counts: Mapping[bytes, int],
    n_merges: int,
    *,
    tie_break: str = "lowest-ids",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    special_tokens: Sequence[str] = (),
) -> list[Merge]:
    accept = phase1_rules(max_token_bytes, special_tokens)
    tokens = byte_alphabet()
    return train_words(
        rung, as_words(counts), n_merges, tokens=tokens, tie_break=tie_break, min_count=min_count, accept=accept
    )


TRAINERS: dict[str, Callable[..., list[Merge]]] = {
    **{rung: partial(_train, rung) for rung in RUNGS},
    "native": native.train,
}
"""Every trainer by its name, from the slowest to the Rust core; arguments as for `tokenizer.reference.train_naive`."""

EXACT = tuple(name for name in TRAINERS if name != "approximate")
"""The trainers that learn exactly the same merges."""


def divergence(exact: Sequence[Merge], approximate: Sequence[Merge]) -> dict[str, int | float | None]:
    """How far merges are from the exact ones.

    Returns:
        merges: how many exact ones there are.
        first_difference: rank of the first merge that differs; None if none does.
        in_place: share of the ranks that hold the same merge.
        shared: share of the exact merges that were learned at all, at whatever rank.
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
