"""Logging of metrics: always to `metrics.jsonl`, and to wandb if enabled."""

from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tokenizer import storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from experiments.logging.wandb_runs import WandbRuns
    from experiments.store.artifacts import Artifact

MODES = ("off", "offline", "online")


class Labels(NamedTuple):
    """Names of a run in wandb.

    Attributes:
        group: Group of the run; cells of a sweep share one.
        name: Name of the run within its group.
        job_type: The last stage that was requested.
    """

    group: str
    name: str
    job_type: str = "report"


class Tracker:
    """Writes rows of metrics as JSON lines, and to wandb unless its mode is `off`.

    Args:
        folder: Folder for `metrics.jsonl` and wandb's own folder; created if missing.
        mode: `off`, `offline` or `online`.
        project: Name of the wandb project.
        config: The resolved configuration, which wandb shows with the run.
        labels: Names of the run in wandb; None for its folder's name.

    Raises:
        UserError: If wandb does not start.
    """

    def __init__(
        self, folder: Path, mode: str, project: str, config: Mapping[str, Any], labels: Labels | None = None
    ) -> None:
        storage.disk.make_folder(folder)
        self._file = io.TextIOWrapper(storage.disk.open(folder / "metrics.jsonl", "ab"), encoding="utf-8")
        self._wandb: WandbRuns | None = None
        if mode != "off":
            from experiments.logging.wandb_runs import WandbRuns  # slow import, starts a background process

            try:
                self._wandb = WandbRuns(folder, mode, project, config, labels or Labels(folder.name, folder.name))
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
        if self._wandb is not None:
            self._wandb.log(group, row)

    def uses(self, artifact: Artifact[Any]) -> None:
        """Record that the run made or reused an artifact."""
        if self._wandb is not None:
            self._wandb.uses(artifact)

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Record that a stage is done: its cost, and for wandb its artifact and inputs.

        Args:
            stage: Name of the stage as shown to the user: `count`, `lm bpe`.
            artifact: Result of the stage.
            row: Further metrics.
        """
        cost = {"stage": stage, "artifact": artifact.name, "reused": not artifact.fresh, "seconds": artifact.seconds}
        self.log("stages", {**cost, **row})
        if self._wandb is not None:
            self._wandb.done(stage, artifact, row)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table to wandb; the report contains it already."""
        if self._wandb is not None:
            self._wandb.table(name, columns, rows)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record the final numbers of the run."""
        self.log("summary", values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._wandb is not None:
            self._wandb.finish(failed=error is not None)


def tables(numbers: bytes) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """Return the tables of a `report.json` for wandb: columns and rows by name."""
    report = json.loads(numbers)
    columns = ["text", "id", "n_bytes", "n_words", "count"]
    words = [
        [arm["label"], *(row[column] for column in columns)]
        for arm in report["superwords"]
        for row in {row["id"]: row for row in (*arm["most_frequent"], *arm["longest"])}.values()
    ]
    samples = [
        [side["label"], side["n_tokens"], side["bytes_per_token"], "|".join(piece["text"] for piece in side["pieces"])]
        for side in report["sample"]["sides"]
    ]
    return {
        "superwords": (["tokenizer", *columns], words),
        "samples": (["tokenizer", "n_tokens", "bytes_per_token", "text"], samples),
    }
