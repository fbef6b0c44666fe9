"""The language models: one per run. Budgets of an arm, a size and a seed share a trunk if their schedules allow it."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.numbers import si
from experiments.results import TrainedModel
from lm.model import initialization
from lm.model.device import arithmetic, resolve_device
from lm.train.loop import train
from lm.train.summary import SUMMARY
from lm.train.trainer import CHECKPOINT
from tokenizer.durable import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.shards import EncodedArm
    from experiments.store.artifacts import Artifact
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig

METRICS = "metrics.jsonl"
_TOTALS = ("bytes", "tokens", "steps", "flops", "epochs", "parameters_total", "parameters_non_embedding")


class Training(NamedTuple):
    """One training: a run, or a trunk that it shares with longer runs.

    Attributes:
        config: Training settings of the run or the trunk.
        kind: `lm` or `trunk`. A trunk keeps its last checkpoint.
    """

    run: Run
    config: TrainConfig
    kind: str = "lm"

    def __str__(self) -> str:
        """Name of the stage."""
        return f"{self.kind} {self.run}"


def train_chain(
    context: Context,
    model: ModelConfig,
    arm: EncodedArm,
    chain: Sequence[Run],
    plans: Mapping[Run, TrainConfig],
    on_row: Callable[[Training, Mapping[str, Any]], None] | None = None,
) -> dict[Run, Artifact[TrainedModel]]:
    """Train the models of a chain; an interrupted run resumes from its checkpoint.

    Runs whose schedules allow it (`TrainConfig.trunk`) share a trunk: every run costs only its decay, and the trunk as
    much as the longest run without its decay. This does not change the models.

    Args:
        context: Context of the run.
        model: Shape of the models.
        arm: Their tokenizer and its shards.
        chain: Runs that differ only in their budget, smallest first (`experiments.runs.chains`).
        plans: Training settings.
        on_row: Called with every row of training metrics.
    """
    models: dict[Run, Artifact[TrainedModel]] = {}
    trunk: Artifact[TrainedModel] | None = None
    for run in chain:
        training = Training(run, plans[run])
        shared = plans[run].trunk if len(chain) > 1 else None
        if shared is not None:
            beginning = Training(run, shared, "trunk")
            # A model that exists needs no trunk, but an existing trunk is the beginning of the next.
            if exists(context, model, arm, beginning) or not exists(context, model, arm, training):
                trunk = _train(context, model, arm, beginning, trunk, on_row)
        models[run] = _train(context, model, arm, training, None if shared is None else trunk, on_row)
    return models


def identity(model: ModelConfig, config: TrainConfig) -> dict[str, Any]:
    """Settings that decide a model, apart from its shards."""
    settings = config.fixed() | arithmetic(config.precision, config.compile, resolve_device(config.device))
    return {"model": dataclasses.asdict(model), "train": settings, "initialization": initialization.VERSION}


def exists(context: Context, model: ModelConfig, arm: EncodedArm, training: Training) -> bool:
    """Return whether a training is finished."""
    inputs = {"shards": arm.trained_on.hash}
    name, _ = context.store.identify(training.kind, identity(model, training.config), inputs)
    return context.store.find(name, TrainedModel) is not None


def _train(
    context: Context,
    model: ModelConfig,
    arm: EncodedArm,
    training: Training,
    trunk: Artifact[TrainedModel] | None,
    on_row: Callable[[Training, Mapping[str, Any]], None] | None,
) -> Artifact[TrainedModel]:
    def build(folder: Path) -> TrainedModel:
        if trunk is not None and not ((folder / CHECKPOINT).exists() or (folder / SUMMARY).exists()):
            write_whole(folder / METRICS, (trunk.path / METRICS).read_bytes())
        _drop_half_line(folder / METRICS)
        # Line-buffered: after a kill, the log must contain every step before the checkpoint.
        with io.TextIOWrapper((folder / METRICS).open("ab"), encoding="utf-8", line_buffering=True) as file:

            def log(row: dict[str, Any]) -> None:
                file.write(json.dumps(row, allow_nan=False) + "\n")
                utilization = f", {row['mfu']:.0%} MFU" if "mfu" in row else ""
                context.reporter.note(f"{row['train_bits_per_byte']:.3f} bits per byte{utilization}")
                if on_row is not None:
                    on_row(training, row)
                context.tracker.log(f"lm/{training.run}", row)

            summary = train(
                model,
                training.config,
                arm.open_training(),
                folder,
                trunk=None if trunk is None else trunk.path,
                keep_checkpoint=training.kind == "trunk",
                log=log,
                progress=context.reporter.progress,
            )
        return TrainedModel(tokenizer=arm.tokenizer.sha256, summary=summary)

    with context.reporter.stage(str(training)):
        artifact = context.store.make(
            TrainedModel,
            training.kind,
            config=identity(model, training.config),
            inputs={"shards": arm.trained_on.hash},
            build=build,
            resumable=True,
        )
    report(context, training, artifact)
    return artifact


def report(context: Context, training: Training, artifact: Artifact[TrainedModel]) -> None:
    """Report that a training is done."""
    summary = artifact.contents.trained
    what = (
        f"{si(summary.parameters_total)} parameters, {si(summary.parameters_non_embedding)} without embeddings; "
        f"{summary.steps:,} steps, {si(summary.bytes)}B of text in {si(summary.tokens)} tokens, "
        f"{si(summary.flops)} FLOPs"
    )
    if summary.mfu is not None:
        what += f" at {summary.mfu:.0%} of the GPU's peak"
    context.done(str(training), artifact, what, {key: getattr(summary, key) for key in _TOTALS})


def _drop_half_line(path: Path) -> None:
    """Truncate an incomplete last line, left by a killed process."""
    if path.exists():
        end = path.read_bytes().rfind(b"\n") + 1
        with path.open("rb+") as file:
            file.truncate(end)
