"""How each rung of the ladder stores the words of the corpus and applies a merge to them.

The `changes` of a merge are added to the counts of pairs; most are negative.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenizer.reference import count_pairs, replace_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokenizer.reference import Pair, Word

Changes = dict["Pair", int]


def count_weighted(words: Iterable[tuple[Sequence[bytes], int]]) -> Counter[Pair]:
    """Count the pairs of words with weights; a word may be repeated."""
    counts: Counter[Pair] = Counter()
    for word, weight in words:
        for pair in pairwise(word):
            counts[pair] += weight
    return counts


class Words:
    """A corpus as words with weights; a word may be repeated."""

    def __init__(self, words: Iterable[tuple[Word, int]]) -> None:
        self.words: list[tuple[Any, int]] = list(words)

    def pair_counts(self) -> Counter[Pair]:
        """Count the pairs from scratch."""
        return count_weighted(self.words)

    def merge(self, pair: Pair) -> Changes:
        """Merge the pair everywhere; return the change of each pair's count."""
        raise NotImplementedError

    def close(self) -> None:
        """End worker processes, if there are any."""


class RecountedWords(Words):
    """Rewrites every word for every merge, and reports no changes: the counts are made from scratch.

    "Vanilla" and "chunk deduplication" of *From Hours to Seconds* differ only in the words: each piece of the text, or
    each distinct piece with its count.
    """

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
        self.words = [(replace_pair(word, pair), weight) for word, weight in self.words]
        return {}


def merge_and_track(word: Word, pair: Pair, weight: int, changes: Changes) -> Word:
    """Merge the pair in a word from left to right, and update the counts of the pairs around each merge.

    The seam rule of *Production BPE* (`incremental counting` in *From Hours to Seconds*): where X A B Y becomes
    X AB Y, the pairs (X, A), (A, B) and (B, Y) lose the word's weight, and (X, AB) and (AB, Y) gain it. X is
    the last token written, so that adjacent occurrences see each other's result.
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


class TrackedWords(Words):
    """Visits every word for every merge, but changes counts only at the seams (`incremental counting`)."""

    def merge(self, pair: Pair) -> Changes:
        """See `Words`."""
        changes: Changes = defaultdict(int)
        for index, (word, weight) in enumerate(self.words):
            if pair[0] in word:
                self.words[index] = merge_and_track(word, pair, weight, changes), weight
        return changes


class IndexedWords(Words):
    """Visits only the words that contain the pair, found by an index from each pair to its words.

    This is the inverted index of the CS336 trainer. Each word passes through three steps: subtract the pairs of its old
    form, rewrite it, add the pairs of its new form. Words are found by their form. A pair in both forms keeps its
    count, but its index entry moves from the old form to the new one.
    """

    def __init__(self, words: Iterable[tuple[Word, int]]) -> None:
        self._weights = dict(words)
        self._holders: dict[Pair, set[Word]] = defaultdict(set)
        for word in self._weights:
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
            for old in pairwise(word):  # subtract
                changes[old] -= weight
                if old != pair:
                    self._holders[old].discard(word)
                    if not self._holders[old]:
                        del self._holders[old]
            rewritten = replace_pair(word, pair)
            for new in pairwise(rewritten):  # add
                changes[new] += weight
                self._holders[new].add(rewritten)
            # If words start as tokens longer than bytes, another word may already have this form.
            self._weights[rewritten] = self._weights.get(rewritten, 0) + weight
        return changes


def merge_in_place(word: list[bytes], pair: Pair, weight: int, changes: Changes) -> None:
    """`merge_and_track` in place, with a read and a write position.

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


class InPlaceWords(Words):
    """Words as lists that are edited in place, found by an index from pairs to the positions of their words.

    `track pair locations` of *From Hours to Seconds*. The index contains exactly the pairs that occur, so after a merge
    each pair whose count fell in a word is looked up in that word once more.
    """

    def __init__(self, words: Iterable[tuple[Iterable[bytes], int]]) -> None:
        self.words = [(list(word), weight) for word, weight in words]
        self._places: dict[Pair, set[int]] = defaultdict(set)
        for index, (word, _) in enumerate(self.words):
            for pair in pairwise(word):
                self._places[pair].add(index)

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
