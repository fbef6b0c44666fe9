"""The named pretokenization patterns.

Their regexes live beside their scanners in the native core (`native/src/patterns/named.rs`); any other regex runs
through an engine with look-around. A pattern cuts text into its matches and the gaps between them. Several regexes,
one per line, are a sequence: each cuts the pieces of the one before, as HF's `Sequence` of splits does.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from tokenizer import _native
from tokenizer.errors import UserError, quoted


@dataclass(frozen=True)
class Pattern:
    """A pattern: its name ("custom" where it has none) and its regex, or regexes, one per line; "" cuts nothing."""

    name: str
    regex: str


_BY_NAME = {name: Pattern(name, regex) for name, regex in _native.named_patterns()}
# The source experiment's improved regex is the one that Llama 3 uses.
_BY_NAME["seed"] = Pattern("seed", _BY_NAME["llama3"].regex)
_NAME_BY_REGEX = {regex: name for name, regex in _native.named_patterns()}

_EQUIVALENT = {regex: _BY_NAME[name] for regex, name in _native.equivalent_patterns()}

NAMES = tuple(_BY_NAME)


def resolve(pattern: str | Pattern) -> Pattern:
    """A pattern by its name, or from any regex, or from a sequence of regexes, one per line.

    A regex is kept as it is written, also where `equivalent` knows a named pattern for it; it is as fast then.

    Raises:
        UserError: a regex does not compile, a line is empty, or the string looks like a name and is none.
    """
    if isinstance(pattern, Pattern):
        return pattern
    if not isinstance(pattern, str):
        raise UserError(f"the pattern {quoted(pattern)} is no string; give a name ({', '.join(NAMES)}) or a regex")
    if pattern in _BY_NAME:
        return _BY_NAME[pattern]
    if pattern in _NAME_BY_REGEX:
        return _BY_NAME[_NAME_BY_REGEX[pattern]]
    if re.fullmatch(r"[A-Za-z0-9_-]+", pattern):
        near = difflib.get_close_matches(pattern, NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"unknown pattern {quoted(pattern)}; {hint}The names are {', '.join(NAMES)}; or give a regex")
    _native.split("", pattern)  # compiles it, or says why not
    return Pattern("custom", pattern)


def equivalent(pattern: str | Pattern) -> Pattern | None:
    r"""The named pattern that cuts every text as this one does, if one is known: the same in another spelling.

    Other spellings are OpenAI's and HF's own, read as Rust's engines do (tiktoken's, ours): `$` is the end of the text.

    >>> equivalent(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+").name
    'gpt2'
    """
    found = resolve(pattern)
    return found if found.name != "custom" else _EQUIVALENT.get(found.regex)


def split(text: str, pattern: str | Pattern) -> list[str]:
    """The pieces into which a pattern cuts a text.

    >>> split("Let's go", "gpt2")
    ['Let', "'s", ' go']
    """
    return _native.split(text, resolve(pattern).regex)
