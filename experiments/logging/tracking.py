"""Where the numbers of a run go: always `metrics.jsonl`, and wandb when asked."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from experiments.logging.wandb_runs import WandbRuns
    from experiments.store.artifacts import Artifact

MODES = ("off", "offline", "online")


class Labels(NamedTuple):
    """What wandb calls a run.

    Attributes:
        group: What its parts, or the cells of a sweep, have in common.
        name: Of the run in its group.
        job_type: The last stage that was asked for.
    """

    group: str
    name: str
    job_type: str = "report"


class Tracker:
    """Writes rows of numbers as JSON lines, and to wandb unless its mode is `off`.

    Args:
        folder: Where `metrics.jsonl` (and wandb's own folder) go; made if missing.
        mode: `off`, `offline` or `online`.
        project: Name of the wandb project.
        config: The resolved configuration, which wandb shows beside the run.
        labels: What wandb calls the run; None for its folder's name.

    Raises:
        UserError: If wandb does not start.
    """

    def __init__(
        self, folder: Path, mode: str, project: str, config: Mapping[str, Any], labels: Labels | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._wandb: WandbRuns | None = None
        if mode != "off":
            from experiments.logging.wandb_runs import WandbRuns  # a second and a background process: only when asked

            try:
                self._wandb = WandbRuns(folder, mode, project, config, labels or Labels(folder.name, folder.name))
            except BaseException:
                self._file.close()
                raise

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Write one row.

        Args:
            group: What the numbers are about: `lm/bpe`, `evaluate/superbpe`, `stages`.
            row: Names and JSON-able values.
        """
        line = {"time": round(time.time(), 3), "group": group, **row}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        if self._wandb is not None:
            self._wandb.log(group, row)

    def uses(self, artifact: Artifact[Any]) -> None:
        """Note that the run has made or found an artifact."""
        if self._wandb is not None:
            self._wandb.uses(artifact)

    def done(self, stage: str, artifact: Artifact[Any], row: Mapping[str, Any]) -> None:
        """Record that a stage is done: what it cost, and for wandb what it made of what.

        Args:
            stage: What the user calls it: `count`, `lm bpe`.
            artifact: Its result.
            row: Numbers about it.
        """
        cost = {"stage": stage, "artifact": artifact.name, "reused": not artifact.fresh, "seconds": artifact.seconds}
        self.log("stages", {**cost, **row})
        if self._wandb is not None:
            self._wandb.done(stage, artifact, row)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a table in wandb; the report has it already."""
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
    """Return what of a `report.json` wandb shows as tables: by name, columns and rows."""
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
