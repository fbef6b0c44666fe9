"""The training settings of every run, which make the comparison fair.

The reference's model trains on the budget's bytes or FLOPs. All models of a budget take the same steps; the tokens of a
step follow from the budget mode (`lm.data.rows`), so that the models read the same text in each step as far as the mode
allows.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lm.evaluate.deployment import Deployment, training_flops
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.config import BudgetConfig, LmConfig
    from experiments.runs import Run
    from experiments.stages.shards import EncodedArm
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig
    from lm.train.summary import TrainingSummary

DEFAULT_DEPLOYMENT = Deployment()


@dataclass(frozen=True)
class Amounts:
    """Size of a training run, in every quantity that a budget mode can equalize.

    `deployed_flops` would train the deployed model on the same text.
    """

    bytes: float
    tokens: float
    flops: float
    deployed_flops: float = 0.0

    @classmethod
    def of(cls, model: TrainingSummary, deployment: Deployment, vocab_size: int) -> Amounts:
        """Amounts of a trained model."""
        deployed = training_flops(deployment, vocab_size=vocab_size, tokens=model.tokens, n_bytes=model.bytes)
        return cls(model.bytes, model.tokens, model.flops, deployed)

    def of_mode(self, mode: str) -> float:
        """The quantity that a budget mode such as `equal_bytes` equalizes."""
        return float(getattr(self, mode.removeprefix("equal_")))


def measure(
    model: ModelConfig, config: TrainConfig, arm: EncodedArm, deployment: Deployment = DEFAULT_DEPLOYMENT
) -> Amounts:
    """Return the amounts of one step on the shards of an arm, on average over the training text."""
    import torch  # takes seconds, and not all of this module needs it

    from lm.model.transformer import Transformer

    shards = arm.open_training()
    rows = config.rows(shards)
    with torch.device("meta"):  # shapes only, no weights
        transformer = Transformer(model, shards.vocab_size, rows.most_tokens)
    tokens = rows.tokens_per_step
    n_bytes = tokens * shards.n_bytes / shards.n_tokens
    deployed = training_flops(deployment, vocab_size=shards.vocab_size, tokens=tokens, n_bytes=n_bytes)
    return Amounts(n_bytes, tokens, tokens * transformer.flops_per_token(rows.mean_tokens), deployed)


def plan(
    runs: Sequence[Run],
    arms: Mapping[str, EncodedArm],
    lm: LmConfig,
    budget: BudgetConfig,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> dict[Run, TrainConfig]:
    """Plan the training of every run.

    Args:
        runs: The runs.
        arms: The tokenizers and their shards by name; the reference comes first.
        lm: Settings of the models.
        budget: The budgets.
        deployment: The model that will be deployed, whose training FLOPs `equal_deployed_flops` equalizes.

    Raises:
        UserError: If a budget cannot be met within its tolerance, or is less than one step.
    """
    reference = next(iter(arms))
    plans: dict[Run, TrainConfig] = {}
    for size, seed, amount in dict.fromkeys((run.size, run.seed, run.budget) for run in runs):
        model = lm.model.with_layers(size)
        n_bytes = amount
        rung = budget
        if budget.train_flops is not None:  # by the FLOPs per step of the reference's model with the first seed
            per_step = measure(model, lm.train, arms[reference]).flops
            rung = dataclasses.replace(budget, train_flops=amount)
            n_bytes = int(amount / per_step + 1e-6) * lm.train.bytes_per_step  # up to rounding errors
            if n_bytes < 1:
                raise UserError(
                    f"a budget of {amount:.3g} FLOPs is less than one step of {arms[reference].label}'s model "
                    f"({per_step:.3g}); use a larger budget.train_flops"
                )
        config = dataclasses.replace(lm.train, train_bytes=n_bytes, seed=seed)
        settings = plan_rung(model, config, rung, arms, deployment)
        plans |= {run: settings[run.arm] for run in runs if (run.size, run.seed, run.budget) == (size, seed, amount)}
    return {run: plans[run] for run in runs}


def plan_rung(
    model: ModelConfig,
    config: TrainConfig,
    budget: BudgetConfig,
    arms: Mapping[str, EncodedArm],
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> dict[str, TrainConfig]:
    """Plan the training of each arm's model of one size, seed and budget.

    Args:
        model: Shape of the models.
        config: Training settings of the reference's model.
        budget: The budget; `train_flops` is that of this rung.
        arms: The tokenizers and their shards by name; the reference comes first.
        deployment: The model that will be deployed.

    Raises:
        UserError: If the budget cannot be met within its tolerance.
    """
    per_step = {name: measure(model, config, arm, deployment) for name, arm in arms.items()}
    step = next(iter(per_step.values())).of_mode(budget.mode)
    by_rows = budget.mode == "equal_bytes" and config.context_tokens is None and config.tokens_per_step is None
    plans, amounts = {}, []
    for name, arm in arms.items():
        share = step / per_step[name].of_mode(budget.mode)  # 1 for the reference, exactly
        rows = share * config.batch_size
        if not by_rows and rows < 1:
            raise UserError(
                f"budget.mode={budget.mode}: a step of {arm.label}'s model is less than one row; use "
                f"lm.train.bytes_per_step={math.ceil(1 / rows) * config.bytes_per_step} or more"
            )
        if not by_rows and (error := 0.5 / (rows * config.steps)) > budget.tolerance:
            raise UserError(
                f"budget.mode={budget.mode}: {arm.label}'s model trains on about {rows * config.steps:.0f} rows, "
                f"too few for budgets that are equal within budget.tolerance={budget.tolerance:g}; use a larger "
                f"budget, or accept budget.tolerance={math.ceil(100 * error) / 100:g}"
            )
        tokens = share * per_step[name].tokens
        plans[name] = dataclasses.replace(config, tokens_per_step=None if by_rows else tokens)
        planned = measure(model, plans[name], arm, deployment)
        budget.check_epochs(arm.trained_on.contents.n_bytes, config.steps * planned.bytes)
        amounts.append(config.steps * planned.of_mode(budget.mode))
    config.check_schedule()
    check(budget, amounts)
    return plans


def reasons_unequal(
    arms: Sequence[tuple[str, int, Sequence[TrainingSummary]]],
    budget: BudgetConfig,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> list[str]:
    """For each arm, why it is not compared with the first one: its models trained on another amount; or "".

    Args:
        arms: Label, size of the vocabulary, and the models, one per seed, of each arm.
        budget: Its mode says which amount is to be equal, and its tolerance how much.
        deployment: The model that will be deployed.
    """
    amounts = [
        [Amounts.of(model, deployment, size).of_mode(budget.mode) for model in models] for _, size, models in arms
    ]
    reasons = []
    for (label, _, _), own in zip(arms, amounts, strict=True):
        mine, other = max(zip(own, amounts[0], strict=True), key=lambda pair: max(pair) / min(pair))
        differs = f"{label} trained on {mine:,.0f} {_quantity(budget)} and {arms[0][0]} on {other:,.0f}"
        limit = f"which differ by more than {100 * budget.tolerance:g} %"
        reasons.append(f"{differs}, {limit}" if max(mine, other) > min(mine, other) * (1 + budget.tolerance) else "")
    return reasons


def _quantity(budget: BudgetConfig) -> str:
    name = budget.mode.removeprefix("equal_")
    return {"flops": "FLOPs", "deployed_flops": "training FLOPs of the deployed model"}.get(name, name)


def check(budget: BudgetConfig, amounts: Sequence[float]) -> None:
    """Raise a UserError unless models have equal budgets, within the tolerance.

    Args:
        budget: The budget; `train_flops` is that of this rung.
        amounts: Amount of each model, in the quantity that the budget's mode equalizes.
    """
    configured = budget.train_flops if budget.mode == "equal_flops" else None  # None: the reference's
    compared = [*amounts] if configured is None else [configured, *amounts]
    ratio = max(compared) / min(compared)
    if ratio > 1 + budget.tolerance:
        quantity = _quantity(budget)
        values = " and ".join(f"{amount:,.0f}" for amount in amounts)
        target = "" if configured is None else f" instead of {configured:,.0f}"
        raise UserError(
            f"budget.mode={budget.mode}, but the models train on {values} {quantity}{target}; a longer "
            "lm.train.context_bytes or a larger budget reduces the difference, or "
            f"budget.tolerance={math.ceil(100 * (ratio - 1)) / 100:g} accepts it"
        )
