"""How each rung of the ladder counts pairs and finds the most frequent one."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

from tokenizer.reference import break_tie

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from experiments.benchmarks.ladder.words import Changes, Words
    from tokenizer.reference import Pair


_DESCENDING = bytes(range(255, -1, -1))


def _descending(token: bytes) -> str:
    """A key that sorts byte strings in descending order: a longer string comes before its prefixes."""
    return token.translate(_DESCENDING).decode("latin-1") + "\u0100"


class Ties:
    """A tie-break and the order of the tokens so far.

    Attributes:
        order: Position of each token: the initial tokens, then merges by rank. It grows during training.
        tie_break: One of `TIE_BREAKS`.
    """

    def __init__(self, tokens: Iterable[bytes], tie_break: str) -> None:
        self.order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
        self.tie_break = tie_break

    def first(self, pairs: Iterable[Pair]) -> Pair:
        """Return the pair to merge among equally frequent ones by comparing all; see `break_tie`."""
        return break_tie(pairs, self.order, self.tie_break)

    def key(self, pair: Pair) -> tuple[int, int] | tuple[str, str] | Pair:
        """Return a sort key with the same order, smallest first. The key of a pair never changes."""
        if self.tie_break == "lowest-ids":
            return self.order[pair[0]], self.order[pair[1]]
        if self.tie_break == "lexicographic-greatest":
            return _descending(pair[0]), _descending(pair[1])
        return pair


class PairCounts:
    """Counts of pairs that are kept up to date; the most frequent pair is found by comparing all of them.

    Attributes:
        ties: The tie-break.
        counts: Count of each pair that occurs and was not dropped.
        seconds: Time that `learn` spent in `best`.
    """

    def __init__(self, words: Words, ties: Ties) -> None:
        self.ties = ties
        self.counts: dict[Pair, int] = dict(words.pair_counts())
        self.seconds = 0.0
        self._dropped: set[Pair] = set()

    def best(self) -> tuple[int, Pair | None]:
        """Return the highest count and the pair to merge; 0 and None if no pair is left."""
        most = max(self.counts.values(), default=0)
        if not most:
            return 0, None
        return most, self.ties.first(pair for pair, count in self.counts.items() if count == most)

    def change(self, changes: Changes) -> None:
        """Apply the changes of a merge. A pair with count 0 is removed: it would be a false maximum."""
        for pair, delta in changes.items():
            if delta and pair not in self._dropped:
                old = self.counts.get(pair, 0)
                new = old + delta
                if new < 0:
                    raise AssertionError(f"the count of {pair} would be {new}: the counts do not match the corpus")
                if new:
                    self.counts[pair] = new
                else:
                    del self.counts[pair]
                self._moved(pair, old, new)

    def drop(self, pair: Pair) -> None:
        """Remove a pair for good: it is never merged, whatever its count."""
        self._dropped.add(pair)
        self._moved(pair, self.counts.pop(pair), 0)

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        """Called after every change of a count; 0 stands for an absent pair."""


class RecountedPairs(PairCounts):
    """Counts all pairs from scratch each time (`vanilla`)."""

    def __init__(self, words: Words, ties: Ties) -> None:
        super().__init__(words, ties)
        self._words = words

    def best(self) -> tuple[int, Pair | None]:
        """See `PairCounts`."""
        self.counts = dict(self._words.pair_counts())
        for pair in self._dropped & self.counts.keys():
            del self.counts[pair]
        return super().best()


class SortedPairs(PairCounts):
    """A sorted dictionary from count to pairs; its last entry has the most frequent ones.

    `fast max` of *From Hours to Seconds*: O(log k) for each change, where k is the number of different counts,
    and no search.
    """

    def __init__(self, words: Words, ties: Ties) -> None:
        super().__init__(words, ties)
        self._pairs: SortedDict = SortedDict()
        for pair, count in self.counts.items():
            self._pairs.setdefault(count, set()).add(pair)

    def best(self) -> tuple[int, Pair | None]:
        """See `PairCounts`."""
        if not self._pairs:
            return 0, None
        most, tied = self._pairs.peekitem(-1)
        return most, self.ties.first(tied)

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if old:
            self._pairs[old].remove(pair)
            if not self._pairs[old]:  # an empty set would be a false maximum
                del self._pairs[old]
        if new:
            self._pairs.setdefault(new, set()).add(pair)


class HeapPairs(PairCounts):
    """A heap with stale entries, which are detected when they reach the top.

    The max-heap with lazy deletion of *Production BPE*. An entry is pushed only when a count rises. A stale entry at
    the top is pushed back with the current count.
    """

    def __init__(self, words: Words, ties: Ties) -> None:
        super().__init__(words, ties)
        self._heap: list[tuple[int, Any, Pair]] = [
            (-count, ties.key(pair), pair) for pair, count in self.counts.items()
        ]
        heapq.heapify(self._heap)

    def best(self) -> tuple[int, Pair | None]:
        """See `PairCounts`."""
        while self._heap:
            count, key, pair = self._heap[0]
            now = self.counts.get(pair, 0)
            if now == -count:
                return now, pair
            if now:
                heapq.heapreplace(self._heap, (-now, key, pair))
            else:
                heapq.heappop(self._heap)
        return 0, None

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if new > old:
            heapq.heappush(self._heap, (-new, self.ties.key(pair), pair))


class CachedTopPairs(PairCounts):
    """Approximate: compares only the top tenth of an earlier ranking and the pairs that changed since.

    The cached selection of the source experiment (BPE and SuperBPE written from scratch): the previous top 10 % and
    the pairs of the last merge are ranked together, and the top 10 % of the result are kept. The most frequent pair may
    not be among them. All pairs are ranked again every `refresh` merges, and when no candidate is left.
    """

    share = 0.1

    def __init__(self, words: Words, ties: Ties, refresh: int = 1000) -> None:
        super().__init__(words, ties)
        self._refresh = refresh
        self._age = refresh
        self._top: list[Pair] = []
        self._changed: set[Pair] = set()

    def best(self) -> tuple[int, Pair | None]:
        """Return the first pair of the ranking; None only if no pair is left at all."""
        counts = self.counts
        candidates = [pair for pair in self._top if pair not in self._changed and pair in counts]
        self._age += 1
        if self._age > self._refresh or not (candidates or self._changed):
            self._age = 1
            candidates = list(counts)
        else:
            candidates += self._changed  # nearly sorted: the previous order, then the changed pairs
        candidates.sort(key=counts.__getitem__, reverse=True)
        self._changed.clear()
        if not candidates:
            return 0, None
        self._top = candidates[: max(1, int(len(counts) * self.share))]
        most = counts[self._top[0]]
        # Equally frequent pairs are adjacent in the ranking, though some may be outside the kept tenth.
        tied = []
        for pair in candidates:
            if counts[pair] < most:
                break
            tied.append(pair)
        return most, self.ties.first(tied)

    def _moved(self, pair: Pair, old: int, new: int) -> None:
        if new:
            self._changed.add(pair)
        else:
            self._changed.discard(pair)
