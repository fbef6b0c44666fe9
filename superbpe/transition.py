"""The transition to phase 2: configured, or found by letting superwords compete with phase-1 merges."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from superbpe.rules import NO_AUTO, Rules
from tokenizer import _native
from tokenizer.errors import UserError, check_whole, quoted
from tokenizer.train.bpe import MOST_TOKENS

AUTO = "auto"
"""Value of `transition` for which training finds the transition."""
_EITHER = "pass the transition either as transition or as transition_merges, such as transition=0.9"


def resolve_transition(
    vocab_size: int, transition: float | str | None = None, transition_merges: int | None = None
) -> int:
    """The transition as 256 bytes + phase-1 merges, excluding special tokens.

    Args:
        vocab_size: size of the final tokenizer.
        transition: the number of tokens, or a fraction of `vocab_size` in (0, 1).
        transition_merges: the number of phase-1 merges, instead of `transition`.

    Raises:
        UserError: neither or both are passed, or the value is out of range.
    """
    if (transition is None) == (transition_merges is None):
        raise UserError(_EITHER)
    if transition_merges is not None:
        check_whole("transition_merges", transition_merges, 0, MOST_TOKENS)
        return 256 + transition_merges
    if not isinstance(transition, int | float | np.number):
        raise UserError(f"transition={quoted(transition)} is neither a number nor {AUTO!r}")
    if 0 < transition < 1:
        return round(transition * vocab_size)
    if not math.isfinite(transition) or transition != int(transition) or transition < 256:
        raise UserError(f"transition={transition} is neither a fraction between 0 and 1 nor a size of at least 256")
    return int(transition)


def competes(rules: Rules, transition: float | str | None = None, transition_merges: int | None = None) -> bool:
    """Whether superwords compete with phase-1 merges, so that training finds the transition.

    Raises:
        UserError: the rules do not support competition, or they require it and a transition is passed.
    """
    auto = isinstance(transition, str) and transition == AUTO
    if rules.interleave and not ((transition is None or auto) and transition_merges is None):
        raise UserError("these rules find the transition themselves (interleave=True): leave it out, or pass 'auto'")
    if auto:
        if transition_merges is not None:
            raise UserError(_EITHER)
        if rules.atoms != "pretokens":
            raise UserError(f"transition='auto' {NO_AUTO}")
    return rules.interleave or auto


def times_applied(ranks: npt.ArrayLike, token_counts: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Number of times each merge was applied to produce a segmented text: int64 [n].

    Each occurrence of a merge's token, by itself or inside another token, comes from one application. In a run of equal
    tokens only the joined pairs count: a run of three counts once.

    >>> times_applied([[0, 1], [256, 256]], [0] * 256 + [3, 5])  # "ab" occurs three times, "abab" five times
    array([13,  5])

    Args:
        ranks: merges by rank, [n, 2], in the format of `Tokenizer.ranks`.
        token_counts: count of each token in the segmented text, by rank: 256 bytes, then merges.
    """
    merges = np.asarray(ranks, dtype=np.int64).reshape(-1, 2).tolist()
    # From the last rank down: a token is always made before the tokens that contain it.
    applied = np.asarray(token_counts).astype(np.int64).tolist()
    for new, (left, right) in zip(range(255 + len(merges), 255, -1), reversed(merges), strict=True):
        applied[left] += applied[new]
        applied[right] += applied[new]
    return np.array(applied[256:], dtype=np.int64)


class Merges(NamedTuple):
    """Superword merges in the order of their counts.

    Attributes:
        left, right: int64; tokens by rank: 256 bytes, the phase-1 merges, then these merges.
        counts: int64.
    """

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, trained: _native.MergeResult) -> Merges:
        """The merges of the core."""
        return cls(*(trained[name].astype(np.int64) for name in ("left", "right", "count")))


def interleave(
    phase1: npt.NDArray[np.int64], superwords: Merges, n_merges: int, *, unseen: int = 0
) -> tuple[int, int] | None:
    """Number of phase-1 and superword merges in a vocabulary for which they compete by count.

    The next phase-1 merge is taken, unless the next superword merge has a higher count and both its parts exist. So a
    word comes before the superwords that contain it: they cannot be more frequent than its last merge. (On text other
    than phase 1's they can; then they wait.) This is BoundlessBPE's rule: Schmidt et al., arXiv 2604.05192.

    Args:
        phase1: counts of the phase-1 merges, by rank.
        superwords: superword merges over whole pretokens found so far.
        n_merges: number of merges that fit into the vocabulary.
        unseen: highest possible count of a superword merge that is not among them.

    Returns:
        The two numbers; None if they depend on superword merges that are not among those found.
    """
    n_regular, n_superwords, first = 0, 0, 256 + len(phase1)
    counts = phase1.tolist()
    rows: list[tuple[int, int, int]] = list(zip(*(column.tolist() for column in superwords), strict=True))
    while n_regular + n_superwords < n_merges:
        rival = counts[n_regular] if n_regular < len(counts) else 0
        if n_superwords < len(rows):
            left, right, count = rows[n_superwords]
            if count > rival and all(part < 256 + n_regular or part >= first for part in (left, right)):
                n_superwords += 1
                continue
        elif unseen > rival:
            return None
        if n_regular == len(counts):
            break
        n_regular += 1
    return n_regular, n_superwords
