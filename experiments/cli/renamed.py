"""Old names of keys and choices. Overrides may use them, with a warning, until version 0.3."""

from __future__ import annotations

from superbpe import rules

KEYS: dict[str, str] = {
    "wandb": "logger",
    "lm.model.depth": "lm.model.n_layers",
    "lm.model.head_width": "lm.model.head_dim",
    "lm.model.width": "lm.model.hidden_size",
    "lm.train.microbatch_rows": "lm.train.microbatch_size",
}
"""Maps old keys to new keys: `lm.model.old=1` is read as `lm.model.new=1`."""

_PATTERNS = {"seed": "spans", "seed-plus": "spans-plus"}
CHOICES: dict[str, dict[str, str]] = {
    "corpus": {"dclm": "dclm_baseline", "dclm-edu": "dclm_edu"},
    "pattern": _PATTERNS,
    "pattern.name": _PATTERNS,
    "preset": rules.RENAMED,
    "superbpe": rules.RENAMED,
    "wandb": {"off": "none", "offline": "wandb-offline", "online": "wandb"},
    "lm": {"seed_004": "spans"},
    "experiment": {"seed_004": "spans", "seed_004_debug": "spans_debug"},
}
"""Maps the old choices of each group or key to new choices; `arms.NAME.preset` is here as `preset`."""
