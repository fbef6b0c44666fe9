"""Progress reports and the number of threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tokenizer.errors import check_whole
from tokenizer.system import n_cores

Progress = Callable[[str, int, int | None], None]
"""Called with (unit, done, total or None), at most about ten times per second."""

THREADS_VARIABLE = "SUPERBPE_THREADS"
MOST_THREADS = 1024
"""Upper limit: each thread takes about 20 MB, and no current machine has more cores."""


class Throttle:
    """Limits reports to one every tenth of a second."""

    def __init__(self, progress: Progress | None, what: str, total: int | None = None) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._next = 0.0
        self._last = -1

    def __call__(self, done: int) -> None:
        """Report `done` if a report is due."""
        if self._progress is not None and time.monotonic() >= self._next:
            self.finish(done)

    def finish(self, done: int) -> None:
        """Report `done` immediately, unless it was the last value reported."""
        if self._progress is not None and done != self._last:
            self._progress(self._what, done, self._total)
            self._last = done
            self._next = time.monotonic() + 0.1


def thread_count(threads: int | None) -> int:
    """The argument, or else the environment variable SUPERBPE_THREADS, or else the cores available to this process.

    Raises:
        UserError: the number is not from 1 to `MOST_THREADS`.
    """
    if threads is not None:
        check_whole("threads", threads, 1, MOST_THREADS)
        return threads
    setting = os.environ.get(THREADS_VARIABLE)
    if setting is None:
        return min(n_cores(), MOST_THREADS)
    check_whole(THREADS_VARIABLE, int(setting) if setting.isdecimal() else setting, 1, MOST_THREADS)
    return int(setting)
