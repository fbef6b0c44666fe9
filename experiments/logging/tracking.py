"""Logging of metrics: always to `metrics.jsonl`, and to wandb if configured."""

from __future__ import annotations

import io
import json
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from experiments.logging import Labels
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from experiments.logging.wandb_runs import WandbRuns
    from experiments.store.artifacts import Artifact

LOGGERS = ("none", "wandb", "wandb-offline")


def check_installed(logger: str) -> None:
    """Raise a UserError if the package of a logger is missing."""
    if logger != "none" and find_spec("wandb") is None:
        raise UserError(f"logger={logger} needs the package wandb; pip install 'superbpe-framework[experiments]'")


class Tracker:
    """Writes rows of metrics as JSON lines, and to wandb if configured.

    Args:
        folder: Folder for `metrics.jsonl` and the logger's own folder; created if missing.
        logger: One of `LOGGERS`.
        project: Name of the wandb project.
        config: The resolved configuration, which the logger shows with the pipeline's run.
        labels: Names of the run; None for its folder's name.

    Raises:
        UserError: If the logger does not start.
    """

    def __init__(
        self, folder: Path, logger: str, project: str, config: Mapping[str, Any], labels: Labels | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = io.TextIOWrapper((folder / "metrics.jsonl").open("ab"), encoding="utf-8")
        self._runs: WandbRuns | None = None
        names = labels or Labels(folder.name, folder.name)
        try:
            if logger != "none":
                from experiments.logging.wandb_runs import WandbRuns  # slow import, starts a background process

                self._runs = WandbRuns(folder, logger, project, config, names)
        except BaseException:
            self._file.close()
            raise

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Write one row.

        Args:
            group: Subject of the row: `lm/bpe`, `evaluate/superbpe`, `stages`.
            row: Names and JSON-able values.
        """
        line = {"time": round(time.time(), 3), "group": group, **row}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        if self._runs is not None:
            self._runs.log(group, row)

    def uses(self, artifact: Artifact[Any]) -> None:
        """Record that the run made or reused an artifact."""
        if self._runs is not None:
            self._runs.uses(artifact)

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Record that a stage is done: its cost, and for the logger its artifact.

        Args:
            stage: Name of the stage as shown to the user: `count`, `lm bpe`.
            artifact: Result of the stage.
            row: Further metrics.
        """
        cost = {"stage": stage, "artifact": artifact.name, "reused": not artifact.fresh, "seconds": artifact.seconds}
        self.log("stages", {**cost, **row})
        if self._runs is not None:
            self._runs.done(stage, artifact, row)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record the final numbers of the run."""
        self.log("summary", values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._runs is not None:
            self._runs.finish(failed=error is not None)
