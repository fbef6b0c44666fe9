"""The writing system (Unicode script) of a document."""

from __future__ import annotations

import numpy as np
import regex

# Unicode's recommended scripts (UAX #31, table 5), without Common and Inherited, which belong to all; kana together.
# fmt: off
SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Han", "Kana", "Hangul", "Arabic", "Hebrew", "Devanagari", "Bengali", "Armenian",
    "Bopomofo", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi", "Kannada", "Khmer", "Lao", "Malayalam", "Myanmar",
    "Oriya", "Sinhala", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan",
)
# fmt: on
OTHER, NONE, JAPANESE = "other", "no letters", "Japanese"
_PATTERNS = [
    (name, regex.compile(r"[\p{Script=Hiragana}\p{Script=Katakana}]" if name == "Kana" else rf"\p{{Script={name}}}"))
    for name in SCRIPTS
]
_LETTER = regex.compile(r"\p{L}")
_COMMON = regex.compile(r"[\p{Script=Common}\p{Script=Inherited}]")
_NAMES = ("", *SCRIPTS, OTHER)
"""Script as whose letter a character counts, or none."""
_UNSEEN = 255
# Index into `_NAMES` by code point, filled when a character is first seen.
_table = np.full(0x110000, _UNSEEN, np.uint8)
# Modern Japanese prose is about half kana; Chinese has next to none.
_KANA_SHARE = 0.1


def script(text: str) -> str:
    """The script of most letters of a text; `Japanese` for Han and kana letters if at least a tenth of them are kana.

    The whole document gets one script, so its bytes are the same for every tokenizer. Splitting tokens by script would
    not be, since a token may contain letters of two scripts.

    >>> script("Привет, world!"), script("日本語のテキスト"), script("中文"), script("1 + 1 = 2")
    ('Cyrillic', 'Japanese', 'Han', 'no letters')
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    scripts = _table[codes]
    if (unseen := scripts == _UNSEEN).any():
        for code in np.unique(codes[unseen]).tolist():
            _table[code] = _NAMES.index(_script(chr(code)))
        scripts = _table[codes]
    numbers = np.bincount(scripts, minlength=len(_NAMES)).tolist()
    counts = {name: n for name, n in zip(_NAMES[1:], numbers[1:], strict=True) if n}
    if not counts:
        return NONE
    kana, han = counts.get("Kana", 0), counts.get("Han", 0)
    if kana > 0 and kana >= _KANA_SHARE * (kana + han):
        counts |= {JAPANESE: kana + han, "Kana": 0, "Han": 0}
    return max(counts, key=lambda name: (counts[name], name))


def _script(character: str) -> str:
    """Script of a letter; empty for other characters and for letters of all scripts."""
    if not _LETTER.match(character):
        return ""
    for name, pattern in _PATTERNS:
        if pattern.match(character):
            return name
    return "" if _COMMON.match(character) else OTHER
