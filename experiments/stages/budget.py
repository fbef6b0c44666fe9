"""How long each model trains, so that the comparison is fair.

The reference's model trains on `budget.train_bytes`. The others take as many steps as the mode of the budget allows.
Learning rates follow each run's own progress.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from experiments.stages.models import open_shards
from lm.data.stream import DocumentStream
from lm.model.transformer import Transformer
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.results import ShardsFolder
    from experiments.stages.context import Context
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig
    from lm.train.summary import TrainingSummary


@dataclass(frozen=True)
class Amounts:
    """What a run takes in, by each measure that a budget can hold equal."""

    bytes: float
    tokens: float
    steps: float
    flops: float

    @classmethod
    def of(cls, model: TrainingSummary) -> Amounts:
        """Amounts of a model that is trained."""
        return cls(*(float(getattr(model, field.name)) for field in dataclasses.fields(cls)))

    def times(self, steps: int) -> Amounts:
        """Amounts of that many steps."""
        return Amounts(*(value * steps for value in dataclasses.astuple(self)))

    def of_mode(self, mode: str) -> float:
        """The amount that `equal_bytes`, `equal_tokens`, `equal_steps` or `equal_flops` is about."""
        return float(getattr(self, mode.removeprefix("equal_")))


def plan(context: Context, pairs: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]]) -> list[TrainConfig]:
    """Settle the training of each arm's model; the first arm is the reference.

    Raises:
        UserError: If the budget cannot be met within its tolerance.
    """
    config, budget = context.config.lm.train, context.config.budget
    each = [one_step(context, *pair) for pair in pairs]
    target = each[0].times(config.steps).of_mode(budget.mode)
    plans = []
    for (arm, _), step in zip(pairs, each, strict=True):
        # Contexts equal in bytes make equal bytes of equal steps, but for rounding to whole tokens.
        as_it_is = step is each[0] or (budget.mode == "equal_bytes" and config.context_tokens is None)
        steps = config.steps if as_it_is else int(target / step.of_mode(budget.mode) + 1e-6)
        if steps < 1:
            raise UserError(
                f"budget.mode={budget.mode}: {target:.4g} is less than one step of {arm.label}'s model; use a "
                "larger budget.train_bytes"
            )
        plans.append(config if steps == config.steps else dataclasses.replace(config, max_steps=steps))
    check(context, [step.times(plan.steps) for step, plan in zip(each, plans, strict=True)])
    return plans


def one_step(context: Context, arm: ArmTokenizer, shards: Artifact[ShardsFolder]) -> Amounts:
    """What one step of training on these shards takes in; bytes on average."""
    config, opened = context.config.lm.train, open_shards(shards, arm)
    stream = DocumentStream(opened, seed=config.seed, shuffle=config.shuffle)
    positions = config.context_tokens or stream.context_tokens(config.context_bytes, config.train_bytes)
    with torch.device("meta"):  # its shape alone
        model = Transformer(context.config.lm.model, opened.vocab_size, positions)
    tokens = config.batch_size * positions
    per_token = stream.bytes_per_token(config.train_bytes)
    return Amounts(tokens * per_token, tokens, 1, tokens * model.flops_per_token())


def check(context: Context, runs: Sequence[Amounts]) -> None:
    """Raise a UserError unless these runs, planned or done, are equal in what the budget is about."""
    mode, tolerance = context.config.budget.mode, context.config.budget.tolerance
    amounts = [run.of_mode(mode) for run in runs]
    if max(amounts) > min(amounts) * (1 + tolerance):
        what = {"flops": "FLOPs"}.get(mode.removeprefix("equal_"), mode.removeprefix("equal_"))
        values = " and ".join(f"{amount:,.0f}" for amount in amounts)
        raise UserError(
            f"budget.mode={mode}, but the models take in {values} {what}; a longer lm.train.context_bytes or a larger "
            f"budget.train_bytes brings them together, and budget.tolerance={_rounded_up(amounts):g} accepts it "
            "without training again"
        )


def _rounded_up(amounts: Sequence[float]) -> float:
    """The least tolerance of whole percents that accepts these amounts."""
    return math.ceil(100 * (max(amounts) / min(amounts) - 1)) / 100
