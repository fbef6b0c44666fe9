"""Fast BPE: the merges of `naive`, with incremental counts.

Pairs are counted once. A merge rewrites only the words that contain its pair, found by an index, and updates only the
counts of their pairs. Pairs are in buckets by count; a heap finds the highest non-empty bucket.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from tokenizer.reference.naive import Accept, Merge, Pair, Word, break_tie, replace_pair, train_naive


def train_words_fast(
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Accept,
) -> list[Merge]:
    """Learn the merges of `naive.train_words`. The arguments are the same."""
    order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    corpus, weights = list(words), list(words.values())
    counts: Counter[Pair] = Counter()
    buckets: defaultdict[int, set[Pair]] = defaultdict(set)  # pairs by count
    heap: list[int] = []  # negated counts with a bucket, which may be empty
    holders: defaultdict[Pair, set[int]] = defaultdict(set)  # words that contain a pair, or contained it before

    dropped: set[Pair] = set()

    def change(changes: Mapping[Pair, int]) -> None:
        for pair, delta in changes.items():
            buckets[counts[pair]].discard(pair)
            new = counts[pair] = counts[pair] + delta
            if new and pair not in dropped:
                if not buckets[new]:
                    heapq.heappush(heap, -new)
                buckets[new].add(pair)

    start: Counter[Pair] = Counter()
    for index, (word, weight) in enumerate(words.items()):
        for pair in pairwise(word):
            start[pair] += weight
            holders[pair].add(index)
    change(start)
    merges: list[Merge] = []
    while len(merges) < n_merges and heap:
        most = -heap[0]
        if not buckets[most]:
            heapq.heappop(heap)
            continue
        if most < min_count:
            break
        left, right = best = break_tie(buckets[most], order, tie_break)
        if left + right in order or not accept(left, right, most):
            dropped.add(best)
            buckets[most].remove(best)
            continue
        order[left + right] = len(order)
        merges.append((left, right, most))
        changes: Counter[Pair] = Counter()
        for index in holders.pop(best):
            for pair in pairwise(corpus[index]):
                changes[pair] -= weights[index]
            corpus[index] = replace_pair(corpus[index], best)
            for pair in pairwise(corpus[index]):
                changes[pair] += weights[index]
                holders[pair].add(index)
        change(changes)
    return merges


def train_fast(counts: Mapping[bytes, int], n_merges: int, **options: Any) -> list[Merge]:
    """Phase 1 over counted pretokens: the merges of `naive.train_naive`, with the same options."""
    return train_naive(counts, n_merges, **options, train=train_words_fast)
