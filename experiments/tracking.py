"""Where the numbers of a run go: always `metrics.jsonl`, and wandb when asked."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Self

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

MODES = ("off", "offline", "online")


class Tracker:
    """Writes rows of numbers as JSON lines, and to wandb unless its mode is `off`.

    Args:
        folder: Where `metrics.jsonl` (and wandb's own folder) go; made if missing.
        mode: `off`, `offline` or `online`.
        project: Name of the wandb project.
        config: The resolved configuration, which wandb shows beside the run.
    """

    def __init__(self, folder: Path, mode: str, project: str, config: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._wandb: Any = None
        self._groups: set[str] = set()
        if mode != "off":
            # Without this, wandb asks questions on a terminal that nobody may be watching.
            os.environ.setdefault("WANDB_SILENT", "true" if mode == "offline" else "false")
            import wandb  # half a second and a background process: only when asked

            settings: dict[str, Any] = {"project": project, "mode": mode, "dir": folder, "config": dict(config)}
            try:
                self._wandb = wandb.init(**settings, job_type="pipeline")
            except wandb.errors.Error as error:
                self._file.close()
                raise UserError(f"wandb={mode}: {error}; log in with `wandb login`, or use wandb=offline") from None

    def log(self, group: str, row: Mapping[str, Any]) -> None:
        """Write one row.

        Args:
            group: What the numbers are about: `lm/bpe`, `evaluate/superbpe`, `stages`.
            row: Names and JSON-able values. `bytes_seen`, if there, becomes wandb's x-axis for this group.
        """
        line = {"time": round(time.time(), 3), "group": group, **row}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()
        if self._wandb is not None:
            if "bytes_seen" in row and group not in self._groups:
                self._groups.add(group)
                self._wandb.define_metric(f"{group}/*", step_metric=f"{group}/bytes_seen")
            self._wandb.log({f"{group}/{name}": value for name, value in row.items()})

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record the final numbers of the run."""
        self.log("summary", values)
        if self._wandb is not None:
            self._wandb.summary.update(dict(values))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=0 if error is None else 1)
