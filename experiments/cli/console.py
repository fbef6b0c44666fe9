"""How a command ends: errors as one line with an exit code, and the command to run next."""

from __future__ import annotations

import errno
import logging
import re
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from experiments.characters import harmless
from experiments.cli.process import stoppable
from experiments.progress import PipeClosed, console, line, stderr
from experiments.shell import command_text
from lm.train.interrupt import HungUp, Terminated
from tokenizer.errors import UserError, missing_extra
from tokenizer.files import shown, without_credentials
from tokenizer.system import HANG_UP, PIPE_CLOSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_STOPPED = {
    KeyboardInterrupt: ("interrupted", signal.SIGINT),
    Terminated: ("terminated", signal.SIGTERM),
    HungUp: ("hung up", HANG_UP),
    PipeClosed: ("the output is closed", PIPE_CLOSED),
}
"""The words printed after a stop, and the signal that ends other programs then."""


class LogRecord(logging.LogRecord):
    """The record of a log, whose message is without the secrets of URLs, and has its control characters shown."""

    def getMessage(self) -> str:
        """The message."""
        return harmless(without_credentials(super().getMessage()))


_names: Mapping[str, str] = {}


def spell(names: Mapping[str, str]) -> None:
    """Set how this command's users type settings: `{"field=": "--field "}`, with the library's names as the keys."""
    global _names
    _names = names
    logging.setLogRecordFactory(LogRecord)


def spelled(message: str) -> str:
    """Rewrite setting names in a library message to their spelling on the command line."""
    keys = "|".join(map(re.escape, sorted(_names, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.?&/'\"-])(?:{keys})", lambda found: _names[found[0]], message) if keys else message


def complain(error: BaseException) -> None:
    """Print a user error, or that a package is missing, as one line."""
    if isinstance(error, ModuleNotFoundError):
        command = f"superbpe {sys.argv[1]}: " if Path(sys.argv[0]).name == "superbpe" else ""
        error = UserError(f"{command}{missing_extra(error)}")
    message = spelled(" ".join(str(error).split()))
    _last(Text.assemble(("error: ", "bold red"), line(message)))


def _last(text: Text) -> None:
    """Print the last line of a command, if the terminal is still there and its disk is not full."""
    with suppress(OSError, PipeClosed):
        stderr.print(text, soft_wrap=True)


def complain_of_bug(error: BaseException) -> None:
    """Print the traceback of an error that is not the user's."""
    stderr.print(Text(without_credentials("".join(traceback.format_exception(error)))), soft_wrap=True, end="")


_SYSTEM_ERRORS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is exceeded; free some space or have the quota raised",
    errno.EROFS: "the file system is read-only; choose another folder",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "permission denied; change the permissions or choose another folder"),
    errno.EMFILE: "too many open files; raise the limit with `ulimit -n`",
    errno.EFBIG: "the file is larger than the disk or `ulimit -f` allows; choose another disk or raise the limit",
    errno.EIO: "the disk reports an input/output error; check the disk, or choose another folder",
    errno.ELOOP: "this symbolic link leads back to itself; remove it or choose another path",
}

# Errors without a number, by the start of their message.
_RUNTIME_ERRORS = {
    "Symlink loop from ": _SYSTEM_ERRORS[errno.ELOOP],
    "can't start new thread": "the system allows no more threads; use fewer, or raise the limit with `ulimit -u`",
}


def system_error(error: BaseException, where: str = "") -> UserError | None:
    """Describe an error of the operating system that the user can fix; None for any other error.

    Args:
        error: The error.
        where: Path to show if the error does not contain one.
    """
    if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
        place, remedy = error.filename or where, _SYSTEM_ERRORS[error.errno]
    elif isinstance(error, RuntimeError) and (start := next(filter(str(error).startswith, _RUNTIME_ERRORS), None)):
        place, remedy = str(error).removeprefix(start).strip("'"), _RUNTIME_ERRORS[start]
    else:
        return None
    return UserError(f"{place}: {remedy}, then run the same command again. Finished stages are kept".lstrip(": "))


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the source line that Python would print."""
    stderr.print(line(spelled(f"warning: {message}"), "yellow"), soft_wrap=True)


def exit_code(job: Callable[[], int | None], after_stop: str = "nothing is written") -> int:
    """Run a command's job and return the exit code: 2 for a user error, 128 + its number for a signal.

    Each of these prints one line. Otherwise the code is what the job returns, or 0. Any other exception is a bug and
    keeps its traceback.

    Args:
        job: Body of the command.
        after_stop: State that the command leaves after a signal, to print.
    """
    try:
        with stoppable(), warnings.catch_warnings():
            warnings.showwarning = _warn
            code = job()
    except (UserError, ModuleNotFoundError) as error:
        complain(error)
        return 2
    except (OSError, RuntimeError) as error:
        known = system_error(error)
        if known is None and isinstance(error, OSError):
            named = f"cannot read or write {error.filename}: {error.strerror}"
            known = UserError(str(error) if error.filename is None else named)
        if known is None:
            raise
        complain(known)
        return 2
    except KeyboardInterrupt as stop:
        how, number = _STOPPED.get(type(stop), _STOPPED[KeyboardInterrupt])
        if isinstance(stop, PipeClosed):  # perhaps after the results were written
            after_stop = "files that were written before are complete"
        _last(Text(f"\n{how}: {after_stop}", style="yellow"))
        return 128 + number  # as a shell reports a process that this signal ended
    return code or 0


def finish(*written: Path | str, then: Sequence[Path | str] = ()) -> None:
    """Print what a command wrote and the command to run next; the last lines of every command.

    Args:
        written: Files and folders.
        then: Words of the next command, without `superbpe`, as for `command_text`.
    """
    if written:
        console.print(line(f"wrote: {', '.join(map(str, written))}"), soft_wrap=True)
    if then:
        console.print(line(f"next:  {command_text(['superbpe', *then])}"), soft_wrap=True)
        if any(shown(str(word)) != str(word) for word in then):
            console.print("URLs are printed without passwords and queries: add them again, or use a variable")
