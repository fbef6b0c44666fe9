"""Changes of a text that leave it readable but change its tokens: typing errors, case, accents, spaces, line breaks.

Every perturbation is a pure function from text to text. It may leave a text as it is. Random ones draw from a generator
that is seeded with their name and the text, so that a document gets the same errors in every run.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Mapping

SHARE = 0.1
"""Default share of the words that a random perturbation affects."""
WRAP_WIDTH = 72

_LETTERS = r"[^\W\d_]"
_LONG_WORD = re.compile(rf"{_LETTERS}{{4,}}")
_FIRST_LETTER = re.compile(rf"(?<![\w'’]){_LETTERS}")
_GAP = re.compile(r"(?<=\S) (?=\S)")
_GAP_IN_TEXT = re.compile(rf"(?<={_LETTERS}) (?={_LETTERS})")
_NEIGHBOURS = {
    key: "".join(row[max(place - 1, 0) : place] + row[place + 1 : place + 2])
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for place, key in enumerate(row)
}


def typing_errors(text: str, *, share: float = SHARE) -> str:
    """Put one typing error into some of the words: swap two letters, drop or double one, or hit the key beside it.

    Models text typed in a hurry. The first letter, words of fewer than four letters, digits, punctuation and white
    space stay as they are.
    """
    draw = _generator("typing_errors", text)

    def mistype(word: re.Match[str]) -> str:
        letters = word[0]
        if draw.random() >= share:
            return letters
        place = 1 + _below(len(letters) - 2, draw)
        before, letter, following, after = letters[:place], letters[place], letters[place + 1], letters[place + 2 :]
        kind = _below(4, draw)
        if kind == 0 and letter != following:
            return before + following + letter + after
        if kind == 1:
            return before + following + after
        beside = _NEIGHBOURS.get(letter.lower(), "")
        if kind == 2 and beside:
            wrong = beside[_below(len(beside), draw)]
            return before + (wrong.upper() if letter.isupper() else wrong) + following + after
        return before + letter + letter + following + after

    return _LONG_WORD.sub(mistype, text)


def title_case(text: str) -> str:
    """Write the first letter of every word in upper case, as in titles. All other characters stay as they are."""
    return _FIRST_LETTER.sub(lambda letter: letter[0].title(), text)


def decomposed(text: str) -> str:
    """Decompose characters (NFD), as some file systems and PDF readers do. The text looks the same."""
    return unicodedata.normalize("NFD", text)


def extra_spaces(text: str, *, share: float = SHARE) -> str:
    """Double some of the single spaces between words. Indentation and line breaks stay as they are."""
    draw = _generator("extra_spaces", text)
    return _GAP.sub(lambda _: "  " if draw.random() < share else " ", text)


def missing_spaces(text: str, *, share: float = SHARE) -> str:
    """Drop some of the single spaces between two letters, as typing and bad text extraction do."""
    draw = _generator("missing_spaces", text)
    return _GAP_IN_TEXT.sub(lambda _: "" if draw.random() < share else " ", text)


def wrapped(text: str) -> str:
    """Break lines at spaces so that they have at most 72 characters, as in e-mails and terminals.

    Line breaks replace single spaces, so the size in bytes stays. Lines that begin with white space stay as they are,
    and so do words of more than 72 characters.
    """
    return "\n".join(map(_wrap, text.split("\n")))


PERTURBATIONS: Mapping[str, Callable[[str], str]] = {
    "typing-errors": typing_errors,
    "upper-case": str.upper,
    "lower-case": str.lower,
    "title-case": title_case,
    "decomposed": decomposed,
    "extra-spaces": extra_spaces,
    "missing-spaces": missing_spaces,
    "wrapped": wrapped,
}


def _generator(name: str, text: str) -> random.Random:
    """A generator for one perturbation of one document."""
    digest = hashlib.sha256(f"0 {name} {text}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))


def _below(n: int, draw: random.Random) -> int:
    """Draw an integer below n; `random()` gives the same numbers in every version of Python."""
    return int(draw.random() * n)


def _wrap(line: str) -> str:
    if len(line) <= WRAP_WIDTH or line[0].isspace():
        return line
    lines, start, last = [], 0, None
    for gap in [match.start() for match in _GAP.finditer(line)] + [len(line)]:
        if gap - start > WRAP_WIDTH and last is not None:
            lines.append(line[start:last])
            start = last + 1
        last = gap
    return "\n".join([*lines, line[start:]])
