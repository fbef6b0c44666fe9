"""Pre-tokenizers of tokenizer.json as patterns."""

from __future__ import annotations

import re
from typing import Any

from tokenizer import patterns
from tokenizer._native import DIGITS
from tokenizer.errors import quoted, shortened
from tokenizer.formats.checks import Unsupported

_GPT2 = patterns.resolve("gpt2").regex
# Patterns that match all text. HF's behaviours that drop unmatched text thus drop nothing.
COVERING = tuple(
    patterns.resolve(name).regex
    for name in (
        *("gpt2", "cl100k", "llama3", "digits1", "o200k", "superbpe", "spans-plus", "whitespace"),
        *("phrases", "phrases-fence"),
    )
)


def regex(pre_tokenizer: Any) -> str:
    """The regexes of a pre-tokenizer, one per line; each applies inside the pieces of the previous one.

    Raises:
        Unsupported: the pre-tokenizer does more than split text into pieces of bytes, or is damaged.
    """
    regexes: list[str] = []
    byte_level = False
    for part in () if pre_tokenizer is None else flat(pre_tokenizer, "pretokenizers"):
        kind = part["type"]
        if byte_level:
            raise Unsupported(
                f"cannot be followed: its {shortened(kind)} after ByteLevel is applied to the byte alphabet"
            )
        if kind == "ByteLevel":
            if part.get("add_prefix_space", True):
                raise Unsupported("cannot be followed: its ByteLevel adds a space in front (add_prefix_space)")
            byte_level = True
            if part.get("use_regex", True):
                regexes.append(_GPT2)
        elif kind == "Split":
            regexes.append(_split(part))
        elif kind == "Digits":
            regexes.append(DIGITS if part["individual_digits"] else f"{DIGITS}+")
        else:
            raise Unsupported(
                f"cannot be followed: its pre-tokenizer {shortened(kind)} is not supported; ByteLevel, Split and "
                "Digits are"
            )
    if not byte_level:
        raise Unsupported("is not byte-level: it has no ByteLevel pre-tokenizer")
    return "\n".join(regexes)


def flat(part: Any, members: str) -> list[Any]:
    """The components of a sequence, which are under the key `members`; a list of one for any other component."""
    if not isinstance(part, dict) or part.get("type") != "Sequence":
        return [part]
    return [piece for each in part[members] for piece in flat(each, members)]


def _split(part: dict[str, Any]) -> str:
    pattern, behavior, invert = part["pattern"], part["behavior"], part.get("invert", False)
    kind, written = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else (None, None)
    if kind not in ("String", "Regex") or not isinstance(written, str) or not written:
        raise Unsupported(f"cannot be followed: its Split has the pattern {quoted(pattern)}, not one String or Regex")
    regex = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", written) if kind == "String" else written
    if "\n" in regex:
        if "(?x" in regex:
            raise Unsupported("cannot be followed: its verbose pattern (?x) has several lines; write it in one")
        # Lines separate regexes here, so write line feeds as \n. Other escapes, such as \\ before one, are kept.
        regex = re.sub(r"(\\[^\n])|\\?\n", lambda found: found[1] or r"\n", regex)
    if behavior == "Isolated" or (behavior == "Removed" and invert and regex in COVERING):
        return regex
    what = shortened(behavior)
    if invert:
        what += " inverted"
    if behavior == "Removed":
        what += "; it may drop text"
    raise Unsupported(f"cannot be followed: its Split has the behavior {what}; Isolated is supported")
