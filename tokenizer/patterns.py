"""The named pretokenization patterns.

A pattern cuts text into its matches and the gaps between them. Several regexes, one per line, are a sequence: each cuts
the pieces of the previous one, as in HF's `Sequence` of splits. The regexes of the named patterns are next to their
scanners in the native core (`native/src/pretokenize/patterns.rs`); any other regex runs in an engine with look-around.

- `gpt2`: GPT-2's.
- `cl100k`: GPT-3.5's and GPT-4's.
- `llama3`: Llama 3's.
- `digits1`: Llama 3's with each digit isolated, as in Qwen2 and Qwen2.5.
- `o200k`: GPT-4o's.
- `superbpe`: stage 1 of the released SuperBPE scripts.
- `uw-paper`: the SuperBPE paper's: digits are split off, in groups of three counted from the right.
- `spans`: the improved pattern of the `spans` experiment, identical to Llama 3's.
- `spans-plus`: Llama 3's with curly apostrophes, emoji clusters and numbers with separators, decimals, exponents and
  percent signs.
- `whitespace`: words with the preceding space, including punctuation.
- `phrases`: the words of K-EXAONE's phrases (`phrases-fence`): letters with marks; each digit isolated.
- `none`: no pretokenization; merges may cross any boundary.
- `...-fence`: fences of phase 2 (`superbpe.rules`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.documents import check_text
from tokenizer.errors import UserError, did_you_mean, quoted


@dataclass(frozen=True)
class Pattern:
    """A pattern: a name ("custom" if it has none) and a regex, or several regexes, one per line; "" cuts nothing."""

    name: str
    regex: str

    def __str__(self) -> str:
        """The name for a message; of a custom pattern, its regex."""
        return quoted(self.regex) if self.name == "custom" else self.name


_CORE = [Pattern(name, regex) for name, regex in _native.named_patterns()]
_BY_NAME = {pattern.name: pattern for pattern in _CORE}
_BY_NAME["digits-fence"] = Pattern("digits-fence", _native.DIGITS + "+")
_BY_REGEX = {pattern.regex: pattern for pattern in _BY_NAME.values()}
_BY_NAME["spans"] = Pattern("spans", _BY_NAME["llama3"].regex)
_EQUIVALENT = {regex: _BY_NAME[name] for regex, name in _native.equivalent_patterns()}

NAMES = tuple(_BY_NAME)
YARDSTICK = "superbpe"
"""Cuts the pretokens of tokenizers whose own pattern does not separate words."""
FULL_STRENGTH = "o200k"
"""The default: within 2 % of the fewest tokens on each kind of text in docs/tokenizers.md, and widely known."""


def resolve(pattern: str | Pattern) -> Pattern:
    """Return the pattern for a name, a regex, or a sequence of regexes, one per line.

    A regex is kept as written, even if `equivalent` knows a named pattern for it; it is then just as fast.

    Raises:
        UserError: a regex does not compile, a line is empty, or the string looks like a name but is not known.
    """
    if isinstance(pattern, Pattern):
        return pattern
    if not isinstance(pattern, str):
        raise UserError(f"the pattern {quoted(pattern)} is not a string; give a name ({', '.join(NAMES)}) or a regex")
    if found := _BY_NAME.get(pattern) or _BY_REGEX.get(pattern):
        return found
    if re.fullmatch(r"[A-Za-z0-9_-]+", pattern):
        raise UserError(
            f"unknown pattern {quoted(pattern)}{did_you_mean(pattern, NAMES)}; the names are {', '.join(NAMES)}; "
            "or give a regex"
        )
    check_text(pattern, "the pattern")
    _native.split("", pattern)  # compiles it, or raises
    return Pattern("custom", pattern)


def equivalent(pattern: str | Pattern) -> Pattern | None:
    r"""The named pattern that cuts every text like this one; None if none is known.

    Knows OpenAI's and HF's spellings, with the semantics of Rust's regex engines: `$` is the end of the text.

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
    check_text(text)
    return _native.split(text, resolve(pattern).regex)


def is_cut(tokens: Sequence[bytes], pattern: Pattern, *, errors: str = "replace") -> npt.NDArray[np.bool_]:
    """Whether a pattern cuts the text of each token; `errors` decodes parts of characters (`bytes.decode`)."""
    pieces = _native.count_pieces([token.decode(errors=errors) for token in tokens], pattern.regex)
    return np.array(pieces, dtype=np.int64) > 1
