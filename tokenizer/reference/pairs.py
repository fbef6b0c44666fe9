"""Tokens, pairs and words, and which of several equally frequent pairs is merged."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Pair = tuple[bytes, bytes]
Word = tuple[bytes, ...]
"""A piece of text as tokens; no merge crosses its ends."""
Merge = tuple[bytes, bytes, int]
"""Left token, right token, and the pair's count when it was merged."""

TIE_BREAKS = ("lowest-ids", "lexicographic-greatest", "lexicographic-smallest")


def byte_alphabet() -> list[bytes]:
    """The 256 bytes in HF's alphabet order: by the codepoint of the printable character that stands for each.

    GPT-2's table writes the printable characters of Latin-1 as themselves and moves the other bytes, in
    order, to U+0100 and up; so `!` comes first, and the space after the letters.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return [bytes([byte]) for byte in printable + moved]


def break_tie(pairs: Iterable[Pair], order: Mapping[bytes, int], tie_break: str) -> Pair:
    """The pair to merge among equally frequent ones.

    Args:
        pairs: the candidates.
        order: each token's place: bytes in the order of `byte_alphabet`, then merges by rank.
        tie_break: one of `TIE_BREAKS`. "lowest-ids" compares places; the other two the tuples (left bytes,
            right bytes), never the concatenation.
    """
    if tie_break == "lowest-ids":
        return min(pairs, key=lambda pair: (order[pair[0]], order[pair[1]]))
    if tie_break == "lexicographic-smallest":
        return min(pairs)
    if tie_break == "lexicographic-greatest":
        return max(pairs)
    msg = f"tie_break={tie_break!r} is unknown; use one of {', '.join(TIE_BREAKS)}"
    raise ValueError(msg)


_DESCENDING = bytes(range(255, -1, -1))


def _descending(token: bytes) -> str:
    """A key that sorts byte strings from the greatest to the smallest, a longer one before its own start."""
    return token.translate(_DESCENDING).decode("latin-1") + "\u0100"


class Ties:
    """A tie-break with the places of the tokens that there are so far.

    Attributes:
        order: each token's place: the start's tokens, then merges by rank. It grows while merges are learned.
        tie_break: one of `TIE_BREAKS`.
    """

    def __init__(self, tokens: Iterable[bytes], tie_break: str) -> None:
        self.order = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
        self.tie_break = tie_break

    def first(self, pairs: Iterable[Pair]) -> Pair:
        """The pair to merge among equally frequent ones, all looked at; see `break_tie`."""
        return break_tie(pairs, self.order, self.tie_break)

    def key(self, pair: Pair) -> tuple[int, int] | tuple[str, str] | Pair:
        """The same order as a key, smallest first, for structures that stay sorted: a pair's never changes."""
        if self.tie_break == "lowest-ids":
            return self.order[pair[0]], self.order[pair[1]]
        if self.tie_break == "lexicographic-greatest":
            return _descending(pair[0]), _descending(pair[1])
        return pair


def replace_pair(word: Word, pair: Pair) -> Word:
    """The word with every occurrence of the pair merged, from left to right: (a, a, a) becomes (aa, a)."""
    merged: list[bytes] = []
    for token in word:
        # An appended result of a merge is longer than the left part, so it is never merged a second time.
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return tuple(merged)


def count_pairs(words: Mapping[Word, int]) -> Counter[Pair]:
    """How often each pair of neighbours occurs; at every position, so that (a, a, a) holds (a, a) twice."""
    return count_weighted(words.items())


def count_weighted(words: Iterable[tuple[Sequence[bytes], int]]) -> Counter[Pair]:
    """`count_pairs` of words that come with their weights, the same one more than once perhaps."""
    counts: Counter[Pair] = Counter()
    for word, weight in words:
        for pair in pairwise(word):
            counts[pair] += weight
    return counts
