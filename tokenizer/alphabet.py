"""The printable characters that stand for bytes in GPT-2's and Hugging Face's files."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise

NOT_IN_UTF8 = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])
"""Bytes that never occur in UTF-8; imported tokenizers may have no token for them."""


def _byte_characters() -> dict[int, str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}


BYTE_CHARACTERS = _byte_characters()
ALPHABET = bytes(byte for byte, _ in sorted(BYTE_CHARACTERS.items(), key=lambda item: item[1]))
"""The 256 byte values, sorted by their characters. This is their order by rank."""
_TABLE = {byte: ord(character) for byte, character in BYTE_CHARACTERS.items()}
# Translating by this table and encoding as latin-1 gives the bytes; characters outside the alphabet must fail.
_BACK = {ord(character): byte for byte, character in BYTE_CHARACTERS.items()}
_OUTSIDE = {byte: 0x100 + byte for byte in range(256) if byte not in _BACK} | _BACK


def printable(token: bytes) -> str:
    """A token in HF's byte alphabet: b" the" is "Ġthe"."""
    return token.decode("latin-1").translate(_TABLE)


def unprintable(name: str) -> bytes | None:
    """The token that a name in HF's byte alphabet stands for; None if a character is not in the alphabet."""
    try:
        return name.translate(_OUTSIDE).encode("latin-1")
    except UnicodeEncodeError:
        return None


def unprintable_all(names: Sequence[str]) -> list[bytes] | None:
    """`unprintable` for many names; None if any of them has a character that is not in the alphabet."""
    spelled = unprintable("".join(names))
    if spelled is None:
        return None
    return [spelled[start:end] for start, end in pairwise(accumulate(map(len, names), initial=0))]


def other_text(string: str) -> bytes | None:
    r"""The bytes that a string names in HF's byte alphabet; None if they are its own bytes or cannot occur in text.

    >>> other_text("Ġthe"), other_text("é"), other_text("«a»"), other_text("<s>"), other_text("日")
    (b' the', b'\xe9', None, None, None)
    """
    named = unprintable(string)
    if named is None or named == string.encode():
        return None
    start = next((i for i, byte in enumerate(named[:4]) if byte & 0xC0 != 0x80), min(3, len(named)))
    try:
        codecs.getincrementaldecoder("utf-8")().decode(named[start:])  # the last character may be cut off
    except UnicodeDecodeError:
        return None
    return named


def named_as_text(special_strings: Iterable[str]) -> str | None:
    """The first string that names other text in HF's byte alphabet; None if there is none."""
    return next((string for string in special_strings if other_text(string) is not None), None)


def missing_byte(has: Callable[[int], bool]) -> str | None:
    """Message about bytes of UTF-8 without a token; None if all of them have one."""
    missing = [byte for byte in range(256) if byte not in NOT_IN_UTF8 and not has(byte)]
    return f"byte {missing[0]} has no token (nor do {len(missing) - 1} others)" if missing else None
