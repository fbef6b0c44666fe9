r"""Regexes that HF's engine (Oniguruma with Ruby's syntax) interprets as ours does: an allow-list of syntax.

Both engines compile more than this list. It excludes syntax that one of them interprets differently or not at all:
`^` and `$`, which match at any line end in Oniguruma; `\w`, `\b` and `\h`, which match other characters; `{n}?`, which
is optional in Oniguruma, and `{n,m}+`, which is a repetition; two quantifiers in a row; names in `[[:...:]]`; `--`,
`~~` and `&&` in classes; and, in `(?i:...)`, anything that folds to several characters, such as `ss` and `ß`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizer.patterns import Pattern

CATEGORIES = (
    *("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No"),
    *("P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf"),
)
SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Ethiopic", "Devanagari"),
    *("Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Tibetan"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Mongolian"),
)
_SET = re.compile(rf"\\(?:[sSdD]|[pP]\{{(?:{'|'.join((*CATEGORIES, *SCRIPTS))})\}})")
_CHARACTER = re.compile(r"\\(?:[rntf]|u[0-9A-Fa-f]{4}|[!-/:;=?@\[-`{-~])|[^\\]")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{([0-9]{1,3})(?:(,)([0-9]{1,3})?)?\})([?+]?)")
_GROUP = re.compile(r"\((?:\?(?:[:=!>]|<[=!]))?(?!\?)")
_FOLDED_PART = r"(?:['’ ]?\[[A-Za-z]+\]|['’ A-Za-z]*)"
_FOLDED = re.compile(rf"\(\?i:({_FOLDED_PART}(?:\|{_FOLDED_PART})*)\)")
_LIGATURES = re.compile("f[fil]|s[st]", re.IGNORECASE)  # the pairs of ASCII letters that fold to one character
_OPERATOR = re.compile("&&|~~|--")
_DEEPEST = 20


def unportable_part(pattern: Pattern) -> str | None:
    """The part of a pattern that HF's engine may interpret differently from ours; None if there is none."""
    for regex in pattern.regex.split("\n"):
        try:
            _Reader(regex).check()
        except _UnportableError as found:
            return repr(str(found))
    return None


class _UnportableError(Exception):
    """Names the part of a regex that is not on the allow-list."""


class _Reader:
    """Parses a regex from left to right; all methods raise on syntax that is not on the allow-list."""

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self.at = 0
        self.depth = 0
        self.behind = False

    def check(self) -> None:
        self._alternatives()
        if self.at < len(self.regex):
            raise self._refusal(1)

    def _refusal(self, length: int) -> _UnportableError:
        return _UnportableError(self.regex[self.at : self.at + length])

    def _peek(self) -> str:
        return self.regex[self.at : self.at + 1]

    def _take(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self.regex, self.at)
        if found:
            self.at = found.end()
        return found

    def _alternatives(self) -> bool:
        """Read up to a closing parenthesis or the end; return whether the empty string may match."""
        empty = self._sequence()
        while self._peek() == "|":
            self.at += 1
            empty |= self._sequence()
        return empty

    def _sequence(self) -> bool:
        empty = True
        while self._peek() not in ("", "|", ")"):
            start = self.at
            may_be_empty = self._atom()
            quantifier = self._take(_QUANTIFIER)
            if quantifier:
                # Engines differ in how they leave a loop over empty matches.
                if may_be_empty or self.behind or not _is_shared(quantifier) or self._peek() in tuple("*+?{"):
                    raise _UnportableError(self.regex[start : self.at + 1])
                may_be_empty = quantifier[0][0] in "*?" or (quantifier[1] is not None and int(quantifier[1]) == 0)
            empty &= may_be_empty
        return empty

    def _atom(self) -> bool:
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            self._class()
        elif character in tuple("^$*+?{}]") or not (self._take(_SET) or self._take(_CHARACTER)):
            raise self._refusal(2 if character == "\\" else 1)
        return False

    def _group(self) -> bool:
        if folded := _FOLDED.match(self.regex, self.at):
            if self.behind or _LIGATURES.search(re.sub(r"\[.*?\]", "", folded[1])):
                raise _UnportableError(folded[0])
            self.at = folded.end()
            return re.search(r"(^|\|)(\||$)", folded[1]) is not None
        opening = self._take(_GROUP)
        if not opening or self.behind or self.depth == _DEEPEST:
            self.at = opening.start() if opening else self.at
            raise self._refusal(4)
        self.depth += 1
        self.behind = opening[0] in ("(?<=", "(?<!")
        empty = self._alternatives()
        if self._peek() != ")":
            raise self._refusal(1)
        self.at += 1
        self.depth -= 1
        self.behind = False
        return empty or opening[0] in ("(?=", "(?!", "(?<=", "(?<!")

    def _class(self) -> None:
        start = self.at
        self.at += 2 if self.regex[self.at + 1 : self.at + 2] == "^" else 1
        first = self.at
        while self._peek() != "]" or self.at == first:
            rest = self.regex[self.at : self.at + 2]
            if rest in ("", "[:") or self._peek() == "]":
                raise _UnportableError(self.regex[start : self.at + 2])
            if rest[0] == "[":
                if self.depth == _DEEPEST:
                    raise self._refusal(1)
                self.depth += 1
                self._class()
                self.depth -= 1
            elif not self._take(_SET):
                self._range(first)
        self.at += 1
        if operator := _OPERATOR.search(self.regex, start, self.at):
            raise _UnportableError(operator[0])

    def _range(self, first: int) -> None:
        """Read a character or a range of a class; a literal hyphen is allowed only at the start or end."""
        start = self.at
        ends = start == first or self.regex[start + 1 : start + 2] == "]"
        if (self._peek() == "-" and not ends) or not self._take(_CHARACTER):
            raise self._refusal(2)
        if self._peek() == "-" and self.regex[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            if self._peek() in ("[", "-") or _SET.match(self.regex, self.at) or not self._take(_CHARACTER):
                raise _UnportableError(self.regex[start : self.at + 2])


def _is_shared(quantifier: re.Match[str]) -> bool:
    least, comma, most, suffix = quantifier.groups()
    if least is None:
        return True
    if not comma or least == most:
        return int(least) > 0 and not suffix
    return suffix != "+" and (most is None or int(least) < int(most))
