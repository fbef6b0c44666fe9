"""The groups `superbpe` and `pattern`, defined by the presets and patterns in Python instead of YAML files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from superbpe.rules import PHASE1, PRESETS, TRANSITION
from tokenizer.patterns import NAMES

if TYPE_CHECKING:
    from hydra.core.config_store import ConfigStore


def register(configs: ConfigStore) -> None:
    """Add a choice for each preset and for each pattern that phase 1 can use.

    A preset also sets the pattern and the unit of phase 1, unless an experiment or the command line overrides them.
    """
    for name in PRESETS:
        configs.store(group="superbpe", name=name, package="_global_", node=_preset(name))
    for name in [*(name for name in NAMES if not name.endswith("-fence")), "custom"]:
        configs.store(group="pattern", name=name, node={"name": name, "regex": None})


def _preset(name: str) -> dict[str, Any]:
    own: dict[str, Any] = {"vocab_size": None, "sources": [], "transition": TRANSITION[name], "transition_merges": None}
    return {
        "defaults": [{"override /pattern": PHASE1[name]["pattern"]}],
        "bpe": {"unit": PHASE1[name]["unit"]},
        "superbpe": {**own, **dataclasses.asdict(PRESETS[name])},
    }
