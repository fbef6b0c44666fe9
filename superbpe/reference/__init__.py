"""The specification of phase 2 in plain Python: what `superbpe.training` must equal, to the byte.

- `phase2`: how rules cut documents into pieces, and which merges are learned from them.
- `competition`: how superwords compete with phase-1 merges.
"""

from superbpe.reference.competition import boundless, interleave, runs, times_applied
from superbpe.reference.phase2 import cut_span, is_allowed, length_quantile, pairs_of, train, training_pieces

__all__ = [
    "boundless",
    "cut_span",
    "interleave",
    "is_allowed",
    "length_quantile",
    "pairs_of",
    "runs",
    "times_applied",
    "train",
    "training_pieces",
]
