"""The time of a whole run, estimated before it starts by the speed of earlier runs that used the same store."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from experiments.cli.console import duration, si
from experiments.results import Folder
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.arms import Arm
    from experiments.config import Config
    from experiments.stages.context import Context
    from experiments.store.manifest import Manifest


def say(context: Context, arms: Sequence[Arm], stages: Sequence[str]) -> None:
    """Print the time that these stages will take if nothing is reused, or the work whose time no earlier run gives."""
    needed = amounts(context, arms, stages)
    speeds = {kind: _seconds(context, kind) for kind in needed}
    if any(each is None for each in speeds.values()):
        if "lm" in needed:
            n_models = _n_models(context.config, arms) * len(context.config.budget.rungs())
            context.reporter.say(
                "no earlier run gives the time of this one; the first steps of training will "
                f"({n_models} language models, at most {si(needed['lm'])} {context.config.budget.unit} together)"
            )
        return
    seconds = sum(amount * (speeds[kind] or 0.0) for kind, amount in needed.items())
    context.reporter.say(f"about {duration(seconds)} if nothing more is reused, by the speed of earlier runs")


def amounts(context: Context, arms: Sequence[Arm], stages: Sequence[str]) -> dict[str, float]:
    """Work of the run by kind of artifact: the number to make, or for models the text or FLOPs that they train on."""
    config = context.config
    n_models = _n_models(config, arms)
    recipes = [arm.recipe for arm in arms]
    found: dict[str, dict[str, float]] = {
        "count": {"count": 1},
        "train_bpe": {"bpe": 1},
        "train_superbpe": {"superbpe": recipes.count("superbpe")},
        "shard": {"shards": 2 * len(arms)},
        "train_lm": {"lm": n_models * sum(config.budget.rungs())},
        "evaluate": {"evaluation": n_models * len(config.budget.rungs())},
        "report": {"report": 1},
    }
    return {kind: amount for stage in stages for kind, amount in found[stage].items()}


def _n_models(config: Config, arms: Sequence[Arm]) -> int:
    """Number of models of one budget."""
    return len(arms) * config.lm.n_seeds * max(len(set(config.lm.depths)), 1)


def _seconds(context: Context, kind: str) -> float | None:
    """Seconds per unit of work of the artifact of a kind that was made last; None if there is none like it."""
    shape = dataclasses.asdict(context.config.lm.model)
    for name in context.store.latest(f"{kind}-"):
        with suppress(UserError):  # a damaged artifact is reported where it is used
            artifact = context.store.find(name, Folder)
            if artifact is None:
                continue
            manifest = artifact.manifest
            if kind == "lm":
                if manifest.config.get("model") == shape:
                    return manifest.seconds / _trained(manifest, context.config.budget.unit)
            else:
                return manifest.seconds
    return None


def _trained(manifest: Manifest, unit: str) -> float:
    summary: Mapping[str, Any] = manifest.contents["summary"]
    return float(summary[unit])
