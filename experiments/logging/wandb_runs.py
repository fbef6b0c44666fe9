"""Logging to wandb: one group per experiment, with one run per trained model and one of the pipeline.

The pipeline's run (job type: the last requested stage) has the figures of tokenizers, shards, comparisons and the
report; a model's run (job type `lm`) has its training curve and its scores. Each logs the artifacts that it made, and
their inputs: with `use_artifact` when online, which draws the lineage from the corpus to the model, and always in the
metadata of the artifact, since wandb cannot look up artifacts offline.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import wandb

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.logging import Labels
    from experiments.store.artifacts import Artifact

_TYPES = {"count": "counts", "lm": "model", "shards": "dataset"}
# Too large to upload: wandb gets a reference.
_BY_REFERENCE = ("corpus", "count", "shards", "trunk")

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
_AXES = ("step", "bytes_seen", "tokens_seen", "total_training_flops")
_MODELS = ("lm", "trunk")
"""Stages that train a model. Each model has its own run; everything else belongs to the pipeline's run."""


class WandbRuns:
    """The runs of one group.

    Args:
        folder: Parent of wandb's folder.
        logger: `wandb` or `wandb-offline`.
        project: Name of the project.
        config: The resolved configuration.
        labels: Names of the runs.

    Raises:
        UserError: If wandb does not start.
    """

    def __init__(self, folder: Path, logger: str, project: str, config: Mapping[str, Any], labels: Labels) -> None:
        mode = "online" if logger == "wandb" else "offline"
        # Otherwise wandb prompts on the terminal.
        os.environ.setdefault("WANDB_SILENT", "true" if mode == "offline" else "false")
        self._settings: dict[str, Any] = {"project": project, "mode": mode, "dir": folder, "group": labels.group}
        self._online, self._labels = mode == "online", labels
        self._seen: dict[str, Artifact[Any]] = {}
        self._logged: dict[str, Any] = {}  # runs by the artifact that they logged
        self._models: dict[str, Any] = {}
        self._corpus = dict(config.get("corpus", {}))
        try:
            self._main = self._start(labels.job_type, labels.name, config)
        except wandb.errors.Error as error:
            raise UserError(
                f"logger={logger}: {error}; log in with `wandb login`, or use logger=wandb-offline"
            ) from None

    def _start(self, job_type: str, name: str, config: Mapping[str, Any]) -> Any:
        # Several runs are open at a time: a model's run stays open during its evaluation.
        return wandb.init(**self._settings, job_type=job_type, name=name, config=dict(config), reinit="create_new")

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Log one row: training metrics as history of the model's run, everything else in the main run's summary."""
        kind, _, key = group.partition("/")
        if kind == "lm":
            self._model(key).log(_training_metrics(row))
        else:
            self._main.summary.update(_pipeline_metrics(group, row))

    def _model(self, key: str) -> Any:
        if key not in self._models:
            run = self._models[key] = self._start("lm", f"{self._labels.name} {key}", {"tokenizer": key})
            for axis in _AXES:
                run.define_metric(axis)
            run.define_metric("*", step_metric="bytes_seen")
        return self._models[key]

    def uses(self, artifact: Artifact[Any]) -> None:
        """Record an artifact that was made or reused; `done` logs the new ones."""
        known = self._seen.get(artifact.hash)
        if known is None or artifact.fresh:
            self._seen[artifact.hash] = artifact

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Log the artifacts and metrics of a stage; those of models and their scores in the model's run."""
        kind, key = artifact.manifest.stage, stage.partition(" ")[2]
        metrics = _stage_metrics(stage, artifact, row)
        run = self._main
        if (kind in _MODELS and artifact.fresh) or (kind == "evaluation" and key in self._models):
            run = self._model(key)
        elif kind in (*_MODELS, "evaluation"):  # of a model that an earlier run trained
            metrics = {f"{key}/{name}": value for name, value in metrics.items()}
        run.summary.update(metrics)
        new = [a for a in self._seen.values() if a.fresh and a.name not in self._logged]
        for made in new:
            self._log_artifact(run, made)
        if not new:
            self._use(run, artifact)

    def _log_artifact(self, run: Any, made: Artifact[Any]) -> None:
        stage, inputs = made.manifest.stage, made.manifest.inputs
        for name, hash_ in inputs.items():
            if hash_ in self._seen:
                self._use(run, self._seen[hash_])
            elif name == "corpus":
                self._use_corpus(run, hash_)
        named = {n: {"hash": h, "artifact": self._seen[h].name if h in self._seen else None} for n, h in inputs.items()}
        if run is not self._main:
            run.config.update({stage: {**made.manifest.config, "inputs": named}}, allow_val_change=True)
        metadata = {
            "config": made.manifest.config,
            "hash": made.hash,
            "inputs": named,
            "contents": made.contents.save(),
            "seconds": made.seconds,
        }
        artifact = wandb.Artifact(made.name, _TYPES.get(stage, stage), metadata=json.loads(json.dumps(metadata)))
        if stage in _BY_REFERENCE:
            artifact.add_reference(made.path.resolve().as_uri(), checksum=False)
        else:
            # Finished artifacts never change, so nothing needs to be copied.
            artifact.add_dir(str(made.path), policy="immutable", skip_cache=True)
        logged = run.log_artifact(artifact)
        if self._online:
            logged.wait()  # the next stage refers to it
        self._logged[made.name] = run

    def _use_corpus(self, run: Any, hash_: str) -> None:
        """Log the corpus as an input of a run. It is not an artifact folder, so wandb gets its configuration."""
        name = f"corpus-{hash_[:12]}"
        if name not in self._logged:
            corpus = wandb.Artifact(name, "corpus", metadata={"hash": hash_, **self._corpus})
            with corpus.new_file("corpus.json") as file:
                json.dump(self._corpus, file, indent=2)
            logged = self._main.log_artifact(corpus)
            if self._online:
                logged.wait()
            self._logged[name] = self._main
        if self._online and run is not self._main:
            run.use_artifact(f"{name}:latest")

    def _use(self, run: Any, used: Artifact[Any]) -> None:
        """Log an input of a run that another run made. wandb does not know artifacts that were made without it."""
        if not self._online or self._logged.get(used.name) is run:
            return
        try:
            run.use_artifact(f"{used.name}:latest")
        except (wandb.errors.CommError, ValueError):
            run.config.update({"unknown_inputs": used.name}, allow_val_change=True)

    def finish(self, *, failed: bool) -> None:
        """Finish all open runs."""
        for run in (*self._models.values(), self._main):
            run.finish(exit_code=int(failed))


def _training_metrics(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of training metrics by their names in the loggers."""
    return {_TRAINING.get(name, f"train/{name}"): value for name, value in row.items()}


def _pipeline_metrics(group: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a row of the pipeline by their names in the loggers; none for costs of stages, which `done` logs."""
    kind = group.partition("/")[0]
    if kind == "stages":
        return {}
    pair = f"{row['b']}-{row['a']}/" if kind == "comparison" and "a" in row else ""
    under = "" if kind == "summary" else f"{group}/{pair}"
    return {under + name.replace("bits_per_byte", "val/bpb"): value for name, value in row.items()}


def _stage_metrics(stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a finished stage by their names in their run."""
    kind, key = artifact.manifest.stage, stage.partition(" ")[2]
    if kind == "evaluation":
        return {"val/bpb" if name == "bits_per_byte" else f"val/{name}": value for name, value in row.items()}
    found = {**row, "seconds": artifact.seconds}
    if kind in _MODELS:
        return found
    return {"/".join(filter(None, (kind, key, name))): value for name, value in found.items()}
