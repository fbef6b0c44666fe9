"""The groups `superbpe` and `pattern`, made of the presets and patterns in Python instead of YAML files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from superbpe.rules import PHASE1, PRESETS, TRANSITION
from tokenizer.patterns import NAMES

if TYPE_CHECKING:
    from hydra.core.config_store import ConfigStore


def register(configs: ConfigStore) -> None:
    """Adds a choice for each preset and for each pattern that can serve phase 1.

    A preset also chooses the pattern and the unit of its phase 1. Both apply unless an experiment or the command line
    gives another.
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
