"""Everything that depends on the operating system: its modules, calls, signals and permissions are used here alone.

Linux and macOS have all of them; each function says what Windows gets instead. `make lint` finds what Windows lacks in
other modules (`mypy --platform win32`). Nothing slow is imported here, because every command starts with it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.platform == "win32":
    import msvcrt

    HANG_UP, PIPE_CLOSED = signal.SIGBREAK, 13  # sent when a console is closed; there is no signal for a closed pipe
else:
    import fcntl
    import resource

    HANG_UP, PIPE_CLOSED = signal.SIGHUP, signal.SIGPIPE


def sync(path: Path) -> None:
    """Flush a file or a folder to the device.

    Windows flushes only files that are open for writing, and opens no folders: its file system orders renames itself.
    """
    if sys.platform == "win32":
        if path.is_dir():
            return
        handle = os.open(path, os.O_RDWR | os.O_BINARY)
    else:
        handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_for_lock(path: Path) -> int:
    """Open a file or a folder for `lock`.

    Raises:
        PermissionError: On Windows, which locks no folders. What a killed writer left there stays.
    """
    try:
        return os.open(path, os.O_RDWR)  # NFS locks only files that are open for writing
    except IsADirectoryError:
        return os.open(path, os.O_RDONLY)


def lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file or folder until it is closed; return whether it is locked.

    Args:
        handle: Descriptor of `open_for_lock`.
        wait: Wait for the process that has the lock; on Windows at most ten seconds.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            raise
        return False
    return True


def share(path: Path) -> None:
    """Give a file the permissions of its folder: safetensors writes files that only their owner can read.

    Windows has its access lists for that, and `chmod` changes nothing.
    """
    path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def sparse_file() -> Iterator[tuple[IO[bytes], str]]:
    """A temporary file with holes, and a path by which other software opens it within the block.

    On Linux it is in memory, and its holes take no space. Windows fills holes.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("superbpe"), "w+b") as file:
            yield file, f"/dev/fd/{file.fileno()}"
    else:
        import tempfile

        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with folder as name, (Path(name) / "content").open("w+b") as file:
            yield file, file.name


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes, on Linux since the last call; on Windows 0, unknown."""
    with suppress(OSError):  # not Linux, or not permitted; and Linux's `ru_maxrss` is inherited from the parent
        peak = Path("/proc/self/status").read_text("ascii").partition("VmHWM:")[2].split()[0]
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        return int(peak) * 1024
    peak_bytes = 0
    if sys.platform != "win32":
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak_bytes


def limit_process(seconds: int, n_bytes: int) -> None:
    """Limit CPU time and memory of this process, as far as the system can: Windows neither, macOS not memory."""
    if sys.platform != "win32":
        for name, value in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, n_bytes), (resource.RLIMIT_CORE, 0)):
            with suppress(OSError, ValueError):
                resource.setrlimit(name, (value, value))


def n_cores() -> int:
    """Number of cores available to this process; on Windows and macOS all of the machine's."""
    cores = os.cpu_count() or 1
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    return cores
