"""Learning rates of each arm: short runs with several factors on the peak rates, scored on held-in text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from experiments.config import part
from experiments.results import Tuning, TuningRun
from experiments.stages import budget
from experiments.stages.models import Chain, identity, open_shards
from lm.data.sharding import copy_documents
from lm.data.shards import Shards
from lm.data.stream import DocumentStream
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.config import EvalConfig
from lm.evaluate.distributed import load_and_evaluate
from lm.model.weights import MODEL
from lm.train.loop import train
from lm.train.summary import SUMMARY
from lm.train.trainer import CHECKPOINT, DivergedError
from tokenizer.durable import remove_folder
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from experiments.results import ShardsFolder
    from experiments.stages.context import Context
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.train.config import TrainConfig

Elsewhere = Callable[["Context", Sequence[Chain], Sequence[float]], list[Tuning]]
"""Tunes the learning rates of chains with one plan each, by factors, instead of this process."""
_SHARE = 10
"""Tuning runs read this fraction of the text of the models unless `lm.tune_bytes` is set."""
_SEED = 1_000_000
"""Added to `lm.train.seed`, so that no tuning run has the seed of a model that is compared."""
_VALIDATION = "validation"


def tune(
    context: Context,
    pairs: Sequence[tuple[ArmTokenizer, Artifact[ShardsFolder]]],
    elsewhere: Elsewhere | None = None,
) -> list[Tuning]:
    """Choose a factor on the learning rates for each arm; 1 if `lm.tune_rates` is empty.

    The tuning runs of an arm differ only in the factor. They are scored on the last documents of the training text, in
    the order in which they read it, which they do not reach. These documents are the same for every arm.

    Args:
        context: Context of the run.
        pairs: The arms and their training shards; the first arm is the reference.
        elsewhere: Tunes on a cluster; None for this process.

    Raises:
        UserError: If the training text is too short, or every run of an arm diverges.
    """
    lm = context.config.lm
    factors = sorted(set(lm.tune_rates))
    if not factors:
        return [Tuning(factor=1.0) for _ in pairs]
    short = _short(context)
    try:
        plans = budget.plan(short, pairs)
    except UserError as error:
        raise UserError(f"tuning with lm.tune_bytes={short.config.budget.train_bytes}: {error}") from None
    chains = [Chain(short, arm, shards, [plan]) for (arm, shards), plan in zip(pairs, plans, strict=True)]
    if elsewhere is None:
        found = [tune_arm(short, arm, shards, plan, factors) for _, arm, shards, (plan,) in chains]
    else:
        found = elsewhere(short, chains, factors)
    labels = [arm.label for arm, _ in pairs]
    context.reporter.table("Tuning: bits per byte by factor on the learning rates", *table(labels, found))
    for label, each in zip(labels, found, strict=True):
        if each.warning:
            context.reporter.say(f"warning: {label}: {each.warning}", style="yellow")
    return found


def table(labels: Sequence[str], found: Sequence[Tuning]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: bits per byte of each arm by factor, and the chosen factor."""
    factors = sorted({run.factor for each in found for run in each.runs})
    rows = []
    for label, each in zip(labels, found, strict=True):
        losses = {
            run.factor: "diverged" if run.bits_per_byte is None else f"{run.bits_per_byte:.4f}" for run in each.runs
        }
        rows.append([label, *(losses.get(factor, "") for factor in factors), f"{each.factor:g}"])
    return ["", *(f"× {factor:g}" for factor in factors), "chosen"], rows


def _short(context: Context) -> Context:
    """The context of the tuning runs: less text, another seed, and shuffled documents."""
    config = context.config
    n_bytes = config.lm.tune_bytes or config.budget.train_bytes // _SHARE
    lm = config.lm.train
    # The same share of the run as in the models, so that tuning does not favour the rates of a long warm-up.
    warmup = None if lm.warmup_steps is None else round(lm.warmup_steps * n_bytes / max(config.budget.train_bytes, 1))
    try:
        settings = dataclasses.replace(
            lm, train_bytes=n_bytes, max_steps=None, warmup_steps=warmup, seed=lm.seed + _SEED, shuffle=True
        )
    except UserError as error:
        raise UserError(f"lm.tune_bytes={n_bytes}: {error}") from None
    models = dataclasses.replace(config.lm, train=settings, n_seeds=1)
    # Short runs may differ by more: they are only compared with those of the same arm.
    shorter = dataclasses.replace(config.budget, train_bytes=n_bytes, train_flops=None, ladder=[], tolerance=math.inf)
    return dataclasses.replace(context, config=dataclasses.replace(config, lm=models, budget=shorter))


def tune_arm(
    context: Context,
    arm: ArmTokenizer,
    shards: Artifact[ShardsFolder],
    config: TrainConfig,
    factors: Sequence[float],
) -> Tuning:
    """Run the factors of one arm. While the best one is at an end, add one step beyond it, up to a limit.

    Args:
        context: Context of the tuning runs.
        arm: The tokenizer.
        shards: Shards of the training text.
        config: Training settings of the runs.
        factors: Factors on the learning rates.

    Raises:
        UserError: If all runs diverge.
    """
    documents = _validation(context, arm, shards, config)
    runs = {factor: _run(context, arm, shards, config, factor, documents) for factor in factors}
    for added in range(context.config.lm.tune_extensions + 1):
        ordered = sorted(runs)
        best = min(ordered, key=lambda factor: _loss(runs[factor]))
        if math.isinf(_loss(runs[best])):
            raise UserError(
                f"all tuning runs of {arm.label} diverged, with factors {ordered[0]:g} to {ordered[-1]:g} on the "
                "learning rates; add smaller factors to lm.tune_rates"
            )
        at_end = best in (ordered[0], ordered[-1])
        if not at_end or added == context.config.lm.tune_extensions:
            break
        neighbour = ordered[1] if best == ordered[0] else ordered[-2]
        beyond = float(f"{best * best / neighbour:.6g}")
        runs[beyond] = _run(context, arm, shards, config, beyond, documents)
    return Tuning(factor=best, runs=[runs[factor] for factor in ordered], at_end=at_end)


def stage_name(arm: ArmTokenizer, factor: float) -> str:
    """Name of the stage of a run."""
    return f"tune {arm.key} x{factor:g}"


def _validation(
    context: Context, arm: ArmTokenizer, shards: Artifact[ShardsFolder], config: TrainConfig
) -> NDArray[np.int64]:
    """Indices of the training documents to score the tuning runs on."""
    stream = DocumentStream(open_shards(shards, arm), seed=config.seed, shuffle=config.shuffle)
    n_tokens = config.steps * config.batch_size * config.tokens_per_row(stream)
    try:
        return stream.unread(n_tokens, context.config.lm.tune_validation_bytes)
    except UserError as error:
        raise UserError(f"tuning {arm.label} (lm.tune_bytes, lm.tune_validation_bytes): {error}") from None


def _loss(run: TuningRun) -> float:
    return math.inf if run.bits_per_byte is None else run.bits_per_byte


def _run(
    context: Context,
    arm: ArmTokenizer,
    shards: Artifact[ShardsFolder],
    config: TrainConfig,
    factor: float,
    documents: NDArray[np.int64],
) -> TuningRun:
    """Train with a factor on the learning rates, and score the result on the documents with these indices."""
    scaled, lm, scoring = config.scaled(factor), context.config.lm, part(EvalConfig, context.config.eval)

    def build(folder: Path) -> TuningRun:
        opened = open_shards(shards, arm)
        try:
            train(lm.model, scaled, opened, folder, progress=context.reporter.progress)
        except DivergedError:
            (folder / CHECKPOINT).unlink(missing_ok=True)
            return TuningRun(factor=factor)
        remove_folder(folder / _VALIDATION)
        copy_documents(folder / _VALIDATION, arm.tokenizer, opened, documents)
        _, evaluation = load_and_evaluate(
            folder,
            Shards.open(folder / _VALIDATION, arm.tokenizer),
            arm.tokenizer.token_byte_lengths(),
            scoring,
            device=scaled.device,
            progress=context.reporter.progress,
        )
        # Only the loss is used. Without its summary, an interrupted run trains again.
        for name in (SUMMARY, MODEL):
            (folder / name).unlink()
        remove_folder(folder / _VALIDATION)
        return TuningRun(
            factor=factor,
            bits_per_byte=evaluation.bits_per_byte,
            n_documents=len(documents),
            n_bytes=int(evaluation.document_bytes.sum()),
        )

    windows = {"context_bytes": scoring.context_bytes, "min_context_bytes": scoring.min_context_bytes}
    stage = stage_name(arm, factor)
    with context.reporter.stage(stage):
        artifact = context.store.make(
            TuningRun,
            "tuning",
            config={
                **identity(context, scaled),
                "factor": factor,
                "validation_bytes": lm.tune_validation_bytes,
                **windows,
                "version": FORMAT_VERSION,
            },
            inputs={"shards": shards.hash},
            build=build,
            resumable=True,
        )
    found = artifact.contents
    loss = "diverged" if found.bits_per_byte is None else f"{found.bits_per_byte:.4f} bits per byte of held-in text"
    context.done(stage, artifact, loss, found.save())
    return found
