"""How long work reports where it is, and how many threads it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tokenizer.errors import UserError, check_whole

Progress = Callable[[str, int, int | None], None]
"""Called with (what is counted, done, total or None), at most about ten times a second."""

THREADS_VARIABLE = "SUPERBPE_THREADS"


class Throttle:
    """Passes on a report when a tenth of a second has gone by since the last one."""

    def __init__(self, progress: Progress | None, what: str, total: int | None = None) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._next = 0.0
        self._last = -1

    def __call__(self, done: int) -> None:
        """Reports `done` if it is time."""
        if self._progress is not None and time.monotonic() >= self._next:
            self.finish(done)

    def finish(self, done: int) -> None:
        """Reports whatever the time; a repeated figure is left out."""
        if self._progress is not None and done != self._last:
            self._progress(self._what, done, self._total)
            self._last = done
            self._next = time.monotonic() + 0.1


def thread_count(threads: int | None) -> int:
    """The argument, else the environment variable SUPERBPE_THREADS, else the cores this process may use."""
    if threads is None:
        setting = os.environ.get(THREADS_VARIABLE)
        if setting is None:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not setting.isdigit():
            raise UserError(f"{THREADS_VARIABLE}={setting!r} is not a number of threads; use 1 or more")
        threads = int(setting)
    check_whole("threads", threads, 1)
    return threads
