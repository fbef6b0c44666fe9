r"""Translates our patterns to JavaScript regular expressions that split every text in the same way.

A browser has its own version of Unicode, its `\s` and `.` differ from ours, and it has neither possessive quantifiers
nor inline flags. So character classes are resolved by our own engine and written out as ranges. The result uses only
literal ranges, alternation, repetition and look-around, which mean the same in both engines. A pattern that needs more
is rejected with an error that names the unsupported feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tokenizer import _native

_SCALARS_END = 0x110000
_SURROGATES = range(0xD800, 0xE000)


class UntranslatableError(Exception):
    """A pattern uses a feature that JavaScript lacks; the message names it."""


def to_javascript(pattern: str) -> list[str]:
    r"""Return the regexes of a pattern, one per line of it, as sources for `new RegExp(source, "gu")`.

    Args:
        pattern: A regex, or a sequence of regexes, one per line. "" splits nothing and gives an empty list.

    Raises:
        UntranslatableError: If the pattern uses a feature that JavaScript lacks.

    >>> to_javascript(r"a++|\.")
    ['(?=(?<a1>(?:a)+))\\k<a1>|\\.']
    """
    return [_Translator(line).translate() for line in pattern.split("\n")] if pattern else []


@dataclass(frozen=True)
class _Part:
    """A translated piece of a regex, and whether it can match the empty string."""

    source: str
    nullable: bool


class _Translator:
    """Recursive descent over one regex in the syntax of Rust's engines."""

    def __init__(self, regex: str) -> None:
        self.regex, self.at, self.atomic_groups, self.behind = regex, 0, 0, 0

    def translate(self) -> str:
        part = self._alternation("")
        if self.at < len(self.regex):
            raise UntranslatableError(f"an unpaired {self.regex[self.at]!r}")
        return part.source

    def _peek(self, text: str) -> bool:
        return self.regex.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self.at += len(text)
            return True
        return False

    def _alternation(self, flags: str) -> _Part:
        branches = []
        while True:
            branch, flags = self._concatenation(flags)
            branches.append(branch)
            if not self._take("|"):
                return _Part("|".join(b.source for b in branches), any(b.nullable for b in branches))

    def _concatenation(self, flags: str) -> tuple[_Part, str]:
        """Parse parts up to `|` or `)`; also return the flags, which `(?i)` changes for the rest of the group."""
        parts = []
        while self.at < len(self.regex) and self.regex[self.at] not in "|)":
            if (changed := self._inline_flags()) is not None:
                flags = changed
                continue
            parts.append(self._quantified(flags))
        return _Part("".join(p.source for p in parts), all(p.nullable for p in parts)), flags

    def _inline_flags(self) -> str | None:
        end = self.regex.find(")", self.at)
        inside = self.regex[self.at + 2 : end]
        if not self._peek("(?") or end < 0 or not inside or not set(inside) <= set("imsxuUR-"):
            return None
        self.at = end + 1
        return _checked_flags(inside)

    def _quantified(self, flags: str) -> _Part:
        part = self._atom(flags)
        while self.at < len(self.regex) and (quantifier := self._quantifier()):
            if part.nullable and quantifier[-1] in "*+,":
                raise UntranslatableError("an unbounded repetition of a part that can be empty")
            least = "0" if quantifier in "*?" else "1" if quantifier == "+" else quantifier.strip("{}").split(",")[0]
            repeated = quantifier if quantifier[0] != "{" else "{" + quantifier.strip("{}") + "}"
            source = f"(?:{part.source}){repeated}"
            if self._take("?"):
                source += "?"
            elif self._take("+"):
                source = self._atomic(source)
            part = _Part(source, part.nullable or int(least) == 0)
        return part

    def _quantifier(self) -> str:
        """Parse a quantifier without its lazy or possessive mark; `{2,}` becomes `{2,`."""
        for mark in "*+?":
            if self._take(mark):
                return mark
        if not self._peek("{"):
            return ""
        end = self.regex.find("}", self.at)
        bounds = self.regex[self.at + 1 : end].split(",")
        if end < 0 or len(bounds) > 2 or not bounds[0].isdecimal() or not (bounds[-1] or "0").isdecimal():
            raise UntranslatableError("a brace that is not a repetition such as {1,3}")
        self.at = end + 1
        return "{" + ",".join(bounds)

    def _atomic(self, source: str) -> str:
        if self.behind:
            raise UntranslatableError("an atomic group or possessive quantifier inside a look-behind")
        self.atomic_groups += 1
        name = f"a{self.atomic_groups}"
        return f"(?=(?<{name}>{source}))\\k<{name}>"

    def _atom(self, flags: str) -> _Part:
        character = self.regex[self.at]
        if character == "(":
            return self._group(flags)
        if character == "[":
            return _Part(_class(self._class_text(), flags), nullable=False)
        if character == "\\":
            return self._escape(flags)
        self.at += 1
        if character in "^$":
            return _Part(character, nullable=True)
        if character == ".":
            return _Part(_class(".", flags), nullable=False)
        if character in "*+?{":
            raise UntranslatableError(f"a {character!r} without anything to repeat")
        return _Part(_class(character, flags) if flags else _literal(ord(character)), nullable=False)

    def _group(self, flags: str) -> _Part:
        self.at += 1
        form = next((f for f in ("?:", "?=", "?!", "?<=", "?<!", "?>") if self._take(f)), None)
        if form is None and self._peek("?"):
            form, flags = self._named_or_flagged(flags)
        behind = form in ("?<=", "?<!")
        self.behind += behind
        part = self._alternation(flags)
        self.behind -= behind
        if not self._take(")"):
            raise UntranslatableError("an unpaired '('")
        if form in ("?=", "?!", "?<=", "?<!"):
            return _Part(f"({form}{part.source})", nullable=True)
        if form == "?>":
            return _Part(f"(?:{self._atomic(part.source)})", part.nullable)
        return _Part(f"(?:{part.source})", part.nullable)

    def _named_or_flagged(self, flags: str) -> tuple[str, str]:
        """Parse what follows `(?`: an unused group name, or flags for the group."""
        for opening in ("?P<", "?<"):
            if self._take(opening):
                self.at = self.regex.index(">", self.at) + 1
                return "?:", flags
        colon = self.regex.find(":", self.at)
        inside = self.regex[self.at + 1 : colon]
        if colon < 0 or not inside or not set(inside) <= set("imsxuUR-"):
            raise UntranslatableError(f"the group ({self.regex[self.at : self.at + 3]}…)")
        self.at = colon + 1
        return "?:", _checked_flags(inside)

    def _class_text(self) -> str:
        """Return the text of a class with its brackets; classes can nest, and a leading `]` is a member."""
        start, depth = self.at, 0
        while self.at < len(self.regex):
            character = self.regex[self.at]
            self.at += 2 if character == "\\" else 1
            if character == "[":
                depth += 1
                self._take("^")
                self._take("]")
            elif character == "]":
                depth -= 1
                if depth == 0:
                    return self.regex[start : self.at]
        raise UntranslatableError("a class without its ']'")

    def _escape(self, flags: str) -> _Part:
        start = self.at
        character = self.regex[start + 1 : start + 2]
        self.at += 2
        if character in ("A", "z"):
            return _Part("^" if character == "A" else "$", nullable=True)
        if character in ("b", "B") and not self._peek("{"):
            word = _class(r"\w", "")
            at_edge = f"(?<={word})(?!{word})|(?<!{word})(?={word})"
            inside = f"(?<={word})(?={word})|(?<!{word})(?!{word})"
            return _Part(f"(?:{at_edge if character == 'b' else inside})", nullable=True)
        if character in ("p", "P", "x", "u", "U") and self._peek("{"):
            self.at = self.regex.index("}", self.at) + 1
        elif character in ("p", "P"):
            self.at += 1
        elif character in ("x", "u", "U"):
            self.at += {"x": 2, "u": 4, "U": 8}[character]
        elif character.isalnum() and character not in "dDsSwWnrtfvae":
            raise UntranslatableError(f"\\{character}")
        return _Part(_class(self.regex[start : self.at], flags), nullable=False)


def _checked_flags(text: str) -> str:
    """Return which of the flags `i` and `s` are set. They change character classes; `u` is ignored, others fail."""
    on, _, _ = text.partition("-")
    if other := set(on) - set("isu"):
        raise UntranslatableError(f"the flag (?{min(other)})")
    return "".join(sorted(set(on) - {"u"}))


def _class(item: str, flags: str) -> str:
    """Return a JavaScript class for a regex that matches one character in our engine."""
    ranges = members(f"(?{flags}:{item})")
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _literal(ranges[0][0])
    if not ranges:
        return "(?!)"
    inside = "".join(_literal(a) if a == b else f"{_literal(a)}-{_literal(b)}" for a, b in ranges)
    return f"[{inside}]"


def _literal(code: int) -> str:
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    if character in "^$\\.*+?()[]{}|/":
        return "\\" + character
    return f"\\u{{{code:x}}}"


@cache
def members(item: str) -> list[tuple[int, int]]:
    r"""Return the characters that a single-character regex matches in our engine, as inclusive ranges.

    >>> members("(?i:s)")
    [(83, 83), (115, 115), (383, 383)]
    """
    scalars = _scalars()
    pieces = _native.split(scalars, f"(?:{item})+")
    (matched,) = _native.eligible([pieces[0][0].encode()], item)
    found = []
    for piece in pieces:  # runs of members and non-members alternate
        if matched:
            start, end = ord(piece[0]), ord(piece[-1])
            if start < _SURROGATES.start and end >= _SURROGATES.stop:
                found += [(start, _SURROGATES.start - 1), (_SURROGATES.stop, end)]
            else:
                found.append((start, end))
        matched = not matched
    return found


@cache
def _scalars() -> str:
    codes = np.delete(np.arange(_SCALARS_END, dtype="<u4"), _SURROGATES)
    return codes.tobytes().decode("utf-32-le")
