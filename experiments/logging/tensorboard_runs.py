"""Logging to TensorBoard: one folder per trained model and one of the pipeline, in `tensorboard/`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torch.utils.tensorboard import SummaryWriter

from experiments.logging.metrics import MODELS, pipeline_metrics, stage_metrics, training_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.logging.metrics import Labels
    from experiments.store.artifacts import Artifact

FOLDER = "tensorboard"


class TensorboardRuns:
    """The runs of one pipeline; `tensorboard --logdir FOLDER` shows them.

    Args:
        folder: Parent of the folder `tensorboard`.
        config: The resolved configuration.
        labels: Names of the runs.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], labels: Labels) -> None:
        self._folder = folder / FOLDER
        self._main = SummaryWriter(self._folder / "pipeline")
        self._models: dict[str, SummaryWriter] = {}
        self._steps: dict[str, int] = {}
        self._main.add_text("run", f"{labels.group} {labels.name} ({labels.job_type})")
        self._main.add_text("config", f"```json\n{json.dumps(config, indent=2, default=str)}\n```")

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Log one row: training metrics by step in the model's run, everything else in the pipeline's."""
        kind, _, key = group.partition("/")
        if kind != "lm":
            _scalars(self._main, pipeline_metrics(group, row), 0)
            return
        self._steps[key] = row["step"]
        metrics = {name: value for name, value in training_metrics(row).items() if name != "step"}
        _scalars(self._model(key), metrics, row["step"])

    def _model(self, key: str) -> SummaryWriter:
        if key not in self._models:
            self._models[key] = SummaryWriter(self._folder / key.replace(" ", "-"))
        return self._models[key]

    def uses(self, artifact: Artifact[Any]) -> None:
        """Do nothing: TensorBoard has no artifacts."""

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Log the metrics of a stage; those of models and their scores in the model's run."""
        kind, key = artifact.manifest.stage, stage.partition(" ")[2]
        metrics = stage_metrics(stage, artifact, row)
        if kind not in (*MODELS, "evaluation"):
            _scalars(self._main, metrics, 0)
        elif key in self._models:
            _scalars(self._models[key], metrics, self._steps[key])
        else:  # of a model that an earlier run trained
            _scalars(self._main, {f"{key}/{name}": value for name, value in metrics.items()}, 0)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table as text in the pipeline's run."""
        lines = [columns, ["---"] * len(columns), *rows]
        cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        self._main.add_text(name, "\n".join(f"| {' | '.join(line)} |" for line in cells))

    def finish(self, *, failed: bool) -> None:
        """Close the event files."""
        for writer in (*self._models.values(), self._main):
            writer.close()


def _scalars(writer: SummaryWriter, metrics: Mapping[str, Any], step: int) -> None:
    for name, value in metrics.items():
        if isinstance(value, int | float):
            writer.add_scalar(name, value, step)
