"""Results of tasks, and signs of life of running ones: files in a folder that all machines see.

A result is a record, `NAME-HASH.json`, and the file of arrays that the record lists with its checksum. A task whose
record exists is not run again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenizer.durable import replacing
from tokenizer.errors import UserError
from tokenizer.files import check_files, check_sizes, digest, read_sealed, recorded, write_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from tokenizer.progress import Progress

    Blocks = Generator[dict[str, NDArray[Any]], None, Any]
    """Named arrays of a result, block by block, so that they are not all in memory; returns JSON (the value)."""
    Beat = Callable[[int], None]
    """To call with the bytes that are done."""
    Work = Callable[[Any, Beat], Blocks]
    """A function of the argument of a task."""

BEAT_SECONDS = 2.0
_SHARE = "set runner.folder to a folder that all machines of the cluster share"


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work whose result does not depend on where and how often it is done.

    Attributes:
        name: start of the names of its files.
        identity: JSON of everything that the result depends on.
        argument: argument of the function that does the work; can be pickled.
        size: bytes of text, for the progress.
    """

    name: str
    identity: Any
    argument: Any
    size: int = 0

    def file(self, folder: Path, kind: str) -> Path:
        """Path of one of its files: `json`, `data` or `beat`."""
        return folder / f"{self.name}-{digest(self.identity)[:16]}.{kind}"


@dataclass(frozen=True)
class Result:
    """Result of a task.

    Attributes:
        value: JSON.
        path: the file of arrays.
        files: its size and checksum.
        names: names of the arrays of each block.
    """

    value: Any
    path: Path
    files: dict[str, Any]
    names: list[list[str]]

    @classmethod
    def of(cls, task: Task, folder: Path, *, whole: bool = True) -> Result | None:
        """Return the result of a finished task, or None; unless it must be `whole`, its file may have been deleted."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            found = cls(path=task.file(folder, "data"), **read_sealed(task.file(folder, "json")))
            if whole:
                check_sizes(folder, found.files)
            return found
        return None

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Read the arrays, after the file has been compared with its checksum.

        Raises:
            UserError: the file is missing or damaged.
        """
        try:
            check_files(self.path.parent, self.files)
        except FileNotFoundError:
            raise UserError(f"this machine does not see {self.path}, which a task has written; {_SHARE}") from None
        except UserError as error:
            raise UserError(f"{error}; delete it, then run the same command again") from None
        with self.path.open("rb") as file, pa.CompressedInputStream(file, "zstd") as packed:
            for names in self.names:
                yield {name: np.lib.format.read_array(packed) for name in names}


def execute(work: Work, task: Task, folder: Path) -> Result:
    """Run a task on this machine, unless it is finished.

    Raises:
        UserError: this machine does not see the folder.
    """
    if not folder.is_dir():
        raise UserError(f"{socket.gethostname()} does not see {folder}; {_SHARE}")
    beat = _Beat(task, folder)
    if (known := Result.of(task, folder)) is not None:
        return known
    path, names, blocks = task.file(folder, "data"), list[list[str]](), work(task.argument, beat)
    with replacing(path) as file, pa.CompressedOutputStream(file, "zstd") as packed:
        while True:
            try:
                block = next(blocks)
            except StopIteration as end:
                value = end.value
                break
            names.append(list(block))
            for array in block.values():
                np.lib.format.write_array(packed, array, allow_pickle=False)
    record = {"value": value, "files": recorded(folder, [path.name]), "names": names}
    write_sealed(task.file(folder, "json"), record)
    return Result(path=path, **record)


def as_progress(beat: Beat) -> Progress:
    """Report the progress of a function as signs of life."""
    return lambda _what, done, _total: beat(done)


class Sign(NamedTuple):
    """Sign of life of a running task: its attempt, Ray node, machine, process, bytes of text done, and Unix time."""

    attempt: int
    node: str
    host: str
    pid: int
    done: int
    time: float

    @classmethod
    def last(cls, task: Task, folder: Path) -> Sign | None:
        """Read the last sign of life of a task; None if it has not started."""
        with suppress(OSError, ValueError, TypeError):
            return cls(*json.loads(task.file(folder, "beat").read_bytes()))
        return None


class _Beat:
    """Writes signs of life of a task; they may fail, because the work does not depend on them."""

    def __init__(self, task: Task, folder: Path) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        before = Sign.last(task, folder)
        self._sign = Sign(before.attempt + 1 if before else 1, node, socket.gethostname(), os.getpid(), 0, 0.0)
        self._path, self._due = task.file(folder, "beat"), 0.0
        self(0)

    def __call__(self, done: int) -> None:
        self._sign = self._sign._replace(done=max(done, self._sign.done), time=time.time())
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + BEAT_SECONDS
            with suppress(OSError):
                self._path.write_text(json.dumps(self._sign))
