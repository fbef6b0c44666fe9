"""SIGTERM, Ctrl-C and missing extras: one line of output and the conventional exit code from the first import on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes that a shell reports for processes ended by these signals."""
_WORDS = {signal.SIGINT: b"interrupted\n", signal.SIGTERM: b"terminated\n"}


def exit_at_once() -> None:
    """End the process with one line on either signal, while a command is still importing.

    An exception would be raised inside an import, and end in a traceback or in another error with exit code 1. There
    is nothing to save or to clean up yet. A signal that the parent process ignores stays ignored.
    """
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, _WORDS[signal.Signals(number)])
    os._exit(128 + number)


def explain_missing_extras() -> None:
    """End the process with one line and exit code 2 if one of its imports needs an extra."""

    def explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from tokenizer.extras import MissingExtra

        if issubclass(kind, MissingExtra):
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = explain


def restore() -> None:
    """Undo `exit_at_once`: Ctrl-C raises `KeyboardInterrupt`, SIGTERM ends the process."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is _exit:
            signal.signal(number, handler)


def describe(stop: KeyboardInterrupt) -> tuple[str, int]:
    """Return what ended a command, "interrupted" or "terminated", and its exit code."""
    from lm.train.interrupt import Terminated  # not at the top: `exit_at_once` comes before other imports

    return ("terminated", TERMINATED) if isinstance(stop, Terminated) else ("interrupted", INTERRUPTED)


_stop: type[KeyboardInterrupt] | None = None
"""What a signal raised during `stoppable`."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block, SIGINT raises `KeyboardInterrupt` and SIGTERM its subclass `Terminated`.

    Only the main thread receives signals, so in any other thread this does nothing.
    """
    global _stop
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from lm.train.interrupt import Terminated

    def raise_stop(number: int, frame: FrameType | None) -> NoReturn:
        global _stop
        _stop = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        raise _stop

    _stop = None
    before = {number: signal.getsignal(number) for number in _WORDS}
    if before[signal.SIGINT] in (_exit, signal.default_int_handler):
        signal.signal(signal.SIGINT, raise_stop)
    if before[signal.SIGTERM] != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, raise_stop)
    try:
        with unmasked():
            yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: the handler was not installed from Python
                signal.signal(number, handler)


@contextmanager
def unmasked() -> Iterator[None]:
    """If the block fails after a signal in `stoppable`, raise the signal's exception instead of the error.

    A signal may interrupt a library anywhere, and its cleanup may then fail with another error (OmegaConf's does). Ray
    replaces all exceptions of signal handlers by `KeyboardInterrupt`.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if _stop is not None and type(error) is not _stop:
            raise _stop from None
        raise
