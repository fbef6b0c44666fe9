"""Where phase 2 takes over: given, or found by letting superwords compete with phase-1 merges."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.errors import UserError

AUTO = "auto"


def resolve_transition(
    vocab_size: int, transition: float | str | None = None, transition_merges: int | None = None
) -> int:
    """The transition as 256 bytes + phase-1 merges, special tokens excluded.

    Args:
        vocab_size: of the final tokenizer.
        transition: that number itself, or a share of `vocab_size` in (0, 1).
        transition_merges: instead, the number of phase-1 merges.

    Raises:
        UserError: neither or both are given, or the value is out of range.
    """
    if (transition is None) == (transition_merges is None):
        raise UserError("give the transition either as transition or as transition_merges")
    if transition_merges is not None:
        return 256 + transition_merges
    if isinstance(transition, str):
        raise UserError(f"transition={transition!r} is neither a number nor {AUTO!r}")
    if transition is not None and 0 < transition < 1:
        return round(transition * vocab_size)
    if transition is None or not math.isfinite(transition) or transition != int(transition) or transition < 256:
        raise UserError(f"transition={transition} is neither a share between 0 and 1 nor a size of 256 or more")
    return int(transition)


def times_applied(ranks: npt.ArrayLike, token_counts: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """How often each merge joined two tokens on the way to a segmented text: int64 [n].

    For a merge that ended in the text as a token, or in a part of one, its token was made once for each. In a row of
    one token that is the number of pairs merged, so a row of three counts once.

    >>> times_applied([[0, 1], [256, 256]], [0] * 256 + [3, 5])  # "ab" three times left, "abab" five times
    array([13,  5])

    Args:
        ranks: merges by rank, [n, 2], as `Tokenizer.ranks` gives them.
        token_counts: how often each token is left in the text, by rank: 256 bytes, then merges.
    """
    merges = np.asarray(ranks, dtype=np.int64).reshape(-1, 2).tolist()
    # By rank from the last: whatever a token became part of is made later than itself.
    made = np.asarray(token_counts).astype(np.int64).tolist()
    for new, (left, right) in zip(range(255 + len(merges), 255, -1), reversed(merges), strict=True):
        made[left] += made[new]
        made[right] += made[new]
    return np.array(made[256:], dtype=np.int64)


class Merges(NamedTuple):
    """Superword merges in the order of their counts.

    Attributes:
        left, right: int64; tokens by rank: 256 bytes, the phase-1 merges, then these merges.
        counts: int64.
    """

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def interleave(
    phase1: npt.NDArray[np.int64], superwords: Merges, n_merges: int, *, unseen: int = 0
) -> tuple[int, int] | None:
    """How many phase-1 and superword merges a vocabulary takes if they compete by count.

    The next phase-1 merge is taken, unless the next superword merge has a greater count and both its parts are
    there. So a word comes before the superwords it is part of: they cannot be more frequent than its last merge was.
    (On text other than phase 1's own they can; then they wait.) BoundlessBPE's rule: Schmidt et al., arXiv 2604.05192.

    Args:
        phase1: counts of the phase-1 merges, by rank.
        superwords: what training over whole pretokens gave, as far as it went.
        n_merges: how many merges there is room for.
        unseen: the greatest count that a superword merge behind those can have.

    Returns:
        the two numbers; or None if it depends on superword merges that are not among those.
    """
    regular, made, first = 0, 0, 256 + len(phase1)
    counts = phase1.tolist()
    rows: list[tuple[int, int, int]] = list(zip(*(column.tolist() for column in superwords), strict=True))
    while regular + made < n_merges:
        rival = counts[regular] if regular < len(counts) else 0
        if made < len(rows):
            left, right, count = rows[made]
            if count > rival and all(part < 256 + regular or part >= first for part in (left, right)):
                made += 1
                continue
        elif unseen > rival:
            return None
        if regular == len(counts):
            break
        regular += 1
    return regular, made


def check_transition(t: int, vocab_size: int, n_total: int, n_phase1: int) -> None:
    """Refuses a transition that the vocabulary or the phase-1 tokenizer has no room for."""
    have = 256 + n_phase1
    if not 256 <= t <= 256 + n_total:
        raise UserError(
            f"the transition {t} is outside the vocabulary: "
            f"with vocab_size={vocab_size} it can be 256 to {256 + n_total}"
        )
    if t > have:
        raise UserError(
            f"the transition {t} needs {t - 256} phase-1 merges, and the tokenizer has {have - 256}; "
            f"use at most {have}, or train phase 1 to a larger vocabulary"
        )


def check_rivals(n_total: int, n_phase1: int, provenance: dict[str, Any]) -> None:
    """Refuses a phase 1 that ends before the vocabulary does: the merges behind its end would compete as well."""
    phase1 = provenance.get("phase1") or {}
    complete = phase1.get("ran_out_of_pairs") and n_phase1 >= phase1.get("merges", n_phase1 + 1)
    if n_phase1 < n_total and not complete:
        raise UserError(
            f"superwords compete with {n_total} phase-1 merges, and the tokenizer has {n_phase1}; "
            f"train phase 1 to the vocabulary size of phase 2, or to a larger one"
        )
