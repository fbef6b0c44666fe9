"""The process of a command: signals end it with one line from the first import on, and its streams are usable."""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_WORDS = {signal.SIGINT: b"interrupted\n", signal.SIGTERM: b"terminated\n"}
"""The line printed after a signal; `_add_hang_up` adds one."""


def prepare() -> None:
    """Prepare the process of a command, before its slow imports.

    SIGINT, SIGTERM and SIGHUP end it at once with one line: an exception would be raised inside an import, and end in a
    traceback or in another error. A signal that the parent process ignores stays ignored. Signals at the interpreter's
    exit are ignored: the work is done, and Python would restore the default handlers, which end the process silently.

    Standard streams that the parent process closed are opened on the null device, since otherwise the next file gets
    their number and everything that is printed. Characters that an encoding lacks (cp1252 has no check mark) are
    printed as question marks, by child processes too.
    """
    _handle()
    _add_hang_up()
    _handle()
    atexit.register(_ignore)  # runs last, after threads have been joined
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            os.environ["PYTHONIOENCODING"] = f"{stream.encoding}:replace"


def _handle() -> None:
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _add_hang_up() -> None:
    from tokenizer.system import HANG_UP  # an import, during which the others are handled already

    _WORDS[HANG_UP] = b"hung up\n"


def _exit_if_stuck(number: int) -> None:
    """End the process if it waits for a tokenizer that other software runs, which ignores signals."""
    software = sys.modules.get("tokenizer.external.software")
    if software is not None and software.running:
        _exit(number, None)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, _WORDS[signal.Signals(number)])
    os._exit(128 + number)


def _ignore() -> None:
    for number in _WORDS:
        signal.signal(number, signal.SIG_IGN)


def restore() -> None:
    """Undo `prepare`: Ctrl-C raises `KeyboardInterrupt`, the other signals end the process."""
    for number in _WORDS:
        if signal.getsignal(number) is _exit:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block, SIGINT raises `KeyboardInterrupt`, and SIGTERM and SIGHUP its subclasses.

    A signal may interrupt a library anywhere, and its cleanup may then fail with another error (OmegaConf's does; Ray
    replaces all exceptions of signal handlers). After a signal, the block therefore raises the signal's exception.

    Only the main thread receives signals, so in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from lm.train.interrupt import STOPS  # not at the top: `prepare` comes before other imports

    _add_hang_up()
    stop: type[KeyboardInterrupt] | None = None

    def raise_stop(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal stop
        stop = STOPS[signal.Signals(number)]
        timer = threading.Timer(1, _exit_if_stuck, [number])
        timer.daemon = True
        timer.start()
        raise stop

    before = {number: signal.getsignal(number) for number in _WORDS}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):  # None: the handler was not installed from Python
            signal.signal(number, raise_stop)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if stop is not None and type(error) is not stop:
            raise stop from None
        raise
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
