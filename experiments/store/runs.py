"""The record of a run: `run.json` in its folder contains its command, its result, and the artifacts that it used.

`experiments.store.registry` remembers the folders of runs, so that `superbpe status --clean` knows which artifacts to
keep.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from experiments.results import ArmRecord, ComparisonRecord
from experiments.store.manifest import command_line
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.stages.comparison import Result
    from experiments.store.artifacts import Artifact

RECORD = "run.json"
Status = Literal["running", "done", "failed", "interrupted"]


@dataclass
class Run:
    """One run, as stored in `run.json`.

    Attributes:
        folder: Folder of the run.
        stage: The last stage that was requested.
        overrides: Overrides on the command line; for a cell of a sweep, its own values.
        swept: For a cell: its values of the swept keys.
        number: For a cell: its number in the sweep.
        status: Status of the run; the record of a killed process still says `running`.
        error: What went wrong, as one line.
        exit_code: Exit code of this run.
        seconds: Duration of the run.
        store: Folder of the artifacts.
        artifacts: Names of the artifacts that it made or used.
        results: The comparison, if the run got that far.
        rungs: With a ladder of budgets: the comparison at every budget, smallest first; `results` is the last.
        budgets: The budgets of `rungs` as configured, smallest first.
        budget_unit: Their unit: `bytes` or `flops`.
        report: Path of its report.
        command: The command line.
        started: Start time (UTC).
    """

    folder: str
    stage: str
    overrides: list[str]
    swept: list[str] = field(default_factory=list)
    number: int | None = None
    status: Status = "running"
    error: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    store: str = "artifacts"
    artifacts: list[str] = field(default_factory=list)
    results: ComparisonRecord | None = None
    rungs: list[ComparisonRecord] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)
    budget_unit: str = "bytes"
    report: str | None = None
    command: str = field(default_factory=command_line)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


class Recorder:
    """Keeps `run.json` up to date during a run.

    Args:
        run: The record at the start of the run.
        folder: Folder of the run.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self._path = folder / RECORD
        self._start = time.perf_counter()
        self._write()

    def uses(self, artifact: Artifact[Any]) -> None:
        """Record that the run made or used an artifact."""
        if artifact.name not in self.run.artifacts:
            self.run.artifacts.append(artifact.name)
            self._write()

    def done(self, result: Result | None, report: Path | None, rungs: Sequence[Result] = ()) -> None:
        """Record the result, and that of every rung if there are several."""
        self.run.results = None if result is None else results(result)
        self.run.rungs = [results(each) for each in rungs] if len(rungs) > 1 else []
        self.run.report = None if report is None else str(report)
        self._end("done", 0)

    def failed(self, error: BaseException) -> None:
        """Record why the run failed. If the disk is full, the record keeps saying `running`."""
        self.run.error = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, UserError):
            self.run.error = f"{type(error).__name__}: {self.run.error}"
        with suppress(OSError):
            self._end("failed", 2 if isinstance(error, UserError) else 1)

    def interrupted(self) -> None:
        """Record that the run was interrupted."""
        with suppress(OSError):
            self._end("interrupted", 130)

    def _end(self, status: Status, exit_code: int) -> None:
        self.run.status, self.run.exit_code = status, exit_code
        self.run.seconds = round(time.perf_counter() - self._start, 3)
        self._write()

    def _write(self) -> None:
        write_json(self._path, dataclasses.asdict(self.run))


def results(result: Result) -> ComparisonRecord:
    """Return the record of a comparison: the numbers of every arm, with differences from the first."""
    rows = []
    for place, each in enumerate(result.arms):
        compared = result.comparisons.get((0, place))
        record, counts = each.arm.record, each.arm.counts
        rows.append(
            ArmRecord(
                key=each.key,
                label=each.label,
                tokenizer=each.arm.artifact.name,
                training=None if record is None else record.name,
                counts=None if counts is None else counts.name,
                shards=each.training.name,
                heldout=each.heldout.name,
                lms=[artifact.name for artifact in each.lms],
                evaluations=[artifact.name for artifact in each.artifacts],
                vocab_size=each.tokenizer.vocab_size,
                bytes_per_token=each.scores.bytes_per_token,
                bits_per_byte=each.scores.bits_per_byte,
                interval=each.scores.bits_per_byte_interval,
                percent=None if compared is None else compared.percent,
                percent_interval=None if compared is None else compared.interval,
                withheld=each.barred if compared is None else compared.withheld,
                settings=each.arm.settings,
            )
        )
    return ComparisonRecord(arms=rows, confidence=result.arms[0].scores.confidence)


def load(path: Path) -> Run:
    """Read a `run.json`.

    Raises:
        UserError: If the file is not the record of a run.
    """
    try:
        values = read_json(path)
        found = values.get("results")
        rungs = [ComparisonRecord.load(each) for each in values.get("rungs", [])]
        run = Run(**{**values, "results": None if found is None else ComparisonRecord.load(found), "rungs": rungs})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path} is not the record of a run; delete it, or its folder") from None
    run.folder = str(path.parent.resolve())  # it may have been moved
    return run


def find(folder: Path) -> list[Run]:
    """Return the runs in a folder and its subfolders; cells of a sweep are in their order."""
    found = [load(path) for path in folder.rglob(RECORD)]
    return sorted(found, key=lambda run: (run.number is None, run.number, run.folder))
