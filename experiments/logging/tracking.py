"""Logging of metrics: always to `metrics.jsonl`, and to W&B if configured.

In W&B, an experiment is a group with one run of the pipeline and one per trained model. The pipeline's run (job type
`pipeline`, or the stage of `--until`) has the metrics of tokenizers, shards and comparisons; a model's run (job type
`lm`) has its training curve, its scores, and the names and hashes of its inputs. Artifacts stay in their own store.
"""

from __future__ import annotations

import io
import json
import os
import time
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from experiments.characters import visible
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from experiments.store.artifacts import Artifact

LOGGERS = ("none", "wandb", "wandb-offline")
FILE = "metrics.jsonl"
_NAMES = {
    "train_bits_per_byte": "train/bpb",
    "tokens_per_second": "train/tok_per_sec",
    "flops": "total_training_flops",
    "seconds": "total_training_time",
    "step": "step",
    "bytes_seen": "bytes_seen",
    "tokens_seen": "tokens_seen",
}
"""Training metrics in W&B that are not called `train/NAME`."""
_AXES = ("step", "bytes_seen", "tokens_seen", "total_training_flops")


class Labels(NamedTuple):
    """Names of a run in W&B.

    Attributes:
        group: Group of the runs; cells of a sweep share one.
        name: Name of the run within its group.
        job_type: `pipeline`, the stage of `--until`, or `lm`.
    """

    group: str
    name: str
    job_type: str = "report"


def check_installed(logger: str) -> None:
    """Raise a UserError if the package of a logger is missing."""
    if logger != "none" and find_spec("wandb") is None:
        raise UserError(f"logger={logger} needs the package wandb: pip install '.[experiments]' in the clone")


class Tracker:
    """Writes rows of metrics as JSON lines, and to W&B if configured.

    Args:
        folder: Folder for `metrics.jsonl` and the logger's own folder; created if missing.
        logger: One of `LOGGERS`.
        project: Name of the project in W&B.
        config: The resolved configuration, which W&B shows with the pipeline's run.
        labels: Names of the run; None for its folder's name.

    Raises:
        UserError: If the logger does not start.
    """

    def __init__(
        self,
        folder: Path,
        logger: str = "none",
        project: str = "",
        config: Mapping[str, Any] = MappingProxyType({}),
        labels: Labels | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._labels = Labels(*map(visible, labels or Labels(folder.name, folder.name)))
        self._runs: dict[str, Any] = {}  # by the model, "" for the pipeline; none without W&B
        mode = "online" if logger == "wandb" else "offline"
        self._settings: dict[str, Any] = {"project": project, "mode": mode, "dir": folder, "group": self._labels.group}
        if logger != "none":
            import wandb  # starts a background process

            # Otherwise wandb prompts on the terminal.
            os.environ.setdefault("WANDB_SILENT", "true" if mode == "offline" else "false")
            try:
                self._runs[""] = self._start(self._labels.job_type, self._labels.name, config)
            except wandb.errors.Error as error:
                raise UserError(
                    f"logger={logger}: {error}; log in with `wandb login`, or use logger=wandb-offline"
                ) from None
        self._file = io.TextIOWrapper((folder / FILE).open("ab"), encoding="utf-8")

    def _start(self, job_type: str, name: str, config: Mapping[str, Any]) -> Any:
        import wandb

        # Several runs are open at a time: a model's run stays open during its evaluation.
        return wandb.init(**self._settings, job_type=job_type, name=name, config=dict(config), reinit="create_new")

    def _model(self, key: str) -> Any:
        """W&B's run of a model, started if necessary."""
        if key not in self._runs:
            run = self._runs[key] = self._start("lm", f"{self._labels.name} {key}", {"tokenizer": key})
            for axis in _AXES:
                run.define_metric(axis)
            run.define_metric("*", step_metric="bytes_seen")
        return self._runs[key]

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Write one row; in W&B, training metrics are history of the model's run, others are in the pipeline's summary.

        Args:
            group: Subject of the row: `lm/bpe`, `evaluate/superbpe`, `stages`; `summary` for the run's final numbers.
            row: Names and JSON-able values.
        """
        line = {"time": round(time.time(), 3), "group": group, **row}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        kind, _, key = group.partition("/")
        if not self._runs or kind == "stages":  # W&B gets those from `done`
            return
        if kind == "lm":
            self._model(key).log({_NAMES.get(name, f"train/{name}"): value for name, value in row.items()})
            return
        pair = f"{row['b']}-{row['a']}/" if kind == "comparison" and "a" in row else ""
        under = "" if kind == "summary" else f"{group}/{pair}"
        self._runs[""].summary.update(
            {under + name.replace("bits_per_byte", "val/bpb"): value for name, value in row.items()}
        )

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Record that a stage is done, and its cost.

        Args:
            stage: Name of the stage as shown to the user: `count`, `lm bpe`.
            artifact: Result of the stage.
            row: Further metrics.
        """
        cost = {
            "stage": stage,
            "artifact": artifact.name,
            "reused": not artifact.fresh,
            "seconds": artifact.manifest.seconds,
        }
        self.log("stages", {**cost, **row})
        if not self._runs:
            return
        kind = artifact.manifest.stage
        key = stage.partition(" ")[2]
        metrics = {**row, "seconds": artifact.manifest.seconds}
        if kind == "evaluation":
            metrics = {"val/bpb" if name == "bits_per_byte" else f"val/{name}": value for name, value in row.items()}
        of_model = kind in ("lm", "trunk", "evaluation")
        if of_model and (key in self._runs or (artifact.fresh and kind != "evaluation")):
            run = self._model(key)
            inputs = {"artifact": artifact.name, "inputs": dict(artifact.manifest.inputs)}
            run.config.update({kind: {**artifact.manifest.config, **inputs}}, allow_val_change=True)
            run.summary.update(metrics)
            return
        place = key if of_model else "/".join(filter(None, (kind, key)))  # of a model that an earlier run trained
        self._runs[""].summary.update({f"{place}/{name}": value for name, value in metrics.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        for run in reversed(self._runs.values()):
            run.finish(exit_code=int(error is not None))
