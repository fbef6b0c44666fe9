"""Registry of the runs that use a store of artifacts.

`.runs` has one entry per run of this machine. As long as the run's folder and its `run.json` exist, the artifacts that
it used are needed. A live run holds a lock, which is released when its process ends.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.store.runs import RECORD, load
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import digest, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from experiments.store.artifacts import Store

_FOLDER = ".runs"


class Entry(NamedTuple):
    """A registered run.

    Attributes:
        path: File of the entry.
        folder: Folder of the run, which may no longer exist.
        alive: Whether the run is still running.
    """

    path: Path
    folder: Path
    alive: bool

    @property
    def record(self) -> Path:
        """Path of the run's `run.json`, which may no longer exist."""
        return self.folder / RECORD


@contextmanager
def running(store: Store, folder: Path) -> Iterator[None]:
    """Register a run with the store, and mark it as alive in the block.

    Args:
        store: Store of the run's artifacts.
        folder: Folder of the run.
    """
    where = str(folder.resolve())
    name = f"run-{digest(where)[:16]}"
    with ExitStack() as alive:
        with no_new_runs(store):  # waits for `superbpe status --clean`, if it is running
            alive.enter_context(store.lock(name))
        (store.root / _FOLDER).mkdir(parents=True, exist_ok=True)
        write_json(store.root / _FOLDER / f"{name}.json", {"folder": where})
        yield


def no_new_runs(store: Store) -> AbstractContextManager[None]:
    """Make runs that start during the block wait until it ends."""
    return store.lock("clean")


def entries(store: Store) -> list[Entry]:
    """Return the registered runs of a store."""
    runs = []
    for path in sorted((store.root / _FOLDER).glob("run-*.json")):
        with store.if_free(path.stem) as free:
            runs.append(Entry(path, Path(read_json(path)["folder"]), alive=not free))
    return runs


def arm_labels(store: Store) -> dict[str, list[str]]:
    """Return the labels of the arms that used each artifact, as the records of finished runs name them."""
    labels: dict[str, dict[str, None]] = {}
    for entry in entries(store):
        with suppress(OSError, UserError):  # the folder of the run is gone or damaged
            results = load(entry.record).results
            for arm in results.arms if results is not None else []:
                used = (arm.tokenizer, arm.training, arm.shards, arm.heldout, *arm.lms, *arm.evaluations)
                for name in filter(None, used):
                    labels.setdefault(name, {})[arm.label] = None
    return {name: list(arms) for name, arms in labels.items()}
