"""The specification of phase 2 in plain Python: what `superbpe.training` must equal, to the byte.

Phase 2 trains over *pieces*: sequences of phase-1 tokens inside which superwords may form.

- `pieces`: how rules cut documents into pieces.
- `merging`: which merges are learned from them, recounting everything each time.
- `transition`: which phase-1 merges are dropped, and how superwords compete with them.
"""

from superbpe.reference.merging import is_allowed, pairs_of, train
from superbpe.reference.pieces import cut_span, is_eligible, length_quantile, training_pieces
from superbpe.reference.transition import boundless, interleave, runs, times_applied

__all__ = [
    "boundless",
    "cut_span",
    "interleave",
    "is_allowed",
    "is_eligible",
    "length_quantile",
    "pairs_of",
    "runs",
    "times_applied",
    "train",
    "training_pieces",
]
