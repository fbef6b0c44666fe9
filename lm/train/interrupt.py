"""Defer Ctrl-C, SIGTERM and SIGHUP to the end of a step."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from tokenizer.system import HANG_UP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


class HungUp(Terminated):
    """SIGHUP (SIGBREAK on Windows), handled like SIGTERM: the terminal was closed."""


STOPS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, HANG_UP: HungUp}
"""Signals that stop a command, and their exceptions. One that the parent process ignores stays ignored."""


class DeferredInterrupt:
    """While active, the first Ctrl-C, SIGTERM or SIGHUP is only recorded; a second one interrupts at once.

    Schedulers send SIGTERM some seconds before they kill a process. Only the main thread receives signals, so this does
    nothing in other threads.

    Args:
        patient: Record further signals too. `torchrun` forwards Ctrl-C to processes that have already received it from
            the terminal, and kills them itself if they take too long.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.pending = False
        self._kind: type[KeyboardInterrupt] = KeyboardInterrupt
        self._patient = patient
        self._previous: dict[int, Any] = {}

    def stop(self) -> NoReturn:
        """Raise the exception of the deferred signal."""
        raise self._kind

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Context that records a `KeyboardInterrupt` of the block itself, like a first Ctrl-C."""
        try:
            yield
        except KeyboardInterrupt as stop:
            if self.pending:  # a second signal
                raise
            self.pending, self._kind = True, type(stop)

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._kind = STOPS[signal.Signals(number)]
        if self.pending and not self._patient:
            raise self._kind
        self.pending = True
