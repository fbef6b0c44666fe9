"""Training budgets that make the comparison fair.

The reference's model trains on `budget.train_bytes`, or with `budget.train_flops`. The number of steps of the other
models follows from the budget mode. Learning-rate schedules are relative to each run's own length.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from experiments.stages.models import open_shards
from lm.data.stream import DocumentStream
from lm.model.transformer import Transformer
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.config import BudgetConfig
    from experiments.results import ShardsFolder
    from experiments.stages.context import Context
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig
    from lm.train.summary import TrainingSummary


@dataclass(frozen=True)
class Amounts:
    """Size of a training run, in every quantity that a budget mode can equalize."""

    bytes: float
    tokens: float
    steps: float
    flops: float

    @classmethod
    def of(cls, model: TrainingSummary) -> Amounts:
        """Amounts of a trained model."""
        return cls(*(float(getattr(model, field.name)) for field in dataclasses.fields(cls)))

    def of_mode(self, mode: str) -> float:
        """The quantity that a budget mode such as `equal_bytes` equalizes."""
        return float(getattr(self, mode.removeprefix("equal_")))


class Run(NamedTuple):
    """The training run of one arm.

    Attributes:
        stream: The documents in the order of training.
        step: Amounts of one step; the bytes are an average.
        parameters: Parameters of the model.
    """

    stream: DocumentStream
    step: Amounts
    parameters: int

    def total(self, mode: str, steps: int) -> float:
        """What a run of `steps` steps has of the quantity that a budget mode equalizes, as its training counts it."""
        if mode == "equal_bytes":
            return self.stream.run_bytes(steps, int(self.step.tokens))
        return steps * self.step.of_mode(mode)


def rungs(context: Context, arm: ArmTokenizer, shards: Artifact[ShardsFolder]) -> list[Context]:
    """Return one context per budget of the ladder, smallest first.

    This is where budgets in FLOPs become bytes, by the FLOPs per step of the reference's model with the first seed.

    Args:
        context: Context of the run.
        arm: The reference.
        shards: Its shards of the training text.

    Raises:
        UserError: If a budget in FLOPs is less than one step.
    """
    budget, lm = context.config.budget, context.config.lm
    in_flops = budget.train_flops is not None
    per_step = open_run(context, arm, shards).step.flops if in_flops else 0.0
    found = []
    for amount in budget.rungs():
        n_bytes = _steps(amount, per_step) * lm.train.bytes_per_step if in_flops else amount
        if n_bytes < 1:
            raise UserError(
                f"a budget of {amount:.3g} FLOPs is less than one step of {arm.label}'s model ({per_step:.3g}); use a "
                "larger budget.train_flops"
            )
        config = dataclasses.replace(
            context.config,
            budget=dataclasses.replace(budget, train_bytes=n_bytes, train_flops=amount if in_flops else None),
            lm=dataclasses.replace(lm, train=dataclasses.replace(lm.train, train_bytes=n_bytes)),
        )
        found.append(dataclasses.replace(context, config=config))
    return found


def plan(context: Context, pairs: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]]) -> list[TrainConfig]:
    """Plan the training of each arm's model.

    Args:
        context: A context from `rungs`, with one seed.
        pairs: Tokenizer and shards of each arm; the first is the reference.

    Raises:
        UserError: If the budget cannot be met within its tolerance.
    """
    config, budget = context.config.lm.train, context.config.budget
    runs = [open_run(context, *pair) for pair in pairs]
    target = _given(budget) or config.steps * runs[0].step.of_mode(budget.mode)
    plans = []
    for (arm, shards), run in zip(pairs, runs, strict=True):
        # Contexts of equal bytes: equal steps give equal bytes, up to rounding to whole tokens.
        as_it_is = budget.mode == "equal_bytes" and config.context_tokens is None
        steps = config.steps if as_it_is else _steps(target, run.step.of_mode(budget.mode))
        if steps < 1:
            raise UserError(
                f"budget.mode={budget.mode}: {target:.4g} is less than one step of {arm.label}'s model; use a "
                "larger budget"
            )
        plans.append(config if steps == config.steps else dataclasses.replace(config, max_steps=steps))
        _ = plans[-1].schedule  # checks its length
        budget.check_epochs(steps * run.step.bytes, shards.contents.n_bytes)
    _check(budget, [run.total(budget.mode, plan.steps) for run, plan in zip(runs, plans, strict=True)])
    return plans


def _given(budget: BudgetConfig) -> float | None:
    """The equal quantity, if it is configured; otherwise that of the reference's model."""
    return budget.train_flops if budget.mode == "equal_flops" else None


def _steps(total: float, per_step: float) -> int:
    """The most steps that do not exceed a total, up to rounding errors."""
    return int(total / per_step + 1e-6)


def open_run(context: Context, arm: ArmTokenizer, shards: Artifact[ShardsFolder]) -> Run:
    """Return the training run of an arm on these shards."""
    config, opened = context.config.lm.train, open_shards(shards, arm)
    stream = DocumentStream(opened, seed=config.seed, shuffle=config.shuffle)
    positions = config.tokens_per_row(stream)
    with torch.device("meta"):  # shapes only, no weights
        model = Transformer(context.config.lm.model, opened.vocab_size, positions)
    tokens = config.batch_size * positions
    per_token = stream.bytes_per_token(config.train_bytes)
    step = Amounts(tokens * per_token, tokens, 1, tokens * model.flops_per_token())
    return Run(stream, step, sum(each.numel() for each in model.parameters()))


def check(context: Context, runs: Sequence[Amounts]) -> None:
    """Raise a UserError unless the budgets of these finished runs are equal within the tolerance."""
    budget = context.config.budget
    _check(budget, [run.of_mode(budget.mode) for run in runs])


def _check(budget: BudgetConfig, amounts: Sequence[float]) -> None:
    given = _given(budget)
    compared = [*amounts] if given is None else [given, *amounts]
    if max(compared) > min(compared) * (1 + budget.tolerance):
        what = {"flops": "FLOPs"}.get(budget.mode.removeprefix("equal_"), budget.mode.removeprefix("equal_"))
        values = " and ".join(f"{amount:,.0f}" for amount in amounts)
        target = "" if given is None else f" instead of {given:,.0f}"
        raise UserError(
            f"budget.mode={budget.mode}, but the models train on {values} {what}{target}; a longer "
            "lm.train.context_bytes or a larger budget reduces the difference, or "
            f"budget.tolerance={_rounded_up(compared):g} accepts it"
        )


def _rounded_up(amounts: Sequence[float]) -> float:
    """The smallest tolerance, in whole percent, that accepts these amounts."""
    return math.ceil(100 * (max(amounts) / min(amounts) - 1)) / 100
