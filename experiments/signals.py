"""SIGTERM as Ctrl-C: what schedulers send is as good a reason to stop in order."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lm.interrupt import Terminated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""The exit codes that a shell gives processes which these signals ended."""


@contextmanager
def terminating() -> Iterator[None]:
    """Let SIGTERM raise `Terminated`, a `KeyboardInterrupt`, in the block.

    Signals reach the main thread alone, so in any other thread this does nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
