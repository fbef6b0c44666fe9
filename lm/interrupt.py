"""Ctrl-C between steps instead of inside one."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class DeferredInterrupt:
    """While active, the first Ctrl-C is only noted; a second one interrupts at once.

    Signals reach the main thread alone, so in any other thread this does nothing.
    """

    def __init__(self) -> None:
        self.pending = False
        self._previous: Any = None

    def raise_if_pending(self) -> None:
        """Raise the `KeyboardInterrupt` that was put off."""
        if self.pending:
            raise KeyboardInterrupt

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
