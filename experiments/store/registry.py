"""Registry of the runs that use a store of artifacts.

`.runs` has one entry per run. As long as the run's folder and its `run.json` exist, the artifacts that it used are
needed. A live run holds a lock, which is released when its process ends.

With artifacts in a bucket, the records of runs are in the bucket too, by machine: what a run on another machine used is
needed as well.
"""

from __future__ import annotations

import platform
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.store.artifacts import Store
from experiments.store.runs import RECORD, load
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import digest, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = ".runs"
_GATE = "clean"


class Entry(NamedTuple):
    """A registered run.

    Attributes:
        path: File of the entry.
        folder: Folder of the run, which may no longer exist.
        record: Path of the run's `run.json`, which may no longer exist.
        alive: Whether the run is still running.
    """

    path: Path
    folder: Path
    record: Path
    alive: bool


@contextmanager
def running(store: Store, folder: Path) -> Iterator[None]:
    """Register a run with the store, and mark it as alive in the block.

    Args:
        store: Store of the run's artifacts.
        folder: Folder of the run.
    """
    where = str(folder.resolve())
    name = f"run-{digest(where)[:16]}"

    def publish() -> None:
        if store.bucket is not None and (folder / RECORD).exists():
            store.bucket.keep_record(f"{_machine()}/{name}", folder / RECORD)

    with store.lock(_GATE):  # wait for `superbpe status --clean`, if it is running
        alive = store.filelock(name)
        alive.acquire()
    try:
        registry = store.root / _FOLDER
        registry.mkdir(parents=True, exist_ok=True)
        write_json(registry / f"{name}.json", {"folder": where})
        publish()  # fails early if the bucket cannot be written
        store.on_upload = publish
        yield
        publish()
    finally:
        store.on_upload = None
        alive.release()


@contextmanager
def no_new_runs(store: Store) -> Iterator[None]:
    """Make runs that start during the block wait until it ends."""
    with store.lock(_GATE):
        yield


def entries(store: Store) -> list[Entry]:
    """Return the registered runs of a store."""
    found = []
    for path in sorted((store.root / _FOLDER).glob("run-*.json")):
        folder = Path(read_json(path)["folder"])
        with store.if_free(path.stem) as free:
            found.append(Entry(path, folder, folder / RECORD, alive=not free))
    if store.bucket is not None:
        here = {(_machine(), entry.path.stem) for entry in found}
        records = store.bucket.fetch_records(store.root / _FOLDER)
        others = [path for path in records if (path.parent.parent.name, path.parent.name) not in here]
        found += [Entry(path, path.parent, path, alive=False) for path in others]
    return found


def forget(store: Store, entry: Entry) -> None:
    """Remove a run of this machine from the registry."""
    entry.path.unlink()
    if store.bucket is not None:
        store.bucket.forget_record(f"{_machine()}/{entry.path.stem}")


def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", platform.node()) or "unknown"


def arm_labels(store: Store) -> dict[str, list[str]]:
    """Return the labels of the arms that used each artifact, as the records of finished runs name them."""
    found: dict[str, list[str]] = {}
    for entry in entries(store):
        with suppress(OSError, UserError):  # the folder of the run is gone or damaged
            results = load(entry.record).results
            for arm in results.arms if results is not None else []:
                made = (arm.tokenizer, arm.training, arm.shards, arm.heldout, *arm.lms, *arm.evaluations)
                for name in filter(None, made):
                    if arm.label not in found.setdefault(name, []):
                        found[name].append(arm.label)
    return found
