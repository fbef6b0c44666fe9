"""Output while work runs: progress with rate and remaining time, lines, tables."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import rich.table
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from experiments.characters import harmless, visible
from experiments.numbers import duration, si
from tokenizer.files import without_credentials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

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


class Lines(str):
    """A cell of several lines. In any other printed text, a line feed is shown as a character."""

    def __new__(cls, *lines: str) -> Lines:
        """Join the lines that are not empty."""
        return super().__new__(cls, "\n".join(map(visible, filter(None, lines))))


def line(text: object, style: str = "") -> Text:
    """Return one line to print: without the secrets of URLs, and with control characters shown."""
    return Text(text if isinstance(text, Lines) else visible(without_credentials(text)), style=style)


class Table(NamedTuple):
    """A table of a page or of the terminal; further `Lines` of a cell are remarks.

    Attributes:
        text: Columns of text, which are left-aligned; the others are right-aligned.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Collection[int] = (0,)

    def cut(self, rows: int | None = None, columns: int | None = None) -> Table:
        """The first rows and columns; None for all of them."""
        return self._replace(header=self.header[:columns], rows=[row[:columns] for row in self.rows[:rows]])


def print_table(table: Table, to: Console = console) -> None:
    """Print a table whose words are never broken; one that is too wide for the terminal becomes a list."""
    header, *rows = ([line(cell).plain for cell in row] for row in (table.header, *table.rows))
    columns = list(zip(header, *rows, strict=True))
    least = [max((cell_len(word) for cell in cells for word in cell.split()), default=0) for cells in columns]
    wanted = [max(map(cell_len, "\n".join(cells).split("\n"))) - n for cells, n in zip(columns, least, strict=True)]
    spare = to.width - sum(least) - 2 * len(header)
    to.print(line(table.title, "bold"), soft_wrap=True)  # it may be a command, to be copied
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
    drawn = rich.table.Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(header):
        drawn.add_column(Text(name), justify="left" if i in table.text else "right", width=widths[i])
    for row in rows:
        drawn.add_row(*map(Text, row))
    to.print(drawn)


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
        self._prefix = prefix
        self._may_draw = alone and target.is_terminal
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

    def table(self, table: Table) -> None:
        """Print a table. Print nothing if lines have a prefix."""
        for text in [table.title, *(" | ".join(row) for row in (table.header, *table.rows))]:
            self.detail(visible(text))
        if not self._prefix:
            print_table(table, self._console)


def quiet() -> Reporter:
    """A reporter that shows nothing; errors and warnings appear as Python shows them."""
    return Reporter(_HarmlessConsole(quiet=True))
