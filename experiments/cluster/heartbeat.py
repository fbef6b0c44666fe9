"""Progress of long tasks, and the request to stop them: a small file each way in the folder of the tasks."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tokenizer.durable import write_whole
from tokenizer.errors import UserError

STOP_SECONDS = 20.0
"""Time for tasks to write their checkpoints after the request to stop."""
_INTERVAL_SECONDS = 1.0
_STOP = "stop"


class Beat(NamedTuple):
    """What a task has written.

    Attributes:
        done: bytes of text that it has read.
        time: Unix time on its machine; different in every beat.
    """

    done: int
    time: float


class Heartbeat:
    """Writes the progress of a task every few seconds.

    Args:
        data: the path that the task's call receives.
    """

    def __init__(self, data: Path) -> None:
        self._path, self._next = data.with_suffix(".progress"), 0.0

    def __call__(self, done: int) -> None:
        """Write the progress if it is due. The task does not depend on it, so a failure is ignored.

        Raises:
            KeyboardInterrupt: the task is asked to stop.
        """
        if time.monotonic() < self._next:
            return
        with suppress(OSError, UserError):
            write_whole(self._path, json.dumps(Beat(done, time.time())))
            # After the write: on NFS, it makes this machine look at the folder again.
            if (self._path.parent / _STOP).exists():
                raise KeyboardInterrupt
        self._next = time.monotonic() + _INTERVAL_SECONDS


def last_beat(data: Path) -> Beat | None:
    """What a task has written last; None if there is nothing to read yet."""
    with suppress(OSError, ValueError, TypeError):
        return Beat(*json.loads(data.with_suffix(".progress").read_bytes()))
    return None


def ask_to_stop(folder: Path) -> None:
    """Ask all tasks of a folder to stop."""
    write_whole(folder / _STOP, "")
