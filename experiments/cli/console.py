"""Everything that a command prints: progress with rate and remaining time, tables, numbers, errors as one line."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from experiments.cli.process import stoppable
from experiments.report.characters import harmless, visible
from experiments.shell import command_text
from lm.train.interrupt import HungUp, Terminated
from tokenizer.errors import UserError, missing_extra
from tokenizer.files import shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType

# Seconds between progress lines when the output is not a terminal.
_QUIET_INTERVAL = 15.0
# Seconds over which speed is measured, and between two measurements.
_WINDOW, _SPACING = 30.0, 0.5

# Wide enough for every table where no terminal limits the width. Python has no stdout if it was closed (`>&-`).
_WIDTH = None if (sys.stdout is not None and sys.stdout.isatty()) or "COLUMNS" in os.environ else 160


class PipeClosed(KeyboardInterrupt):
    """The program that reads the output has ended, as `| head` does; handled like Ctrl-C."""


class _HarmlessConsole(Console):
    """Prints text that may come from anyone: its control characters are shown, and its markup is not interpreted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))

    def on_broken_pipe(self) -> None:
        """Print nothing more, and stop the command."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise PipeClosed


console = _HarmlessConsole(width=_WIDTH)
stderr = _HarmlessConsole(stderr=True)
_STOPPED = {
    KeyboardInterrupt: ("interrupted", signal.SIGINT),
    Terminated: ("terminated", signal.SIGTERM),
    HungUp: ("hung up", signal.SIGHUP),
    PipeClosed: ("the output is closed", signal.SIGPIPE),
}
"""What is printed after a stop, and the signal that ends other programs then."""


class Lines(str):
    """A cell of several lines. In any other printed text, a line feed is shown as a character."""

    def __new__(cls, *lines: str) -> Lines:
        """Join the lines that are not empty."""
        return super().__new__(cls, "\n".join(map(visible, filter(None, lines))))


def line(text: object, style: str = "") -> Text:
    """Return one line to print: without the secrets of URLs, and with control characters shown."""
    return Text(text if isinstance(text, Lines) else visible(without_credentials(text)), style=style)


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
    """A message of the library with its settings as this command's users type them."""
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


def si(value: float, digits: int = 3) -> str:
    """Format a number with an SI prefix.

    >>> si(94_200_000), si(512), si(0)
    ('94.2M', '512', '0')
    """
    for limit, suffix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def percent(share: float, digits: int = 1) -> str:
    """Format a share in percent.

    >>> percent(0.1274), percent(0.5, 0)
    ('12.7 %', '50 %')
    """
    return f"{100 * share:.{digits}f} %"


def signed(value: float, digits: int = 4) -> str:
    """Format a difference with its sign; one that rounds to zero has none.

    >>> signed(-0.0071), signed(25.24, 1), signed(-0.04, 1)
    ('−0.0071', '+25.2', '0.0')
    """
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if text.strip("+-0.") else text[1:]


def percent_change(value: float, base: float, digits: int = 1) -> str:
    """Format a relative change with its sign.

    >>> percent_change(1.2524, 1)
    '+25.2 %'
    """
    return f"{signed(100 * (value / base - 1), digits)} %"


def duration(seconds: float) -> str:
    """Format a number of seconds for reading.

    >>> duration(0.04), duration(8.31), duration(83), duration(7300)
    ('0.0 s', '8.3 s', '1 min 23 s', '2 h 01 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


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


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Collection[int] = (0,),
    to: Console = console,
) -> None:
    """Print a table whose words are never broken; one that is too wide for the terminal becomes a list.

    Args:
        title: Title.
        header: Names of the columns.
        rows: Cells of each row.
        text: Columns of text, which are left-aligned; the others are right-aligned.
        to: Where to print.
    """
    header, *rows = ([line(cell).plain for cell in row] for row in (header, *rows))
    columns = list(zip(header, *rows, strict=True))
    least = [max((cell_len(word) for cell in cells for word in cell.split()), default=0) for cells in columns]
    wanted = [max(map(cell_len, "\n".join(cells).split("\n"))) - n for cells, n in zip(columns, least, strict=True)]
    spare = to.width - sum(least) - 2 * len(header)
    to.print(line(title, "bold"), soft_wrap=True)  # it may be a command, to be copied
    if spare < 0:
        lines = []
        for row in rows:
            named = zip(header[1:], row[1:], strict=True)
            lines.append(Text(row[0]))
            pairs = ((" ".join(name.split()), ", ".join(cell.split("\n"))) for name, cell in named if cell)
            lines += [Text(f"  {name}: {cell}" if name else f"  {cell}") for name, cell in pairs]
        to.print(Text("\n").join(lines), soft_wrap=True)
        return
    widths = list(least)
    # Share the spare width: columns that want little of it get all they want.
    for place, i in enumerate(sorted(range(len(header)), key=lambda i: wanted[i])):
        more = min(wanted[i], spare // (len(header) - place))
        widths[i], spare = widths[i] + more, spare - more
    # Names may contain brackets, which are markup in plain strings.
    table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(header):
        table.add_column(Text(name), justify="left" if i in text else "right", width=widths[i])
    for row in rows:
        table.add_row(*map(Text, row))
    to.print(table)


class Pace:
    """Recent speed of a count that grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, done: float) -> None:
        """Record the count at this time."""
        now = time.monotonic()
        if len(self._samples) > 1 and now - self._samples[-2][0] < _SPACING:
            self._samples.pop()
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW:
            self._samples.popleft()

    @property
    def seconds(self) -> float:
        """Seconds over which the speed is measured, at most about `_WINDOW`."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    @property
    def rate(self) -> float:
        """Growth per second; 0 if it is not known yet."""
        seconds = self.seconds
        return max(self._samples[-1][1] - self._samples[0][1], 0) / seconds if seconds >= _SPACING else 0.0


class Reporter:
    """Shows the progress of one run's stages; `progress` is the callback for the other packages.

    Everything that is printed also goes to the log, and `detail` goes only there.

    Args:
        target: Where to write. A terminal gets a line that changes, anything else an occasional line.
        prefix: Prefix of every line.
        alone: Whether no other process writes to the terminal.
    """

    def __init__(self, target: Console = console, *, prefix: str = "", alone: bool = True) -> None:
        self._console = target
        self._prefix, self._may_draw = prefix, alone and target.is_terminal
        self._lock = threading.RLock()
        self._stage = ""
        self._note = ""
        self._spoke = 0.0
        self._spinner: Status | None = None
        self._what, self._done, self._pace = "", 0, Pace()
        self._total: int | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show the progress of one step while the block runs; without a terminal, every `_QUIET_INTERVAL` seconds."""
        with self._lock:
            self._stage, self._note, self._spoke = name, "", time.monotonic()
            self._reset("", 0, None)
        try:
            if self._may_draw:
                with self._console.status(line(name)) as self._spinner:
                    yield
            else:
                yield
        finally:
            self._spinner, self._stage = None, ""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` (None: unknown) units of `what` are done."""
        with self._lock:
            if what != self._what or done < self._done:
                self._reset(what, done, total)
            self._done, self._total = done, total
            self._pace.add(done)
            if self._spinner is not None:
                self._spinner.update(line(f"{self._stage}: {what} {self._status('/')}"))
            elif self._stage and not self._may_draw and time.monotonic() - self._spoke > _QUIET_INTERVAL:
                self.say(f"  {self._stage}: {what} {self._status(' of ')}")

    def note(self, text: str) -> None:
        """Show a text beside the rate, such as the loss, until the step ends or the text is replaced."""
        self._note = text

    def _reset(self, what: str, done: int, total: int | None) -> None:
        self._what, self._done, self._total, self._pace = what, done, total, Pace()

    def _status(self, of: str) -> str:
        """Amount, rate, notes and time left."""
        rate = self._pace.rate
        left = f"{duration((self._total - self._done) / rate)} left" if self._total and rate else ""
        parts = [
            f"{si(self._done)}{of}{si(self._total)}" if self._total else si(self._done),
            f"{si(rate)}/s" if rate else "",
            self._note,
            left,
        ]
        return ", ".join(filter(None, parts))

    def say(self, text: str, style: str = "") -> None:
        """Print one line, never wrapped."""
        if text or not self._prefix:
            self._print(line(f"{self._prefix}{text}", style))

    def detail(self, text: str) -> None:
        """Write a line that only a developer needs to the log."""
        logging.getLogger(__name__).info(text.strip())

    def line(self, stage: str, *, fresh: bool, seconds: float, artifact: str, what: str) -> None:
        """Print that a step is done or reused."""
        mark, took = (("✓", "green"), duration(seconds)) if fresh else (("·", "dim"), "reused")
        parts = (f" {took:>11}  ", line(f"{stage:<20}", "bold"), line(f"  {what}  "), line(artifact, "dim"))
        self._print(Text.assemble(self._prefix, mark, *parts))

    def _print(self, text: Text) -> None:
        """Print and log a line."""
        with self._lock:
            self._spoke = time.monotonic()
            self._console.print(text, soft_wrap=True)
            self.detail(text.plain)

    def table(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        """Print a table with the first column left-aligned. Print nothing if lines have a prefix."""
        for text in [title, *(" | ".join(row) for row in (header, *rows))]:
            self.detail(visible(text))
        if not self._prefix:
            print_table(title, header, rows, to=self._console)
