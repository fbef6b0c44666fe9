"""Names of runs and metrics in wandb.

Metrics have the names that other projects use: `train/loss` (nats per token), `val/bpb`, `total_training_flops`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.store.artifacts import Artifact

# Names of training metrics that do not become `train/NAME`, and the axes of plots.
_TRAINING = {
    "train_bits_per_byte": "train/bpb",
    "tokens_per_second": "train/tok_per_sec",
    "flops": "total_training_flops",
    "seconds": "total_training_time",
    "step": "step",
    "bytes_seen": "bytes_seen",
    "tokens_seen": "tokens_seen",
}
AXES = ("step", "bytes_seen", "tokens_seen", "total_training_flops")
MODELS = ("lm", "trunk")
"""Stages that train a model. Each model has its own run; everything else belongs to the pipeline's run."""


class Labels(NamedTuple):
    """Names of a run in wandb.

    Attributes:
        group: Group of the runs; cells of a sweep share one.
        name: Name of the run within its group.
        job_type: The last stage that was requested.
    """

    group: str
    name: str
    job_type: str = "report"


def training_metrics(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of training metrics by their names in the loggers."""
    return {_TRAINING.get(name, f"train/{name}"): value for name, value in row.items()}


def pipeline_metrics(group: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a row of the pipeline by their names in the loggers; none for costs of stages, which `done` logs."""
    kind = group.partition("/")[0]
    if kind == "stages":
        return {}
    pair = f"{row['b']}-{row['a']}/" if kind == "comparison" and "a" in row else ""
    under = "" if kind == "summary" else f"{group}/{pair}"
    return {under + name.replace("bits_per_byte", "val/bpb"): value for name, value in row.items()}


def stage_metrics(stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a finished stage by their names in their run."""
    kind, key = artifact.manifest.stage, stage.partition(" ")[2]
    if kind == "evaluation":
        return {"val/bpb" if name == "bits_per_byte" else f"val/{name}": value for name, value in row.items()}
    found = {**row, "seconds": artifact.seconds}
    return (
        found if kind in MODELS else {"/".join(filter(None, (kind, key, name))): value for name, value in found.items()}
    )
