"""Learning rates of each arm: short runs with several factors on the peak rates, scored on held-in text."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from experiments.results import Tuning, TuningRun
from experiments.stages.models import identity
from experiments.stages.plan import plan_rung
from lm.data.sharding import copy_documents
from lm.data.shards import Shards
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.distributed import load_and_evaluate
from lm.model.config import MODEL
from lm.train.loop import train
from lm.train.summary import SUMMARY
from lm.train.trainer import CHECKPOINT, DivergedError
from tokenizer.durable import remove_folder
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from experiments.config import BudgetConfig, LmConfig
    from experiments.stages.context import Context
    from experiments.stages.shards import EncodedArm
    from lm.evaluate.config import EvalConfig
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig

MOST_FURTHER = 3
"""Most factors that are tried beyond `lm.tune_rates`, while the best one is at the end."""
_SHARE = 4
"""Tuning runs read this fraction of the text of the models unless `lm.tune_bytes` is set."""
_SEED = 1_000_000
"""Added to `lm.train.seed`, so that no tuning run has the seed of a model that is compared."""


@dataclasses.dataclass(frozen=True)
class TuningJob:
    """The tuning runs of one arm and size.

    Attributes:
        name: Name of the arm.
        config: Training settings of the runs.
        scoring: How it is scored.
    """

    name: str
    label: str
    model: ModelConfig
    config: TrainConfig
    factors: Sequence[float]
    scoring: EvalConfig


def _jobs(
    arms: Mapping[str, EncodedArm], model: ModelConfig, lm: LmConfig, budget: BudgetConfig, scoring: EvalConfig
) -> list[TuningJob]:
    """Return the tuning runs of the models of one size, one job per arm; empty if rates are not tuned."""
    factors = sorted(set(lm.tune_rates))
    if not factors:
        return []
    n_bytes = lm.tune_bytes or budget.train_bytes // _SHARE
    # The same share of the run as in the models, so that tuning does not favour the rates of a long warm-up.
    warmup = lm.train.warmup_steps
    warmup = None if warmup is None else round(warmup * n_bytes / max(budget.train_bytes, 1))
    # Short runs may differ by more: they are only compared with runs of the same arm.
    shorter = dataclasses.replace(budget, train_bytes=n_bytes, train_flops=None, ladder=[], tolerance=math.inf)
    try:
        config = dataclasses.replace(
            lm.train,
            train_bytes=n_bytes,
            held_back_bytes=lm.tune_validation_bytes,
            warmup_steps=warmup,
            seed=lm.train.seed + _SEED,
            shuffle=True,
        )
        plans = plan_rung(model, config, shorter, arms)
    except UserError as error:
        raise UserError(f"tuning with lm.tune_bytes={n_bytes}: {error}") from None
    return [TuningJob(name, arm.label, model, plans[name], factors, scoring) for name, arm in arms.items()]


def tune(
    context: Context,
    arms: Mapping[str, EncodedArm],
    lm: LmConfig,
    budget: BudgetConfig,
    scoring: EvalConfig,
    elsewhere: Callable[[Context, Mapping[str, EncodedArm], Sequence[TuningJob]], dict[str, Tuning]] | None = None,
) -> dict[int, dict[str, Tuning]]:
    """Choose a factor on the learning rates for the models of each size and arm; 1 if rates are not tuned.

    The tuning runs of an arm differ only in the factor. They are scored on the last documents of the training text, in
    the order in which they read it, which they do not reach. These documents are the same for every arm.

    Args:
        context: Context of the run.
        arms: The tokenizers and their shards by name; the reference comes first.
        lm: Settings of the models and their tuning.
        budget: The budgets.
        scoring: How text is scored.
        elsewhere: Does the jobs of a size on a cluster; None for this process.

    Raises:
        UserError: If the tuning runs are too short; as for `tune_arm`.
    """
    tuned: dict[int, dict[str, Tuning]] = {}
    for size in lm.all_sizes:
        jobs = _jobs(arms, lm.model.with_layers(size), lm, budget, scoring)
        if elsewhere is None or not jobs:
            tuned[size] = dict.fromkeys(arms, Tuning(factor=1.0))
            tuned[size] |= {job.name: tune_arm(context, job, arms[job.name]) for job in jobs}
        else:
            tuned[size] = elsewhere(context, arms, jobs)
        for job in jobs:
            choice = tuned[size][job.name]
            losses = ", ".join(f"{_loss(run)} at × {run.factor:g}" for run in choice.runs)
            context.reporter.say(f"learning rates of {job.label} × {choice.factor:g} (bits per byte: {losses})")
            if choice.warning:
                context.reporter.say(f"warning: {job.label}: {choice.warning}", style="yellow")
    return tuned


def _loss(run: TuningRun) -> str:
    return "diverged" if run.bits_per_byte is None else f"{run.bits_per_byte:.4f}"


def tune_arm(context: Context, job: TuningJob, arm: EncodedArm) -> Tuning:
    """Run the factors of one arm, and choose the best.

    Raises:
        UserError: If the training text is too short, or all runs diverge.
    """
    rows = job.config.rows(arm.open_training())
    try:
        documents = rows.held_back(job.config.steps)
    except UserError as error:
        raise UserError(f"tuning {job.label} (lm.tune_bytes, lm.tune_validation_bytes): {error}") from None
    runs = [_run(context, job, arm, factor, documents) for factor in job.factors]
    for _ in range(MOST_FURTHER):
        factor = _beyond(runs)
        if factor is None:
            break
        runs = sorted([*runs, _run(context, job, arm, factor, documents)], key=lambda run: run.factor)
    losses = {run.factor: run.bits_per_byte for run in runs if run.bits_per_byte is not None}
    if not losses:
        raise UserError(
            f"all tuning runs of {job.label} diverged, with factors {job.factors[0]:g} to {job.factors[-1]:g} on the "
            "learning rates; add smaller factors to lm.tune_rates"
        )
    return Tuning(factor=min(losses, key=losses.__getitem__), runs=runs)


def _beyond(runs: Sequence[TuningRun]) -> float | None:
    """The next factor beyond the best one, if that is the smallest or the largest; None otherwise.

    >>> losses = {0.5: 2.0, 1.0: 1.9, 2.0: 1.8}
    >>> _beyond([TuningRun(factor=factor, bits_per_byte=loss) for factor, loss in losses.items()])
    4.0
    """
    losses = {run.factor: run.bits_per_byte for run in runs if run.bits_per_byte is not None}
    if not losses:
        return None
    factors = [run.factor for run in runs]
    best = min(losses, key=losses.__getitem__)
    if best == factors[-1]:
        return best * factors[-1] / factors[-2]
    return best * factors[0] / factors[1] if best == factors[0] else None


def _run(context: Context, job: TuningJob, arm: EncodedArm, factor: float, documents: NDArray[np.int64]) -> TuningRun:
    """Train with a factor on the learning rates, and score the result on the documents with these indices."""
    scaled = job.config.scaled(factor)
    tokenizer = arm.tokenizer

    def build(folder: Path) -> TuningRun:
        shards = arm.open_training()
        try:
            train(job.model, scaled, shards, folder, progress=context.reporter.progress)
        except DivergedError:
            (folder / CHECKPOINT).unlink(missing_ok=True)
            return TuningRun(factor=factor)
        validation = folder / "validation"
        remove_folder(validation)  # of an interrupted run
        copy_documents(validation, tokenizer, shards, documents)
        _, evaluation = load_and_evaluate(
            folder,
            Shards.open(validation, tokenizer),
            tokenizer.token_byte_lengths(),
            job.scoring,
            device=scaled.device,
            progress=context.reporter.progress,
        )
        # Only the loss is used. Without its summary, an interrupted run trains again.
        for name in (SUMMARY, MODEL):
            (folder / name).unlink()
        remove_folder(validation)
        return TuningRun(factor=factor, bits_per_byte=evaluation.bits_per_byte, n_documents=len(documents))

    return context.make(
        f"tune {job.name} x{factor:g}",
        TuningRun,
        "tuning",
        config={
            **identity(job.model, scaled),
            "factor": factor,
            "context_bytes": job.scoring.context_bytes,
            "min_context_bytes": job.scoring.min_context_bytes,
            "version": FORMAT_VERSION,
        },
        inputs={"shards": arm.trained_on.hash},
        build=build,
        describe=lambda run: (
            "diverged" if run.bits_per_byte is None else f"{run.bits_per_byte:.4f} bits per byte of held-in text"
        ),
        row=TuningRun.save,
        resumable=True,
    ).contents
