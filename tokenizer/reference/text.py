"""The held-out split; cutting text by special strings, then units, then the pattern, and counting the pieces."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import regex
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def cut_at_special(text: str, special_tokens: Sequence[str]) -> list[str]:
    """The ordinary text between special strings, which are cut out before units and the pattern apply.

    If several special strings match at one position, the longest is taken.
    """
    if not special_tokens:
        return [text] if text else []
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return [part for part in regex.split("|".join(map(regex.escape, longest_first)), text) if part]


def cut_into_units(text: str, unit: str) -> list[str]:
    r"""Cut a text into units. Joined, they give the text.

    Args:
        text: ordinary text.
        unit: "document" (uncut), or "line" (cut after each `"\n"` and nothing else, as HF's file reader does).
    """
    if unit == "document":
        return [text] if text else []
    if unit != "line":
        raise ValueError(f"unit={unit!r} is unknown; use document or line")
    *complete, last = text.split("\n")
    return [f"{part}\n" for part in complete] + ([last] if last else [])


def boundaries(text: str, pattern: str | None) -> list[int]:
    """Positions (in characters) at which a pattern cuts a text: start and end of each match, 0 and the length.

    The matches are "isolated": both the matches and the gaps between them are pieces. An empty match also cuts; the
    search continues one character after it, as in Rust's engines. `None` does not cut. A pattern of several lines is a
    sequence of regexes: each cuts the pieces of the previous one.
    """
    if pattern is not None and "\n" in pattern:
        first, _, rest = pattern.partition("\n")
        cuts = {0, len(text)}
        for start, stop in pairwise(boundaries(text, first)):
            cuts.update(start + cut for cut in boundaries(text[start:stop], rest))
        return sorted(cuts)
    cuts = {0, len(text)}
    position = 0
    while pattern is not None and position <= len(text):
        match = regex.search(pattern, text, pos=position)
        if match is None:
            break
        cuts.update(match.span())
        position = match.end() if match.end() > match.start() else match.end() + 1
    return sorted(cuts)


def split(text: str, pattern: str | None) -> list[str]:
    """The non-empty pieces of a text: the pattern's matches and the gaps between them, in order.

    >>> split("one two!", r" ?[a-z]+")
    ['one', ' two', '!']
    """
    return [text[start:stop] for start, stop in pairwise(boundaries(text, pattern))]


def count_pretokens(
    documents: Iterable[str],
    pattern: str | None,
    *,
    unit: str = "document",
    special_tokens: Sequence[str] = (),
) -> Counter[bytes]:
    """Count of each pretoken (UTF-8): special strings cut first, then units, then the pattern."""
    counts: Counter[bytes] = Counter()
    for document in documents:
        for text in cut_at_special(document, special_tokens):
            for part in cut_into_units(text, unit):
                counts.update(piece.encode() for piece in split(part, pattern))
    return counts


def is_chosen(document: str, fraction: float, salt: str) -> bool:
    """Whether a document is held out, or in a sample: a coin that its text and the salt determine.

    With `heldout_near_duplicates` the smallest hash of its sequences of words takes the place of the text.
    """
    hashed = xxhash.xxh3_64_intdigest(document.encode(), seed=xxhash.xxh3_64_intdigest(salt.encode()))
    return hashed >> 11 < fraction * (1 << 53)
