"""What is known before training: tokens that every arm needs, and what training will cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.cli.console import duration, si
from experiments.stages import budget
from experiments.stages.documents import groupings
from experiments.stages.models import open_shards
from lm.evaluate.bits_per_byte import SOURCE
from lm.train.config import trained_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.results import HeldoutDocuments, ShardsFolder, TrainedModel
    from experiments.stages.context import Context
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig

_SOURCES = 5
"""Most sources in the table."""
# Bytes per parameter on disk: a model in fp32, and the checkpoint that a trunk keeps, with the optimizer's state.
_MODEL_BYTES, _CHECKPOINT_BYTES = 4, 12


def show_fertility(
    context: Context,
    heldout: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]],
    documents: Artifact[HeldoutDocuments],
) -> None:
    """Print the held-out bytes per token of every arm, and its tokens against the reference's by source."""
    if len(heldout) < 2:
        return
    opened = [open_shards(shards, arm) for arm, shards in heldout]
    sizes = opened[0].document_bytes
    # Without `<|endoftext|>`, one per document.
    counts = [np.diff(shards.document_ends, prepend=0) - 1 for shards in opened]
    sources = groupings(documents, sizes)[SOURCE]
    order = np.argsort(-sources.sums(sizes), kind="stable")
    shown = order[:_SOURCES] if len(order) > 1 else order[:0]
    by_source = [sources.sums(each) for each in counts]
    rows = [
        [
            arm.label,
            f"{sizes.sum() / tokens.sum():.3f}",
            *(f"{each / reference:.3f}" for each, reference in zip(found[shown], by_source[0][shown], strict=True)),
        ]
        for (arm, _), tokens, found in zip(heldout, counts, by_source, strict=True)
    ]
    of = f", {len(shown)} largest of {len(order)} sources" if len(order) > len(shown) else ""
    title = f"Held-out bytes per token, and tokens relative to {heldout[0][0].label} by source{of}"
    context.reporter.table(title, ["", "bytes per token", *(sources.names[i] for i in shown)], rows)


class Cost(NamedTuple):
    """Cost of training the models of one arm and one seed.

    Attributes:
        flops: Training FLOPs; a trunk that several models share counts once.
        n_bytes: Bytes on disk of the models and the checkpoints of their trunks.
        n_models: Number of models.
    """

    flops: float
    n_bytes: int
    n_models: int


def cost(context: Context, arm: ArmTokenizer, shards: Artifact[ShardsFolder], plans: Sequence[TrainConfig]) -> Cost:
    """Cost of the models that `experiments.stages.models.train_lms` trains by these plans."""
    run = budget.open_run(context, arm, shards)
    n_trunks = sum(plan.trunk is not None for plan in plans) if len(plans) > 1 else 0  # a single run makes no trunk
    per_parameter = len(plans) * _MODEL_BYTES + n_trunks * (_MODEL_BYTES + _CHECKPOINT_BYTES)
    return Cost(trained_steps(plans) * run.step.flops, per_parameter * run.parameters, len(plans))


class Training:
    """Says what the training of all arms and seeds will cost, and after each of them, how long the rest will take."""

    def __init__(self, context: Context, costs: Sequence[Cost]) -> None:
        self._context = context
        self._left = [each.flops for each in costs]
        self._flops = self._seconds = 0.0
        self._started = time.monotonic()
        n = sum(each.n_models for each in costs)
        context.reporter.say(
            f"{n} language model{'s' if n > 1 else ''}: {si(sum(self._left))} training FLOPs, "
            f"{si(sum(each.n_bytes for each in costs))}B on disk"
        )

    def done(self, models: Sequence[Artifact[TrainedModel]]) -> None:
        """The models of the next arm and seed are trained."""
        flops, now = self._left.pop(0), time.monotonic()
        seconds, self._started = now - self._started, now
        if all(model.fresh for model in models):
            self._flops, self._seconds = self._flops + flops, self._seconds + seconds
        if self._left and self._flops:
            left = duration(sum(self._left) * self._seconds / self._flops)
            self._context.reporter.say(f"  about {left} of training left", style="dim")
