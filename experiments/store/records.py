"""Records of runs, and the registry in which a store of artifacts finds them.

`run.json` in the folder of a run contains its command, its result, and the artifacts that it used. `.runs` in a store
has one entry per run of this machine: as long as the record of a run exists, its artifacts are needed. A live run holds
a lock, which is released when its process ends.
"""

from __future__ import annotations

import dataclasses
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from experiments.results import ComparisonRecord, typed
from experiments.store.manifest import command_line
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import digest, is_remote, read_json, shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from experiments.store.artifacts import Artifact, Store

FILE = "run.json"
CLEANING = "clean"  # lock of a store: runs that start while it is held wait
_FOLDER = ".runs"
_WHY = {
    "done": "it ended before a model was scored, as its --until says",
    "running": "it is still running, or was killed",
    "interrupted": "it was interrupted",
    "failed": "it failed: ",
}
"""Why a run has no result, by its status."""


@dataclass
class Record:
    """Record of a run, as stored in `run.json`.

    Attributes:
        overrides: Overrides on the command line; for a cell of a sweep, its own values.
        swept: For a cell: its values of the swept keys.
        number: For a cell: its number in the sweep.
        sweep: For a cell: folder of the sweep.
        status: Status of the run; the record of a killed process still says `running`.
        error: The failure, as one line.
        store: Folder of the artifacts.
        artifacts: Names of the artifacts that it made or used.
        results: The comparison, if the run got that far.
        rungs: With a ladder of budgets: the comparison at every budget, smallest first; `results` is the last.
        started: Start time (UTC).
    """

    folder: str
    overrides: list[str]
    swept: list[str] = field(default_factory=list)
    number: int | None = None
    status: Literal["running", "done", "failed", "interrupted"] = "running"
    error: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    store: str = "artifacts"
    artifacts: list[str] = field(default_factory=list)
    results: ComparisonRecord | None = None
    rungs: list[ComparisonRecord] = field(default_factory=list)
    report: str | None = None
    command: str = field(default_factory=command_line)
    sweep: str | None = None
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def why(self) -> str:
        """Why the run has no result."""
        return f"{_WHY[self.status]}{shorten(self.error or '', 300)}"

    def save(self) -> None:
        """Write `run.json`."""
        write_json(Path(self.folder) / FILE, dataclasses.asdict(self))

    def uses(self, artifact: Artifact[Any]) -> None:
        """Record that the run made or used an artifact."""
        if artifact.name not in self.artifacts:
            self.artifacts.append(artifact.name)
            self.save()

    def done(self, rungs: Sequence[ComparisonRecord], report: Path | None) -> None:
        """Record the result at the largest budget, and at every budget if there are several."""
        self.results = rungs[-1] if rungs else None
        self.rungs = list(rungs) if len(rungs) > 1 else []
        self.report = None if report is None else str(report)
        self.status, self.exit_code = "done", 0
        self._end()

    def failed(self, error: BaseException) -> None:
        """Record why the run failed, or that it was interrupted. If the disk is full, it keeps saying `running`."""
        if isinstance(error, KeyboardInterrupt):
            self.status, self.exit_code = "interrupted", 130
        else:
            text = without_credentials(" ".join(str(error).split())) or type(error).__name__
            known = isinstance(error, UserError)
            self.error = text if known else f"{type(error).__name__}: {text}"
            self.status, self.exit_code = "failed", 2 if known else 1
        with suppress(OSError):
            self._end()

    def _end(self) -> None:
        self.seconds = (datetime.now(UTC) - datetime.fromisoformat(self.started)).total_seconds()
        self.save()


@contextmanager
def recorded(folder: Path, overrides: Sequence[str], artifacts: str) -> Iterator[Record]:
    """The record of a run in a folder: written at once, and again if the block fails."""
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(str(folder.resolve()), list(overrides), store=recorded_place(artifacts))
    record.save()
    try:
        yield record
    except BaseException as error:
        record.failed(error)
        raise


def recorded_place(artifacts: str) -> str:
    """The folder or bucket of the artifacts as a record has it: absolute, and without the secrets of a URL."""
    return shown(artifacts) if is_remote(artifacts) else str(Path(artifacts).resolve())


def load(path: Path) -> Record:
    """Read a `run.json`.

    Raises:
        UserError: If the file is not the record of a run.
    """
    try:
        record: Record = typed(Record, read_json(path))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not the record of a run ({error}); delete it, or its folder") from None
    record.folder = str(path.parent.resolve())  # it may have been moved
    return record


def find(folder: Path) -> list[Record]:
    """Return the records in a folder and its subfolders; cells of a sweep are in their order.

    A file of another program with the same name is left out with a warning.
    """
    runs = []
    for path in folder.rglob(FILE):
        try:
            runs.append(load(path))
        except (OSError, UserError) as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    return sorted(runs, key=lambda run: (run.number is None, run.number, run.folder))


def finished(folders: Sequence[Path]) -> tuple[list[Record], list[Record]]:
    """Return the runs in these folders that finished a comparison, and the others.

    Raises:
        UserError: If a folder is missing or has no run, or none of the runs finished a comparison.
    """
    listed: list[Record] = []
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {what}; name the folder of a run or of a sweep (outputs/…)")
        inside = find(folder)
        if not inside:
            raise UserError(
                f"{folder} contains no run ({FILE} is missing); name a folder that "
                "superbpe pipeline wrote under outputs/"
            )
        listed += [run for run in inside if run.folder not in {earlier.folder for earlier in listed}]
    done = [run for run in listed if run.results is not None]
    if not done and all(run.status == "done" for run in listed):
        raise UserError("these runs have no models, only tokenizers; run their commands without --until")
    if not done:
        why = f"{listed[0].folder}: {listed[0].why}"
        raise UserError(f"none of these runs finished a comparison ({why}); run their commands again to resume them")
    return done, [run for run in listed if run.results is None]


def cells(folder: Path) -> list[Record]:
    """Return the records of the cells of the sweep in a folder."""
    return [run for run in find(folder) if run.sweep == str(folder)]


@contextmanager
def running(store: Store, folder: Path) -> Iterator[None]:
    """Register the run in a folder with the store of its artifacts, and mark it as alive in the block."""
    where = str(folder.resolve())
    name = f"run-{digest(where)[:16]}"
    with store.lock(name):  # of another run in this folder; the store is not locked while this one waits
        with store.lock(CLEANING):
            (store.root / _FOLDER).mkdir(parents=True, exist_ok=True)
            write_json(store.root / _FOLDER / f"{name}.json", {"folder": where})
        yield


def entries(store: Store) -> dict[Path, Path]:
    """Return the registered runs of a store: by the file of its entry, a run's `run.json`, which may be gone."""
    runs = {}
    for path in sorted((store.root / _FOLDER).glob("run-*.json")):
        try:
            runs[path] = Path(typed(dict[str, str], read_json(path))["folder"]) / FILE
        except (OSError, ValueError, TypeError, KeyError):
            raise UserError(f"{path} is not the entry of a run; delete it") from None
    return runs


def living(store: Store) -> Iterator[Path]:
    """Yield the folders of the runs that are still running."""
    for path, record in entries(store).items():
        with store.lock(path.stem, wait=False) as free:
            if not free:
                yield record.parent


def arm_labels(store: Store) -> dict[str, list[str]]:
    """Return the labels of the arms that used each artifact, as the records of finished runs name them."""
    labels: dict[str, dict[str, None]] = {}
    with suppress(UserError):  # an entry is damaged
        for record in entries(store).values():
            with suppress(OSError, UserError):  # the folder of the run is gone or damaged
                results = load(record).results
                for arm in results.arms if results is not None else []:
                    used = (arm.tokenizer, arm.training, arm.shards, arm.heldout, *arm.lms, *arm.evaluations)
                    for name in filter(None, used):
                        labels.setdefault(name, {})[arm.label] = None
    return {name: list(arms) for name, arms in labels.items()}
