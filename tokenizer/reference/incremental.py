"""Incremental BPE: the same merges as `naive`, in seconds instead of hours on real text.

    count all adjacent pairs once, and note the words that contain each
    repeat: take the most frequent pair from an ordered queue
            merge it in its words, and change the counts of the pairs there

A sorted dictionary from counts to pairs is the queue: its last entry has the most frequent pairs.

>>> train_incremental({b"low": 5, b"lower": 2, b"newer": 6}, 2, tie_break="lexicographic-smallest")
[(b'e', b'r', 8), (b'w', b'er', 8)]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise

from sortedcontainers import SortedDict

from tokenizer.reference.naive import Accept, Merge, Pair, Word, break_tie, count_pairs, replace_pair, train_naive


class PairQueue:
    """Counts of pairs, and the pairs ordered by count."""

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        self._counts: Counter[Pair] = Counter()
        self._pairs: SortedDict = SortedDict()  # the set of pairs of each count above 0
        self._dropped: set[Pair] = set()
        self.change(counts)

    def most_frequent(self) -> tuple[int, set[Pair]]:
        """The highest count and its pairs; 0 and no pairs if none is left."""
        return self._pairs.peekitem(-1) if self._pairs else (0, set())

    def change(self, changes: Mapping[Pair, int]) -> None:
        """Add changes to the counts."""
        for pair, change in changes.items():
            if change and pair not in self._dropped:
                self._leave(pair)
                self._counts[pair] += change
                if self._counts[pair]:
                    self._pairs.setdefault(self._counts[pair], set()).add(pair)

    def drop(self, pair: Pair) -> None:
        """Remove a pair for good: it is never merged, whatever its count."""
        self._leave(pair)
        self._dropped.add(pair)

    def _leave(self, pair: Pair) -> None:
        count = self._counts[pair]
        if count:
            self._pairs[count].remove(pair)
            if not self._pairs[count]:  # an empty set would be a false maximum
                del self._pairs[count]


def train_words_incremental(
    words: Mapping[Word, int],
    n_merges: int,
    *,
    tokens: Iterable[bytes],
    tie_break: str,
    min_count: int,
    accept: Accept,
) -> list[Merge]:
    """Learn the merges of `train_words`; see there for the arguments."""
    order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    current = list(words.items())
    places: dict[Pair, set[int]] = defaultdict(set)  # words that contain a pair, or did so before a merge
    for place, (word, _) in enumerate(current):
        for pair in pairwise(word):
            places[pair].add(place)
    queue = PairQueue(count_pairs(words))
    merges: list[Merge] = []
    while len(merges) < n_merges:
        most, tied = queue.most_frequent()
        if most < max(min_count, 1):
            break
        left, right = best = break_tie(tied, order, tie_break)
        if left + right in order or not accept(left, right, most):
            queue.drop(best)
            continue
        order[left + right] = len(order)
        merges.append((left, right, most))
        changes: Counter[Pair] = Counter()
        for place in places.pop(best):
            before, times = current[place]
            after = replace_pair(before, best)
            current[place] = after, times
            for pair in pairwise(before):
                changes[pair] -= times
            for pair in pairwise(after):
                changes[pair] += times
                places[pair].add(place)
        queue.change(changes)
    return merges


train_incremental = partial(train_naive, train=train_words_incremental)
"""Phase 1 over counted pretokens, with the arguments of `train_naive`."""
