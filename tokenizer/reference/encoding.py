"""One-pass encoding: the pattern cuts the text, then merges apply by rank inside the pieces.

repeat: merge the adjacent pair with the lowest rank, the leftmost if there are several
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizer.reference.text import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenizer.reference.naive import Pair

_UNMERGEABLE = float("inf")


def ranks_of(merges: Iterable[Pair]) -> dict[Pair, int]:
    """Rank of each pair; the last rank if a pair is listed twice, as in HF."""
    return {pair: rank for rank, pair in enumerate(merges)}


def as_bytes(text: str) -> list[bytes]:
    """The UTF-8 bytes of a text as single-byte tokens."""
    return [bytes([byte]) for byte in text.encode()]


def merge_by_rank(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """Merge one pair at a time until none is left: the lowest rank, and the leftmost among equal ranks.

    Only the ranks of pairs next to a merge are looked up again.
    """
    merged = list(tokens)
    pair_ranks = [ranks.get(pair, _UNMERGEABLE) for pair in pairwise(merged)]
    while pair_ranks and (lowest := min(pair_ranks)) != _UNMERGEABLE:
        place = pair_ranks.index(lowest)
        merged[place : place + 2] = [merged[place] + merged[place + 1]]
        del pair_ranks[place]
        for seam in (place - 1, place):
            if 0 <= seam < len(pair_ranks):
                pair_ranks[seam] = ranks.get((merged[seam], merged[seam + 1]), _UNMERGEABLE)
    return merged


def encode(text: str, merges: Iterable[Pair], pattern: str | None) -> list[bytes]:
    """One-pass encoding of ordinary text.

    Args:
        text: the text; special strings are ordinary text.
        merges: merges of both phases, by rank.
        pattern: the phase-1 pattern of a plain tokenizer, or the fence of a tokenizer with superwords.
    """
    ranks = ranks_of(merges)
    return [token for piece in split(text, pattern) for token in merge_by_rank(as_bytes(piece), ranks)]
