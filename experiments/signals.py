"""SIGTERM as Ctrl-C: what schedulers send is as good a reason to stop in order."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""The exit code that a shell gives a process which SIGTERM ended."""


@dataclass
class Signals:
    """What came in.

    Attributes:
        terminated: Whether SIGTERM did.
    """

    terminated: bool = False


@contextmanager
def terminating() -> Iterator[Signals]:
    """Let SIGTERM do in the block what Ctrl-C does there at that moment, training's careful stop included.

    Signals reach the main thread alone, so in any other thread this does nothing.
    """
    signals = Signals()

    def handle(number: int, frame: FrameType | None) -> None:
        signals.terminated = True
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        else:  # a shell script's background process ignores Ctrl-C
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGTERM, before)
