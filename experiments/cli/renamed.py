"""Names of earlier versions in overrides, accepted with a warning until version 0.3."""

from __future__ import annotations

KEYS: dict[str, str] = {
    "lm.model.depth": "lm.model.n_layers",
    "lm.model.head_width": "lm.model.head_dim",
    "lm.model.width": "lm.model.hidden_size",
    "lm.train.microbatch_rows": "lm.train.microbatch_size",
}
"""Old key to new key: `lm.model.old=1` is read as `lm.model.new=1`."""

CHOICES: dict[str, dict[str, str]] = {
    "pattern": {"seed": "spans", "seed-plus": "spans-plus"},
    "superbpe": {"seed": "spans"},
    "lm": {"seed_004": "spans"},
    "experiment": {"seed_004": "spans", "seed_004_debug": "spans_debug"},
}
"""Group to old choice to new choice."""
