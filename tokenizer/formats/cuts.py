"""Pre-tokenizers of tokenizer.json as patterns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokenizer import patterns
from tokenizer.errors import UserError, quoted, shortened

_GPT2 = patterns.resolve("gpt2").regex
# Patterns that match all text. HF's behaviours that drop unmatched text thus drop nothing.
COVERING = tuple(
    patterns.resolve(name).regex
    for name in ("gpt2", "cl100k", "llama3", "digits1", "o200k", "superbpe", "spans-plus", "whitespace")
)


def regex(pre_tokenizer: Any, path: Path) -> str:
    """The regexes of a pre-tokenizer, one per line; each applies inside the pieces of the previous one.

    Raises:
        UserError: the pre-tokenizer does more than split text into pieces of bytes, or is damaged.
    """
    regexes: list[str] = []
    byte_level = False
    for part in _flat(pre_tokenizer):
        kind = part["type"]
        if byte_level:
            raise UserError(
                f"{path} cannot be followed: its {shortened(kind)} after ByteLevel is applied to the byte alphabet, "
                "not to text"
            )
        if kind == "ByteLevel":
            if part.get("add_prefix_space", True):
                raise UserError(f"{path} cannot be followed: its ByteLevel adds a space in front (add_prefix_space)")
            byte_level = True
            regexes += [_GPT2] * bool(part.get("use_regex", True))
        elif kind == "Split":
            regexes.append(_split(part, path))
        elif kind == "Digits":
            regexes.append(r"\p{N}" if part["individual_digits"] else r"\p{N}+")
        else:
            raise UserError(
                f"{path} cannot be followed: its pre-tokenizer {shortened(kind)} is not supported; ByteLevel, Split "
                "and Digits are"
            )
    if not byte_level:
        raise UserError(f"{path} is not byte-level: it has no ByteLevel pre-tokenizer")
    return "\n".join(regexes)


def _flat(part: Any) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [piece for each in part["pretokenizers"] for piece in _flat(each)]
    return [part]


def _split(part: dict[str, Any], path: Path) -> str:
    if not isinstance(part["pattern"], dict) or len(part["pattern"]) != 1:
        raise UserError(
            f"{path} is damaged: its Split has the pattern {quoted(part['pattern'])}, not one String or Regex"
        )
    ((kind, written),) = part["pattern"].items()
    if kind not in ("String", "Regex") or not isinstance(written, str) or not written:
        raise UserError(f"{path} cannot be followed: its Split has the pattern {quoted(part['pattern'])}")
    regex = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", written) if kind == "String" else written
    if "\n" in regex:
        if "(?x" in regex:
            raise UserError(f"{path} cannot be followed: its verbose pattern (?x) has several lines; write it in one")
        # Lines separate regexes here, so write line feeds as \n. Other escapes, such as \\ before one, are kept.
        regex = re.sub(r"(\\[^\n])|\\?\n", lambda found: found[1] or r"\n", regex)
    behavior, invert = part["behavior"], part.get("invert", False)
    if behavior == "Isolated" or (behavior == "Removed" and invert and regex in COVERING):
        return regex
    drops = "; it may drop text" if behavior == "Removed" else ""
    raise UserError(
        f"{path} cannot be followed: its Split has the behavior {shortened(behavior)}"
        f"{' inverted' if invert else ''}{drops}; Isolated is supported"
    )
