"""The writing system (Unicode script) of a document."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

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
# Modern Japanese prose is about half kana; Chinese has next to none.
_KANA_SHARE = 0.1


def script(text: str) -> str:
    """The script of most letters of a text; `Japanese` for Han and kana letters if at least a tenth of them are kana.

    The whole document gets one script, so its bytes are the same for every tokenizer. Splitting tokens by script would
    not be, since a token may contain letters of two scripts.

    >>> script("Привет, world!"), script("日本語のテキスト"), script("中文"), script("1 + 1 = 2")
    ('Cyrillic', 'Japanese', 'Han', 'no letters')
    """
    counts: Counter[str] = Counter()
    for character, n in Counter(text).items():
        counts[_script(character)] += n
    counts.pop("", None)
    if not counts:
        return NONE
    kana, han = counts["Kana"], counts["Han"]
    if kana > 0 and kana >= _KANA_SHARE * (kana + han):
        del counts["Kana"], counts["Han"]
        counts[JAPANESE] = kana + han
    return max(counts, key=lambda name: (counts[name], name))


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    """Script of a letter; empty for other characters and for letters of all scripts."""
    if not _LETTER.match(character):
        return ""
    for name, pattern in _PATTERNS:
        if pattern.match(character):
            return name
    return "" if regex.match(r"[\p{Script=Common}\p{Script=Inherited}]", character) else OTHER
