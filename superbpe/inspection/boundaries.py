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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

SHORTEST_NUMBER = 4
"""Digits of the shortest number."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LETTER, _ALONE, _MARK, _APOSTROPHE, _DIGIT = range(1, 6)
_CLASSES = {
    _LETTER: r"\p{L}",
    _ALONE: r"(?V1)[[\p{Line_Break=SA}\p{Han}\p{Hiragana}\p{Katakana}]&&\p{L}]",
    _MARK: "[\\p{M}\u200c\u200d]",
    _APOSTROPHE: "['\u2019]",
    _DIGIT: r"\p{Nd}",
}
_WORD, _NUMBER, _GROUP, _CHARACTER = 1, 2, 4, 8


class Counts(NamedTuple):
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
        counts: words, numbers and characters of each document.
        ends: int64 [n_documents]: end of each document in bytes.
        numbers: int64 [n_numbers]: start of each number in bytes.
        groups: int64 [n_numbers]: number of cuts between the groups of three of each number.
        flags: uint8 [n_bytes + 1]: what a cut before each byte cuts.
    """

    words: Ints
    counts: Counts
    ends: Ints
    numbers: Ints
    groups: Ints
    flags: npt.NDArray[np.uint8]

    def cut(self, token_ends: Ints) -> Counts:
        """Count what tokens cut.

        Args:
            token_ends: end of each token in bytes.
        """
        flags = self.flags[token_ends]
        at = np.unique(token_ends[(flags & _NUMBER) > 0])
        number, is_group = np.searchsorted(self.numbers, at, side="right") - 1, (self.flags[at] & _GROUP) > 0
        n = len(self.numbers)
        elsewhere = np.bincount(number[~is_group], minlength=n)
        grouped = (np.bincount(number[is_group], minlength=n) == self.groups) & (elsewhere == 0)
        character = token_ends[(flags & _CHARACTER) > 0]
        for _ in range(3):  # back to the first of at most four bytes
            character = character - ((self.flags[character] & _CHARACTER) > 0)
        return Counts(
            _by_document(self.words[np.unique(self.words_cut(token_ends)), 0], self.ends),
            _by_document(self.numbers[grouped], self.ends),
            _by_document(np.unique(character), self.ends),
        )

    def words_cut(self, token_ends: Ints) -> Ints:
        """Return the word (index into `words`) of each cut inside a word, ascending: int64 [n_cuts]."""
        at = np.unique(token_ends[(self.flags[token_ends] & _WORD) > 0])
        return np.searchsorted(self.words[:, 0], at, side="right") - 1


class SplitWord(NamedTuple):
    """A word that a tokenizer splits somewhere in a text.

    Attributes:
        text: the word.
        count: its occurrences, split or not.
        cuts: cuts inside all of them, which is the number of tokens that whole words would save.
        ids: the tokens of its most frequent split.
        place: start of an occurrence with this split, in bytes.
    """

    text: str
    count: int
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
    raw, spans, ids = data.tobytes(), units.words, np.asarray(ids)
    counts = Counter(raw[start:stop] for start, stop in spans.tolist())
    split, n_cuts = np.unique(units.words_cut(token_ends), return_counts=True)
    first = np.searchsorted(token_ends, spans[split, 0], side="right")
    cuts: Counter[bytes] = Counter()
    splits = defaultdict[bytes, Counter[tuple[int, ...]]](Counter)
    places: dict[tuple[bytes, tuple[int, ...]], int] = {}
    for (start, stop), n, at in zip(spans[split].tolist(), n_cuts.tolist(), first.tolist(), strict=True):
        word, tokens = raw[start:stop], tuple(ids[at : at + n + 1].tolist())
        cuts[word] += n
        splits[word][tokens] += 1
        places.setdefault((word, tokens), start)
    return [
        SplitWord(
            word.decode(), counts[word], n, list(tokens := splits[word].most_common(1)[0][0]), places[word, tokens]
        )
        for word, n in cuts.most_common()
    ]


def find_units(data: npt.NDArray[np.uint8], ends: Ints) -> Units:
    """Find the words, numbers and characters of documents.

    Args:
        data: concatenated UTF-8 of the documents, uint8 [n_bytes].
        ends: int64 [n_documents]: end of each document in bytes.
    """
    edges = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
    classes = _class_of_code_points()[np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)]
    n = len(classes)
    first = np.zeros(n + 1, np.bool_)
    first[np.searchsorted(edges, np.append(0, ends))] = True

    def after(which: Flags) -> Flags:
        """Characters that follow one of these in the same document."""
        return np.append(False, which)[:-1] & ~first[:-1]

    letter, alone, mark = (classes == which for which in (_LETTER, _ALONE, _MARK))
    in_word = letter | mark
    apostrophe = (classes == _APOSTROPHE) & after(in_word)
    in_word |= apostrophe & np.append(after(apostrophe) & letter, False)[1:]
    start, stop = _runs(in_word | alone, (in_word & after(in_word)) | (mark & after(alone)))
    n_letters = np.append(0, np.cumsum(letter | alone))
    has_letter = n_letters[stop] > n_letters[start]
    words = np.stack([start, stop], axis=1)[has_letter]

    digit = classes == _DIGIT
    start, stop = _runs(digit, digit & after(digit))
    numbers = np.stack([start, stop], axis=1)[stop - start >= SHORTEST_NUMBER]
    lengths = numbers[:, 1] - numbers[:, 0]

    inside = _WORD * _covered(words, n) + _NUMBER * _covered(numbers, n)
    before = inside.copy()
    before[words[:, 0]] = 0
    before[numbers[:, 0]] = 0
    in_number = np.flatnonzero(before & _NUMBER)
    digits_left = np.repeat(numbers[:, 1], lengths - 1) - in_number
    before[in_number[digits_left % 3 == 0]] |= _GROUP
    widths = np.diff(edges)
    flags = np.append(np.repeat(inside | _CHARACTER, widths), np.uint8(0))
    flags[edges[:-1]] = before
    counts = (_by_document(places, ends) for places in (edges[words[:, 0]], edges[numbers[:, 0]], edges[:-1]))
    return Units(edges[words], Counts(*counts), ends, edges[numbers[:, 0]], (lengths - 1) // 3, flags)


@cache
def _class_of_code_points() -> npt.NDArray[np.uint8]:
    """uint8 [0x110000]: class of each code point, 0 for most."""
    every = "".join(chr(i) for i in range(0x110000))
    classes = np.zeros(len(every), np.uint8)
    for which, pattern in _CLASSES.items():
        for match in regex.finditer(f"{pattern}+", every):
            classes[match.start() : match.end()] = which
    return classes


def _runs(member: Flags, continues: Flags) -> tuple[Ints, Ints]:
    """Start and end of each run of members; those that continue do not start one."""
    return np.flatnonzero(member & ~continues), np.flatnonzero(member & ~np.append(continues, False)[1:]) + 1


def _covered(spans: Ints, n: int) -> npt.NDArray[np.uint8]:
    """uint8 [n]: 1 inside the spans, which do not overlap."""
    change = np.zeros(n + 1, np.int8)
    change[spans[:, 0]] += 1
    change[spans[:, 1]] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).astype(np.uint8)


def _by_document(places: Ints, ends: Ints) -> Ints:
    """Number of ascending places in each document."""
    return np.diff(np.searchsorted(places, ends), prepend=0)
