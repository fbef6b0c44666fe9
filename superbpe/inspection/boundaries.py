"""Words, numbers and characters of a text, and which of them tokens cut.

A *word* is a run of letters and their marks, with apostrophes inside (`don't`), as it stands in the text: with a space
before it or not, alone or inside a superword. In scripts without spaces between words, each letter with its marks
counts as a word: ideographs, kana, and the scripts whose lines only a dictionary can break, such as Thai. A *number* is
a run of four decimal digits or more: a shorter one has no place to be cut. A *character* is a code point.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import regex

SHORTEST_NUMBER = 4
"""Digits of the shortest number."""

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
_Integer = TypeVar("_Integer", bound=np.integer)

_LETTER, _ALONE, _MARK, _APOSTROPHE, _DIGIT = range(1, 6)
_CLASSES = {
    _LETTER: r"\p{L}",
    _ALONE: r"(?V1)[[\p{Line_Break=SA}\p{Han}\p{Hiragana}\p{Katakana}]&&\p{L}]",
    _MARK: "[\\p{M}\u200c\u200d]",
    _APOSTROPHE: "['\u2019]",
    _DIGIT: r"\p{Nd}",
}
_NUMBER, _GROUP, _CHARACTER = 1, 2, 4


class UnitCounts(NamedTuple):
    """Counts by document, int64 [n_documents] each.

    Attributes:
        words: words of a text; or words that a tokenizer splits.
        numbers: numbers of a text; or numbers that a tokenizer cuts in groups of three, counted from the right, and
            nowhere else.
        characters: characters of a text; or characters that a tokenizer cuts.
    """

    words: Ints
    numbers: Ints
    characters: Ints


@dataclass(frozen=True)
class Units:
    """Words, numbers and characters of concatenated documents.

    Attributes:
        words: int64 [n_words, 2]: start and end of each word in bytes.
        word_of: int32 [n_bytes + 1]: the word that a cut before each byte cuts, as its index plus 1; 0 for none.
        counts: words, numbers and characters of each document.
        ends: int64 [n_documents]: end of each document in bytes.
        numbers: int64 [n_numbers]: start of each number in bytes.
        groups: int64 [n_numbers]: number of cuts between the groups of three of each number.
        flags: uint8 [n_bytes + 1]: what else a cut before each byte cuts.
    """

    words: Ints
    word_of: Indices
    counts: UnitCounts
    ends: Ints
    numbers: Ints
    groups: Ints
    flags: npt.NDArray[np.uint8]

    def cut(self, token_ends: Ints) -> UnitCounts:
        """Count what tokens cut."""
        flags = self.flags[token_ends]
        at = _distinct(token_ends[(flags & _NUMBER) > 0])
        number = np.searchsorted(self.numbers, at, side="right") - 1
        is_group = (self.flags[at] & _GROUP) > 0
        n = len(self.numbers)
        elsewhere = np.bincount(number[~is_group], minlength=n)
        grouped = (np.bincount(number[is_group], minlength=n) == self.groups) & (elsewhere == 0)
        character = token_ends[(flags & _CHARACTER) > 0]
        for _ in range(3):  # back to the first of at most four bytes
            character = character - ((self.flags[character] & _CHARACTER) > 0)
        split = _distinct(self.words_cut(token_ends))
        return UnitCounts(
            _by_document(self.words[split, 0], self.ends),
            _by_document(self.numbers[grouped], self.ends),
            _by_document(_distinct(character), self.ends),
        )

    def words_cut(self, token_ends: Ints) -> Indices:
        """Return the word (index into `words`) of each cut inside a word, ascending: int32 [n_cuts]."""
        cut = self.word_of[token_ends]
        return cut[cut > 0] - 1


class SplitWord(NamedTuple):
    """A word that a tokenizer splits somewhere in a text.

    Attributes:
        n: its occurrences, split or not.
        cuts: cuts inside all of them, which is the number of tokens that whole words would save.
        ids: the tokens of its most frequent split.
        place: start of an occurrence with this split, in bytes.
    """

    text: str
    n: int
    cuts: int
    ids: list[int]
    place: int


def worst_split(data: npt.NDArray[np.uint8], units: Units, ids: npt.ArrayLike, token_ends: Ints) -> list[SplitWord]:
    """Return the words that a tokenizer splits, the most cuts first.

    Args:
        data: concatenated UTF-8 of the documents, uint8 [n_bytes].
        units: the words of these documents.
        ids: tokens of the documents, [n_tokens].
        token_ends: end of each token in bytes.
    """
    raw, ids = data.tobytes(), np.asarray(ids)
    counts = Counter(raw[start:stop] for start, stop in units.words.tolist())
    split, n_cuts = np.unique(units.words_cut(token_ends), return_counts=True)
    first = np.searchsorted(token_ends, units.words[split, 0], side="right")
    cuts: Counter[bytes] = Counter()
    splits = defaultdict[bytes, Counter[tuple[int, ...]]](Counter)
    places: dict[tuple[bytes, tuple[int, ...]], int] = {}
    for (start, stop), n, at in zip(units.words[split].tolist(), n_cuts.tolist(), first.tolist(), strict=True):
        word = raw[start:stop]
        tokens = tuple(ids[at : at + n + 1].tolist())
        cuts[word] += n
        splits[word][tokens] += 1
        places.setdefault((word, tokens), start)
    found = []
    for word, n in cuts.most_common():
        [(tokens, _)] = splits[word].most_common(1)
        found.append(SplitWord(word.decode(), counts[word], n, list(tokens), places[word, tokens]))
    return found


def find_units(data: npt.NDArray[np.uint8], ends: Ints) -> Units:
    """Find the words, numbers and characters of documents.

    Args:
        data: concatenated UTF-8 of the documents, uint8 [n_bytes].
        ends: int64 [n_documents]: end of each document in bytes.
    """
    continuation = (data & 0xC0) == 0x80
    edges = np.append(np.flatnonzero(~continuation), len(data))
    classes = _class_of_code_points()[np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)]
    starts = np.append(0, ends)
    first = np.searchsorted(edges, starts[starts < len(data)])

    def after(which: Flags) -> Flags:
        """Characters that follow one of these in the same document."""
        follows = np.zeros_like(which)
        follows[1:] = which[:-1]
        follows[first] = False
        return follows

    letter, alone, mark = (classes == which for which in (_LETTER, _ALONE, _MARK))
    in_word = letter | mark
    apostrophe = (classes == _APOSTROPHE) & after(in_word)
    in_word |= apostrophe & np.append(after(apostrophe) & letter, False)[1:]
    words = _runs(in_word | alone, (in_word & after(in_word)) | (mark & after(alone)))
    # A run of marks alone is not a word.
    marks = [i for i in np.flatnonzero(mark[words[:, 0]]).tolist() if mark[slice(*words[i])].all()]
    words = edges[np.delete(words, marks, axis=0) if marks else words]
    parts = np.zeros(2 * len(words) + 1, np.int32)  # before, in and between the words
    parts[1::2] = np.arange(1, len(words) + 1)
    word_of = np.repeat(parts, np.diff(np.concatenate([[0], words.ravel(), [len(data) + 1]])))
    word_of[words[:, 0]] = 0

    digit = classes == _DIGIT
    numbers = _runs(digit, digit & after(digit))
    lengths = numbers[:, 1] - numbers[:, 0]
    is_long = lengths >= SHORTEST_NUMBER
    in_number = np.flatnonzero(digit)[np.repeat(is_long, lengths)]
    numbers, lengths = numbers[is_long], lengths[is_long]
    groups = in_number[(np.repeat(numbers[:, 1], lengths) - in_number) % 3 == 0]
    flags = np.append(continuation * np.uint8(_CHARACTER), np.uint8(0))
    flags[_inside(edges[numbers])] |= _NUMBER
    flags[edges[groups]] |= _GROUP
    starts = edges[numbers[:, 0]]
    counts = (_by_document(places, ends) for places in (words[:, 0], starts, edges[:-1]))
    return Units(
        words=words,
        word_of=word_of,
        counts=UnitCounts(*counts),
        ends=ends,
        numbers=starts,
        groups=(lengths - 1) // 3,
        flags=flags,
    )


@cache
def _class_of_code_points() -> npt.NDArray[np.uint8]:
    """uint8 [0x110000]: class of each code point, 0 for most."""
    codes = np.arange(0x110000, dtype="<u4")
    codes[0xD800:0xE000] = 0  # surrogates
    every = codes.tobytes().decode("utf-32-le")
    classes = np.zeros(len(codes), np.uint8)
    for which, pattern in _CLASSES.items():
        for match in regex.finditer(f"{pattern}+", every):
            classes[match.start() : match.end()] = which
    return classes


def _runs(member: Flags, continues: Flags) -> Ints:
    """Start and end of each run of members, int64 [n, 2]; those that continue do not start one."""
    starts = np.flatnonzero(member & ~continues)
    return np.stack([starts, np.flatnonzero(member & ~np.append(continues, False)[1:]) + 1], axis=1)


def _inside(spans: Ints) -> Ints:
    """All places inside spans, without their starts."""
    n = spans[:, 1] - spans[:, 0] - 1
    return np.repeat(spans[:, 0] + 1 - np.cumsum(n) + n, n) + np.arange(n.sum())


def _distinct(ascending: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    is_new = np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]
    distinct: npt.NDArray[_Integer] = ascending[is_new]
    return distinct


def _by_document(places: Ints, ends: Ints) -> Ints:
    """Number of ascending places in each document."""
    return np.diff(np.searchsorted(places, ends), prepend=0)
