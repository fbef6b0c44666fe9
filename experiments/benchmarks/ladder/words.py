"""The corpus while merges are learned: how each rung of the ladder holds its words and applies a merge to them.

A merge's `changes` are what it adds to the count of each pair, often a negative number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from tokenizer.reference import count_pairs, replace_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokenizer.reference import Pair, Word

Changes = dict["Pair", int]


def count_weighted(words: Iterable[tuple[Sequence[bytes], int]]) -> Counter[Pair]:
    """`count_pairs` of words with weights, in which a word may be repeated."""
    counts: Counter[Pair] = Counter()
    for word, weight in words:
        for pair in pairwise(word):
            counts[pair] += weight
    return counts


class Words(Protocol):
    """A corpus as words with weights."""

    def pair_counts(self) -> Counter[Pair]:
        """How often each pair occurs now, counted from scratch."""

    def merge(self, pair: Pair) -> Changes:
        """Merges the pair everywhere and returns what that adds to the count of each pair."""

    def close(self) -> None:
        """Ends whatever runs beside this process."""


class _Local:
    """Words that live in this process."""

    def close(self) -> None:
        """Nothing runs beside this process."""


class RecountedWords(_Local):
    """Every word is rewritten for every merge, and whoever needs counts counts again.

    "Vanilla" and "chunk deduplication" of *From Hours to Seconds* differ only in the words that this is given:
    each piece of the text, or each distinct one with its weight.
    """

    def __init__(self, words: Iterable[tuple[Word, int]]) -> None:
        self._words = list(words)

    def pair_counts(self) -> Counter[Pair]:
        """See `Words`."""
        return count_weighted(self._words)

    def merge(self, pair: Pair) -> Changes:
        """Rewrites the words; says nothing about counts."""
        self._words = [(replace_pair(word, pair), weight) for word, weight in self._words]
        return {}


def merge_and_track(word: Word, pair: Pair, weight: int, changes: Changes) -> Word:
    """The word with the pair merged from left to right, and the change of every count beside a merge.

    The seam rule of *Production BPE* (`incremental counting` in *From Hours to Seconds*): where X A B Y becomes
    X AB Y, the pairs (X, A), (A, B) and (B, Y) lose the word's weight, and (X, AB) and (AB, Y) gain it. X is
    what has been written so far, so that neighbouring occurrences see each other's result.
    """
    left, right = pair
    merged: list[bytes] = []
    place, last = 0, len(word) - 1
    while place <= last:
        token = word[place]
        if token != left or place == last or word[place + 1] != right:
            merged.append(token)
            place += 1
            continue
        token = left + right
        changes[pair] -= weight
        if merged:
            changes[merged[-1], left] -= weight
            changes[merged[-1], token] += weight
        if place + 2 <= last:
            changes[right, word[place + 2]] -= weight
            changes[token, word[place + 2]] += weight
        merged.append(token)
        place += 2
    return tuple(merged)


class TrackedWords(_Local):
    """Every word is looked at for every merge, but counts change only at the seams (`incremental counting`)."""

    def __init__(self, words: Mapping[Word, int]) -> None:
        self._words = list(words.items())

    def pair_counts(self) -> Counter[Pair]:
        """See `Words`."""
        return count_weighted(self._words)

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
        changes: Changes = defaultdict(int)
        for index, (word, weight) in enumerate(self._words):
            if pair[0] in word:
                self._words[index] = merge_and_track(word, pair, weight, changes), weight
        return changes


class IndexedWords(_Local):
    """An index from each pair to the words that hold it: a merge visits those alone.

    The inverted index of the CS336 trainer, with its three phases for each word: withdraw what the old shape
    counts for, rewrite it, register the new shape. Words are found by their shape. A pair that both shapes hold
    comes out even in the counts, but its entry in the index still moves from the old shape to the new.
    """

    def __init__(self, words: Mapping[Word, int]) -> None:
        self._weights = dict(words)
        self._holders: dict[Pair, set[Word]] = defaultdict(set)
        for word in words:
            for pair in pairwise(word):
                self._holders[pair].add(word)

    def pair_counts(self) -> Counter[Pair]:
        """See `Words`."""
        return count_pairs(self._weights)

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
        changes: Changes = defaultdict(int)
        for word in self._holders.pop(pair, ()):
            weight = self._weights.pop(word)
            for old in pairwise(word):  # withdraw
                changes[old] -= weight
                if old != pair:
                    self._holders[old].discard(word)
                    if not self._holders[old]:
                        del self._holders[old]
            rewritten = replace_pair(word, pair)
            for new in pairwise(rewritten):  # register
                changes[new] += weight
                self._holders[new].add(rewritten)
            # Another word may have had this shape already, where words start as longer tokens than bytes.
            self._weights[rewritten] = self._weights.get(rewritten, 0) + weight
        return changes


def merge_in_place(word: list[bytes], pair: Pair, weight: int, changes: Changes) -> None:
    """`merge_and_track` within the list: a place to read from and one to write to, and no new list.

    `reduce churn` of *From Hours to Seconds*: short-lived lists kept the garbage collector busy.
    """
    left, right = pair
    token = left + right
    write = read = 0
    last = len(word) - 1
    while read <= last:
        if word[read] == left and read < last and word[read + 1] == right:
            changes[pair] -= weight
            if write:
                changes[word[write - 1], left] -= weight
                changes[word[write - 1], token] += weight
            if read + 2 <= last:
                changes[right, word[read + 2]] -= weight
                changes[token, word[read + 2]] += weight
            word[write] = token
            read += 2
        else:
            word[write] = word[read]
            read += 1
        write += 1
    del word[write:]


class InPlaceWords(_Local):
    """Words as lists that are edited in place, found through an index from pairs to the words' numbers.

    `track pair locations` of *From Hours to Seconds*. The index holds exactly the pairs that occur, so after
    a merge each pair that lost count in a word is looked for there once more.
    """

    def __init__(self, words: Iterable[tuple[Iterable[bytes], int]]) -> None:
        self.words = [(list(word), weight) for word, weight in words]
        self._places: dict[Pair, set[int]] = defaultdict(set)
        for index, (word, _) in enumerate(self.words):
            for pair in pairwise(word):
                self._places[pair].add(index)

    def pair_counts(self) -> Counter[Pair]:
        """See `Words`."""
        return count_weighted(self.words)

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
        total: Changes = defaultdict(int)
        for index in self._places.pop(pair, ()):
            word, weight = self.words[index]
            changes: Changes = defaultdict(int)
            merge_in_place(word, pair, weight, changes)
            held = set(pairwise(word))
            for changed, delta in changes.items():
                total[changed] += delta
                if changed in held:
                    self._places[changed].add(index)
                elif changed in self._places:
                    self._places[changed].discard(index)
                    if not self._places[changed]:
                        del self._places[changed]
        return total
