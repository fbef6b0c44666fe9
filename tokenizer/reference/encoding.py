"""One-pass encoding: the pattern cuts the text, then merges apply by rank inside the pieces.

repeat: merge the neighbours whose merge was learned first, the leftmost of several
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
    """Each pair's rank; of a pair listed twice the last place counts, as in HF."""
    return {pair: rank for rank, pair in enumerate(merges)}


def as_bytes(text: str) -> list[bytes]:
    """The UTF-8 bytes of a text, each a token."""
    return [bytes([byte]) for byte in text.encode()]


def merge_by_rank(tokens: Iterable[bytes], ranks: Mapping[Pair, int]) -> list[bytes]:
    """Merges one pair at a time until none is left: the lowest rank, and of several the leftmost.

    Ranks of pairs that a merge left alone are not looked up again.
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
        text: text whose special strings, if any, are ordinary text.
        merges: all merges by rank, of both phases.
        pattern: the phase-1 pattern of a plain tokenizer, the fence of one with superwords.
    """
    ranks = ranks_of(merges)
    return [token for piece in split(text, pattern) for token in merge_by_rank(as_bytes(piece), ranks)]
