"""Faults in the file operations of `tokenizer.storage`: the n-th operation fails, or the process is killed at it."""

from __future__ import annotations

import errno
import io
import itertools
import os
import signal
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, cast

from tokenizer import storage
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Syncing protects against power failures only, which no test causes, and takes much of the time.
os.fsync = lambda _: None

Fault = Literal["kill", "torn", "short", "full", "eio"]
"""`kill` before the operation; `torn`: kill after half of a write; `short`: a write that stores half of the bytes,
after which the disk is full; `full`: from here on the disk has no space (ENOSPC); `eio`: one EIO."""
Operation = Literal["open", "read", "local", "write", "written", "sync", "rename", "remove", "make", "create"]

_CHANGES = {"create", "write", "written", "rename", "remove", "make"}
_GROWS = {"create", "write", "written", "sync", "rename", "make"}
FAULTS: dict[Fault, set[str]] = {
    "kill": _CHANGES,
    "torn": {"write", "written"},
    "short": {"write", "written"},
    "full": _GROWS,
    "eio": _CHANGES | {"open", "read", "local", "sync"},
}
"""The operations at which each fault can occur. A kill before an operation that changes nothing leaves the same
files as a kill before the next one that does."""


class FaultyDisk(storage.Disk):
    """A disk on which operation number `at` (from 0) fails.

    Args:
        at: Number of the operation; -1 for none.
        fault: What happens there.
        on_operation: Called with every operation and its path.
    """

    def __init__(
        self, at: int = -1, fault: Fault = "kill", on_operation: Callable[[str, str], None] | None = None
    ) -> None:
        self._at, self._fault, self._on_operation = at, fault, on_operation
        self._numbers = itertools.count()
        self._full = False

    def step(self, operation: Operation, path: Any, *, named: bool = True) -> Fault | None:
        """Count an operation, and fail at the chosen one. Returns a fault that the caller carries out by halves."""
        if self._on_operation is not None:
            self._on_operation(operation, str(path))
        name = str(path) if named else None
        if self._full and operation in _GROWS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        if next(self._numbers) != self._at:
            return None
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        self._full = self._fault in ("full", "short")
        if self._fault == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return self._fault

    def open(self, path: Path, mode: str) -> IO[bytes]:
        self.step("open" if mode == "rb" or (mode == "rb+" and path.exists()) else "create", path)
        raw = _File(path, mode, self)
        if mode == "rb":
            return cast(IO[bytes], io.BufferedReader(raw))
        return cast(IO[bytes], io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw))

    def local(self, path: Path) -> Path:
        self.step("local", path)
        return super().local(path)

    @contextmanager
    def written(self, path: Path) -> Iterator[Path]:
        fault = self.step("written", path)
        yield path
        if fault is not None:
            os.truncate(path, path.stat().st_size // 2)
            if fault == "torn":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _sync(self, path: Path) -> None:
        self.step("sync", path, named=False)  # fsync does not name the file
        super()._sync(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", source)
        super().rename(source, target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        self.step("remove", path)
        super().remove(path, missing_ok=missing_ok)

    def make_folder(self, path: Path) -> None:
        self.step("make", path)
        super().make_folder(path)

    def remove_folder(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Delete a folder file by file, each of which is an operation."""
        try:
            for inner in sorted(path.iterdir()) if path.exists() else []:
                if inner.is_dir():
                    self.remove_folder(inner)
                else:
                    self.remove(inner)
            self.step("remove", path)
            super().remove_folder(path)
        except OSError:
            if not ignore_errors:
                raise


class _File(io.FileIO):
    """A file whose reads and writes are operations of a `FaultyDisk`."""

    def __init__(self, path: Path, mode: str, disk: FaultyDisk) -> None:
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data: Any) -> int:
        fault = self._disk.step("write", self.name, named=False)
        if fault is not None:
            data = memoryview(data).cast("B")
            stored = super().write(data[: len(data) // 2])
            if fault == "torn":
                os.kill(os.getpid(), signal.SIGKILL)
            if stored:
                return stored
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self._disk.step("read", self.name, named=False)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._disk.step("read", self.name, named=False)
        return super().readall()


class Point(NamedTuple):
    """A fault at an operation of an undisturbed run: its number, what it is, and the file's name."""

    at: int
    fault: Fault
    operation: str
    name: str


def points(work: Callable[[], object]) -> list[Point]:
    """Do work in a forked process; return every fault at every operation at which it can occur."""
    with tempfile.TemporaryFile("w+") as trace:

        def note(operation: str, path: str) -> None:
            trace.write(f"{operation} {Path(path).name}\n")
            trace.flush()

        code = forked(work, FaultyDisk(on_operation=note))
        assert code == 0, code
        trace.seek(0)
        operations = [line.rstrip("\n").split(" ", 1) for line in trace]
    return [
        Point(at, fault, operation, name)
        for at, (operation, name) in enumerate(operations)
        for fault, possible in FAULTS.items()
        if operation in possible
    ]


def forked(work: Callable[[], object], disk: FaultyDisk | None = None) -> int:
    """Do work in a forked process, on a disk of its own if given.

    Returns:
        What `work` returns if it is a number, else 0; 2 for an error of the disk or of the user; -9 if it was killed.
    """
    if (child := os.fork()) == 0:
        code = 1
        if disk is not None:
            storage.disk = disk
        try:
            result = work()
            code = result if isinstance(result, int) else 0
        except (OSError, UserError):
            code = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fail(point: Point, work: Callable[[], object]) -> int:
    """Do work in a forked process with a fault; return as `forked`."""
    return forked(work, FaultyDisk(point.at, point.fault))
