"""The named pretokenization patterns.

A pattern cuts text into its matches and the gaps between them. Several regexes, one per line, are a sequence: each cuts
the pieces of the one before, as HF's `Sequence` of splits does. The regexes of the named patterns are next to their
scanners in the native core (`native/src/patterns/named.rs`); any other regex runs through an engine with look-around.

- `gpt2`: GPT-2's.
- `cl100k`: GPT-3.5's and GPT-4's.
- `llama3`: Llama 3's.
- `digits1`: Llama 3's with each digit isolated, as in Qwen2 and Qwen2.5.
- `o200k`: GPT-4o's.
- `superbpe`: stage 1 of the released SuperBPE scripts.
- `uw-paper`: the SuperBPE paper's: runs of digits apart, in triples counted from the right.
- `spans`: the improved pattern of the `spans` experiment, which is Llama 3's.
- `spans-plus`: Llama 3's with curly apostrophes, emoji clusters and numbers with separators, decimals, exponents and
  percent signs.
- `whitespace`: words with the space before them, punctuation included.
- `none`: no pretokenization; merges may cross anything.
- `...-fence`: fences of phase 2 (`superbpe.rules`).
"""

from __future__ import annotations

import difflib
import re
import warnings
from dataclasses import dataclass

from tokenizer import _native
from tokenizer.errors import UserError, quoted


@dataclass(frozen=True)
class Pattern:
    """A pattern: its name ("custom" where it has none) and its regex, or regexes, one per line; "" cuts nothing."""

    name: str
    regex: str


RENAMED = {"seed": "spans", "seed-plus": "spans-plus"}
"""Names of earlier versions, accepted with a warning until version 0.3. The native core still has some of them."""

_CORE = [Pattern(RENAMED.get(name, name), regex) for name, regex in _native.named_patterns()]
_BY_NAME = {pattern.name: pattern for pattern in _CORE}
_BY_NAME["spans"] = Pattern("spans", _BY_NAME["llama3"].regex)
_BY_REGEX = {pattern.regex: pattern for pattern in _CORE}
_EQUIVALENT = {regex: _BY_NAME[RENAMED.get(name, name)] for regex, name in _native.equivalent_patterns()}

NAMES = tuple(_BY_NAME)


def resolve(pattern: str | Pattern) -> Pattern:
    """A pattern by its name, or from any regex, or from a sequence of regexes, one per line.

    A regex is kept as it is written, even if `equivalent` knows a named pattern for it; it is as fast then.

    Raises:
        UserError: a regex does not compile, a line is empty, or the string looks like a name and is not one.
    """
    if isinstance(pattern, Pattern):
        return pattern
    if not isinstance(pattern, str):
        raise UserError(f"the pattern {quoted(pattern)} is not a string; give a name ({', '.join(NAMES)}) or a regex")
    if pattern in RENAMED:
        warnings.warn(
            f"the pattern {pattern!r} is called {RENAMED[pattern]!r} now; the old name goes with version 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        pattern = RENAMED[pattern]
    if found := _BY_NAME.get(pattern) or _BY_REGEX.get(pattern):
        return found
    if re.fullmatch(r"[A-Za-z0-9_-]+", pattern):
        near = difflib.get_close_matches(pattern, NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"unknown pattern {quoted(pattern)}; {hint}The names are {', '.join(NAMES)}; or give a regex")
    _native.split("", pattern)  # compiles it, or raises
    return Pattern("custom", pattern)


def equivalent(pattern: str | Pattern) -> Pattern | None:
    r"""The named pattern that cuts every text as this one does, if one is known: the same in another spelling.

    Other spellings are OpenAI's and HF's, with the meaning of Rust's regex engines: `$` is the end of the text.

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
