"""Two-pass encoding: phase-1 merges inside pretokens, then phase-2 merges across open seams.

A seam is the boundary between two tokens. Cuts of the fence or of training units close seams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizer.reference.encoding import encode, merge_by_rank, ranks_of
from tokenizer.reference.text import boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokenizer.reference.naive import Pair, Word


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

    Args:
        text: the text; special strings are ordinary text.
        phase1: phase-1 merges by rank.
        phase2: phase-2 merges by rank.
        pattern: the phase-1 pattern.
        fence: the pattern that cuts phase 2.
    """
    runs = open_runs(encode(text, phase1, pattern), byte_positions(text, boundaries(text, fence)))
    ranks = ranks_of(phase2)
    return [token for run in runs for token in merge_by_rank(run, ranks)]
