"""Run work in a forked process that is killed before one of its steps in the file system."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def killed(folder: Path, step: int, work: Callable[[], object]) -> bool:
    """Whether the process died before step number `step` (from 0) on files below `folder`; it may have fewer."""
    if (child := os.fork()) == 0:
        steps = itertools.count()

        def kill(event: str, arguments: tuple[object, ...]) -> None:
            if event in _STEPS and str(folder) in str(arguments[0]) and next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
