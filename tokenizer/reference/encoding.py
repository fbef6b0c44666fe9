"""Encoding in one pass and in two.

One pass: the pattern cuts the text, then merges apply by rank inside the pieces.

    repeat: merge the adjacent pair with the lowest rank, the leftmost if there are several

Two passes: phase-1 merges inside pretokens, then phase-2 merges across open seams. A seam is the boundary between two
tokens. Cuts of the fence or of training units close seams.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizer.reference.text import boundaries, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokenizer.reference.naive import Pair, Word

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


def open_runs(tokens: Sequence[bytes], cuts: Iterable[int]) -> list[Word]:
    """Split a sequence of tokens at its closed seams into runs. Phase 2 merges inside runs.

    A seam between two tokens is closed if there is a cut at the seam or inside either token.

    Args:
        tokens: the phase-1 tokens of a text.
        cuts: positions in the text, in bytes.
    """
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    cuts = set(cuts)
    runs: list[list[bytes]] = []
    for index, token in enumerate(tokens):
        if index and cuts.isdisjoint(range(starts[index - 1] + 1, starts[index + 1])):
            runs[-1].append(token)
        else:
            runs.append([token])
    return [tuple(run) for run in runs]


def byte_positions(text: str, positions: Iterable[int]) -> list[int]:
    """Positions in characters as positions in UTF-8 bytes."""
    return [len(text[:position].encode()) for position in positions]


def encode_two_pass(
    text: str, phase1: Iterable[Pair], phase2: Iterable[Pair], pattern: str | None, fence: str | None
) -> list[bytes]:
    """Two-pass encoding of ordinary text.

    The phase-1 pattern cuts the whole text and phase-1 merges apply inside its pretokens. Then phase-2 merges
    apply to the phase-1 tokens, across the seams that the fence leaves open.
    """
    runs = open_runs(encode(text, phase1, pattern), byte_positions(text, boundaries(text, fence)))
    ranks = ranks_of(phase2)
    return [token for run in runs for token in merge_by_rank(run, ranks)]
