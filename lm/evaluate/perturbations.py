"""Changes of a text that leave it readable but change its tokens: typing errors, case, spaces, line breaks and others.

Every perturbation is a pure function from text to text. It may leave a text as it is. Random ones draw from a generator
that is seeded with a seed, their name and the text, so that a document gets the same errors in every run.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE = 0.1
"""Default share of the words that a random perturbation affects."""
WRAP_WIDTH = 72
ZERO_WIDTH_SPACE = "\u200b"

_LETTERS = r"[^\W\d_]"
_WORD = re.compile(rf"{_LETTERS}+")
_LONG_WORD = re.compile(rf"{_LETTERS}{{4,}}")
_FIRST_LETTER = re.compile(rf"(?<![\w'’]){_LETTERS}")
_GAP = re.compile(r"(?<=\S) (?=\S)")
_GAP_IN_TEXT = re.compile(rf"(?<={_LETTERS}) (?={_LETTERS})")
_LINE_BREAK = re.compile(r"(?<=\S)\r?\n(?=\S)")
_WORD_OR_NUMBER = re.compile(r"[^\W_]+")
_COMBINING = re.compile("[\u0300-\u036f]+")
_LARGE_NUMBER = re.compile(r"(?<![\w.,])[1-9][0-9]{4,}(?!\w|,[0-9])")
_GROUPED_NUMBER = re.compile(r"(?<![\w.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!\w|,[0-9])")
_INDENTED = re.compile(r"^([ \t]+)(?=\S)", re.MULTILINE)
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_NEIGHBOURS = {
    key: "".join(row[max(place - 1, 0) : place] + row[place + 1 : place + 2])
    for row in _KEYS
    for place, key in enumerate(row)
}

_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F) if chr(code).isalnum()}
_MATHEMATICAL = {
    **{ord("A") + i: 0x1D400 + i for i in range(26)},
    **{ord("a") + i: 0x1D41A + i for i in range(26)},
    **{ord("0") + i: 0x1D7CE + i for i in range(10)},
}


@dataclass(frozen=True)
class Perturbation:
    """A perturbation of the registry.

    Attributes:
        name: Its name on the command line.
        title: Its name in tables and charts.
        function: The function; a random one takes `share` and `seed` too.
        random: Whether it draws the words that it affects.
    """

    name: str
    title: str
    function: Callable[..., str]
    random: bool = False

    def __call__(self, text: str, *, share: float = SHARE, seed: int = 0) -> str:
        """Perturb a text.

        Args:
            text: The text.
            share: Probability with which a random perturbation affects a word; others ignore it.
            seed: Seed of a random perturbation; others ignore it.
        """
        return self.function(text, share=share, seed=seed) if self.random else self.function(text)


def choose(names: Sequence[str] | None) -> list[Perturbation]:
    """Return the perturbations of these names; all of them for None.

    Raises:
        UserError: If a name is unknown or occurs twice.
    """
    for i, name in enumerate(names or ()):
        if name not in PERTURBATIONS:
            raise UserError(f"unknown perturbation {name!r}; known: {', '.join(PERTURBATIONS)}")
        if name in (names or ())[:i]:
            raise UserError(f"the perturbation {name!r} is named twice; name it once")
    return [PERTURBATIONS[name] for name in (PERTURBATIONS if names is None else names)]


def typing_errors(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Put one typing error into some of the words: swap two letters, drop or double one, or hit the key beside it.

    Models text typed in a hurry. The first letter, words of fewer than four letters, digits, punctuation and white
    space stay as they are.
    """
    draw = _generator("typing_errors", text, seed)

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


def upper_case(text: str) -> str:
    """Write all letters in upper case, as in headings and shouting. Characters without case stay as they are."""
    return text.upper()


def lower_case(text: str) -> str:
    """Write all letters in lower case, as in chats and search queries. Characters without case stay as they are."""
    return text.lower()


def title_case(text: str) -> str:
    """Write the first letter of every word in upper case, as in titles. All other characters stay as they are."""
    return _FIRST_LETTER.sub(lambda letter: letter[0].title(), text)


def without_diacritics(text: str) -> str:
    """Drop the accents of letters, as on a keyboard that lacks them: "café" becomes "cafe".

    Removes the combining marks U+0300 to U+036F of the decomposed text and composes the rest (NFC). The vowel signs of
    Indic, Arabic and Hebrew text stay.
    """
    return unicodedata.normalize("NFC", _COMBINING.sub("", unicodedata.normalize("NFD", text)))


def decomposed(text: str) -> str:
    """Decompose characters (NFD), as some file systems and PDF readers do. The text looks the same."""
    return unicodedata.normalize("NFD", text)


def full_width(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Write some of the words in full-width letters and digits, as East Asian input methods do.

    Only ASCII letters and digits change, each to a character of three bytes.
    """
    return _restyled("full_width", text, _FULL_WIDTH, share, seed)


def mathematical(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Write some of the words in bold mathematical letters and digits, as posts do that imitate bold type.

    Only ASCII letters and digits change, each to a character of four bytes.
    """
    return _restyled("mathematical", text, _MATHEMATICAL, share, seed)


def zero_width(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Put an invisible zero-width space (U+200B) into some of the words, as copying from web pages does.

    Words of one letter and all visible characters stay as they are.
    """
    draw = _generator("zero_width", text, seed)

    def insert(word: re.Match[str]) -> str:
        letters = word[0]
        if len(letters) < 2 or draw.random() >= share:
            return letters
        place = 1 + _below(len(letters) - 1, draw)
        return letters[:place] + ZERO_WIDTH_SPACE + letters[place:]

    return _WORD.sub(insert, text)


def extra_spaces(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Double some of the single spaces between words. Indentation and line breaks stay as they are."""
    draw = _generator("extra_spaces", text, seed)
    return _GAP.sub(lambda _: "  " if draw.random() < share else " ", text)


def missing_spaces(text: str, *, share: float = SHARE, seed: int = 0) -> str:
    """Drop some of the single spaces between two letters, as typing and bad text extraction do."""
    draw = _generator("missing_spaces", text, seed)
    return _GAP_IN_TEXT.sub(lambda _: "" if draw.random() < share else " ", text)


def wrapped(text: str) -> str:
    """Break lines at spaces so that they have at most 72 characters, as in e-mails and terminals.

    Line breaks replace single spaces, so the size in bytes stays. Lines that begin with white space stay as they are,
    and so do words of more than 72 characters.
    """
    return "\n".join(map(_wrap, text.split("\n")))


def unwrapped(text: str) -> str:
    """Join the lines of a paragraph with spaces. Blank lines and line breaks before an indented line stay."""
    return _LINE_BREAK.sub(" ", text)


def grouped_digits(text: str) -> str:
    """Separate groups of three digits by commas in integers of five digits or more: 1000000 becomes 1,000,000.

    Numbers with a leading zero, within words, or after a point or a comma stay as they are.
    """
    return _LARGE_NUMBER.sub(lambda number: _grouped(number[0]), text)


def ungrouped_digits(text: str) -> str:
    """Remove the commas between groups of three digits: 1,000,000 becomes 1000000. All other numbers stay."""
    return _GROUPED_NUMBER.sub(lambda number: number[0].replace(",", ""), text)


def tab_indentation(text: str) -> str:
    """Indent every level by a tab; see `two_space_indentation`."""
    return _reindented(text, "\t")


def two_space_indentation(text: str) -> str:
    """Indent every level by two spaces, as formatters of code do.

    A level is the greatest common divisor of all indentations: one tab, or 2, 4 or 8 spaces. A text without
    indentation, with another step, or with both tabs and spaces stays as it is.
    """
    return _reindented(text, "  ")


def four_space_indentation(text: str) -> str:
    """Indent every level by four spaces; see `two_space_indentation`."""
    return _reindented(text, "    ")


PERTURBATIONS = {
    each.name: each
    for each in (
        Perturbation("typing-errors", "typing errors", typing_errors, random=True),
        Perturbation("upper-case", "UPPER CASE", upper_case),
        Perturbation("lower-case", "lower case", lower_case),
        Perturbation("title-case", "Title Case", title_case),
        Perturbation("without-diacritics", "accents dropped", without_diacritics),
        Perturbation("decomposed", "accents decomposed (NFD)", decomposed),
        Perturbation("full-width", "full-width letters", full_width, random=True),
        Perturbation("mathematical", "mathematical letters", mathematical, random=True),
        Perturbation("zero-width", "zero-width spaces in words", zero_width, random=True),
        Perturbation("extra-spaces", "extra spaces", extra_spaces, random=True),
        Perturbation("missing-spaces", "missing spaces", missing_spaces, random=True),
        Perturbation("wrapped", "lines wrapped at 72 characters", wrapped),
        Perturbation("unwrapped", "lines of a paragraph joined", unwrapped),
        Perturbation("grouped-digits", "digits grouped (1,000,000)", grouped_digits),
        Perturbation("ungrouped-digits", "digits not grouped (1000000)", ungrouped_digits),
        Perturbation("tab-indentation", "indentation by tabs", tab_indentation),
        Perturbation("two-space-indentation", "indentation by 2 spaces", two_space_indentation),
        Perturbation("four-space-indentation", "indentation by 4 spaces", four_space_indentation),
    )
}
"""All perturbations by name."""


def _generator(name: str, text: str, seed: int) -> random.Random:
    """A generator for one perturbation of one document."""
    digest = hashlib.sha256(f"{seed} {name} {text}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "little"))


def _below(n: int, draw: random.Random) -> int:
    """Draw an integer below n; `random()` gives the same numbers in every version of Python."""
    return int(draw.random() * n)


def _restyled(name: str, text: str, letters: dict[int, int], share: float, seed: int) -> str:
    draw = _generator(name, text, seed)
    return _WORD_OR_NUMBER.sub(lambda word: word[0].translate(letters) if draw.random() < share else word[0], text)


def _grouped(digits: str) -> str:
    first = len(digits) % 3 or 3  # not by int(), which rejects long numbers
    return ",".join([digits[:first], *(digits[i : i + 3] for i in range(first, len(digits), 3))])


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


def _reindented(text: str, unit: str) -> str:
    indents = set(_INDENTED.findall(text))
    if len(kinds := set("".join(indents))) != 1:
        return text
    step = gcd(*map(len, indents))
    if kinds == {" "} and step not in (2, 4, 8):
        return text
    return _INDENTED.sub(lambda indent: unit * (len(indent[1]) // step), text)
