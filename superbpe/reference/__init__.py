"""The specification of phase 2 in plain Python. `superbpe.training` must give exactly the same merges.

- `phase2`: cutting documents into pieces by the rules, and learning merges from them.
- `competition`: competition between superwords and phase-1 merges.
"""

from superbpe.reference.competition import boundless, interleave, runs, times_applied
from superbpe.reference.phase2 import cut_span, is_allowed, length_quantile, pairs_of, train, training_pieces
