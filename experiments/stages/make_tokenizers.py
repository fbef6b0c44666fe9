"""The tokenizers of all arms; arms share work where they can."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from experiments.settings import resolved
from experiments.stages import existing, phase1, phase2
from experiments.stages.tokenizers import Sources, bytes_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.arms import Arm
    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import ArmTokenizer


def make_tokenizers(context: Context, corpus: Text, arms: Sequence[Arm], stages: Sequence[str]) -> list[ArmTokenizer]:
    """Count pretokens, train phase 1 once for all arms that can share it, and finish every arm.

    Args:
        context: Context of the run.
        corpus: The corpus.
        arms: The arms.
        stages: Stages of the pipeline to run. With `train_bpe` but not `train_superbpe`, only phase 1 runs.

    Returns:
        The tokenizers in the order of `arms`, without those that the requested stages do not make.
    """
    sources = Sources(context, corpus)
    sources.check(arms)
    found = {}
    if "train_bpe" in stages:  # before hours of training: they are there
        found = {arm.name: existing.load(context, arm) for arm in arms if arm.source is not None}
    trained = [arm for arm in arms if arm.trained]
    families = phase1.families(trained, [sources.counts(arm) for arm in trained])
    if "train_bpe" not in stages:
        return []
    found |= {arm.name: bytes_only(context, arm) for arm in arms if arm.recipe == "bytes"}
    context.reporter.enter("train_bpe")
    lists: dict[str, phase1.MergeList] = {}
    for family in families:
        stage = "phase1" if len(families) == 1 else f"phase1 {family.arms[0].name}"
        merges = phase1.train(context, family, stage)
        lists |= dict.fromkeys([arm.name for arm in family.arms], merges)
    for arm in trained:
        if arm.recipe == "bpe":
            found[arm.name] = phase1.cut(context, arm, lists[arm.name])
        elif "train_superbpe" in stages:
            context.reporter.enter("train_superbpe")
            found[arm.name] = phase2.train(context, arm, sources.mixture(arm), lists[arm.name])
    return [_with_settings(context, arm, found[arm.name]) for arm in arms if arm.name in found]


def _with_settings(context: Context, arm: Arm, made: ArmTokenizer) -> ArmTokenizer:
    settings = resolved(context.config, arm, made.artifact.contents.revision)
    return dataclasses.replace(made, settings=settings)
