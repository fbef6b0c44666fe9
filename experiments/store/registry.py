"""Which runs a store of artifacts knows of, and which of them go on.

An entry per run's folder in `.runs`; as long as the folder and its `run.json` are there, what the run used is needed.
A run holds a lock for as long as it lives, which dies with it.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.store.artifacts import Store
from experiments.store.runs import RECORD
from tokenizer.durable import digest, write_json
from tokenizer.files import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = ".runs"
_GATE = "clean"


class Entry(NamedTuple):
    """A run that a store knows of.

    Attributes:
        path: The entry itself.
        folder: Of the run; it may be gone.
        record: The `run.json` in it, whether or not it is there.
        alive: Whether the run goes on.
    """

    path: Path
    folder: Path
    record: Path
    alive: bool


@contextmanager
def running(store: Store, folder: Path) -> Iterator[None]:
    """Make a run known to the store, and known to be alive in the block.

    Args:
        store: Where its artifacts are.
        folder: Of the run.
    """
    where = str(folder.resolve())
    name = f"run-{digest(where)[:16]}"
    with store.lock(_GATE):  # cleaning may be going on
        alive = store.filelock(name)
        alive.acquire()
    try:
        registry = store.root / _FOLDER
        registry.mkdir(exist_ok=True)
        write_json(registry / f"{name}.json", {"folder": where})
        yield
    finally:
        alive.release()


@contextmanager
def no_new_runs(store: Store) -> Iterator[None]:
    """Let runs that start during the block wait for its end."""
    with store.lock(_GATE):
        yield


def entries(store: Store) -> list[Entry]:
    """Return the runs that a store knows of."""
    found = []
    for path in sorted((store.root / _FOLDER).glob("run-*.json")):
        folder = Path(read_json(path)["folder"])
        with store.if_free(path.stem) as free:
            found.append(Entry(path, folder, folder / RECORD, alive=not free))
    return found
