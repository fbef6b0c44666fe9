"""Tasks whose results are files that all machines see: a task whose result exists is never run again."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from experiments.cluster.heartbeat import STOP_SECONDS, Beat, ask_to_stop, last_beat
from experiments.store.cache import bucket_of
from tokenizer.durable import remove_folder
from tokenizer.errors import UserError
from tokenizer.files import digest, is_remote, read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from experiments.config import RunnerConfig

ATTEMPTS = 12
"""Attempts per task, of which each ended with its worker."""
_PROGRESS_SECONDS = 1200.0
"""A patient task that ran this long before its worker was lost has saved checkpoints (by default every ten minutes), so
its attempts count anew."""
_POLL_SECONDS = 0.5
_STRAGGLES = 4
"""A task that takes longer than this multiple of the median gets a copy, whichever finishes first counts."""
_LEAST_STRAGGLER_SECONDS = 10.0
_VISIBLE_SECONDS = 60.0
"""Time for a file that another machine has written to appear, on a file system that caches folders."""
REMEDY = "delete it, then run the same command again"
"""What to do about damaged data of a task."""
_LOOK_UPS = 32
"""Results that are looked for at the same time; each takes a request or two in a bucket."""
_logger = logging.getLogger(__name__)


class LostError(Exception):
    """The worker of a task died, or its machine did, or one of the processes that the task started."""


@dataclass(frozen=True)
class Task:
    """A piece of work whose result does not depend on where and how often it is done.

    Attributes:
        name: start of the names of its files.
        identity: what the result depends on, as JSON; part of the names of its files. None for a call that keeps its
            own results.
        call: function of the values that all tasks share, and of the path for its data, that returns a small result:
            JSON, unless the call keeps its own results. It can be pickled.
        size: bytes of text, for the progress.
        gpus: GPUs that it takes.
    """

    name: str
    identity: Any
    call: Callable[[Any, Path], Any]
    size: int = 0
    gpus: int = 0

    @property
    def stem(self) -> str:
        """Names of its files without their extensions."""
        return f"{self.name}-{digest(self.identity)[:16]}"

    def data(self, folder: Path) -> Path:
        """The path for its data."""
        return folder / f"{self.stem}.data"


class Result(NamedTuple):
    """Result of a task: what its call returned, and the path that was passed to it."""

    value: Any
    data: Path


def returned(task: Task, folder: Path) -> Any:
    """What the call of a finished task returned, or None; its data may be deleted."""
    if task.identity is None:
        return None
    with suppress(FileNotFoundError, ValueError):
        return read_sealed(folder / f"{task.stem}.json")["value"]
    return None


def finished(task: Task, folder: Path) -> Any:
    """What the call of a finished task returned, or None; a task whose data was deleted is not finished."""
    value = returned(task, folder)
    return value if value is not None and task.data(folder).exists() else None


def execute(task: Task, shared: Any, folder: Path) -> dict[str, Any]:
    """Run a task on this machine, unless it is finished.

    Returns:
        `{"value": ...}`, `{"error": ...}` for the user, or `{"lost": ...}` if the task must be run again.
    """
    if (value := finished(task, folder)) is None:
        try:
            value = task.call(shared, task.data(folder))
        except UserError as error:
            return {"error": str(error)}
        except LostError as error:
            return {"lost": str(error)}
        if task.identity is not None:
            write_sealed(folder / f"{task.stem}.json", {"value": value})
    return {"value": value}


class Backend(Protocol):
    """Runs `execute` elsewhere.

    Attributes:
        watched: whether a task starts soon after it was submitted, so that slow and hanging tasks can be told from
            waiting ones.
        needs_files: whether the folder of a task must be on a file system.
    """

    watched: bool
    needs_files: bool

    def several_machines(self) -> bool:
        """Whether tasks may run on machines that do not see this one's folders."""

    def slots(self) -> int:
        """Number of tasks to keep submitted."""

    def gpus(self) -> int | None:
        """GPUs of the machine that has the most; None if this is unknown."""

    def share(self, value: Any) -> Any:
        """Make a value available to all tasks; returns what `submit` takes."""

    def submit(self, tasks: Sequence[Task], shared: Any, folder: Path, *, extra: bool = False) -> list[Any]:
        """Start tasks, `extra` ones in addition to those that fill the machines; returns a handle for each."""

    def wait(self, handles: Sequence[Any], seconds: float) -> list[Any]:
        """Wait until a task has ended; returns the handles of those that have."""

    def outcome(self, handle: Any) -> dict[str, Any]:
        """What `execute` returned.

        Raises:
            LostError: the worker died.
            Exception: what `execute` raised.
        """

    def cancel(self, handle: Any) -> None:
        """End a task, if it runs."""


@dataclass
class _Attempt:
    index: int
    beat: Beat | None = None
    started: float = field(default_factory=time.monotonic)
    heard: float | None = None


def _call(argument: Any, function: Callable[[Any], Any], _: Path) -> Any:
    return function(argument)


class Cluster:
    """Runs tasks on a backend: repeats what was lost, copies what is slow, and gives up what hangs.

    Args:
        backend: where tasks run.
        runner: settings.
    """

    def __init__(self, backend: Backend, runner: RunnerConfig) -> None:
        self._backend, self._timeout, self._folder = backend, runner.timeout_s, runner.folder
        self.slots, self.gpus = backend.slots, backend.gpus
        self.threads = runner.threads or 1
        self.part_bytes = runner.part_mb * 1_000_000

    @contextmanager
    def results(self, folder: Path) -> Iterator[Path]:
        """Yield the folder for the results of an artifact's tasks, which is deleted when the block succeeds.

        It is in `runner.folder`, or else in the folder of the artifact.

        Args:
            folder: the unfinished folder of the artifact.
        """
        shared = self.shared(folder.parent)
        parts = folder.resolve() / "parts" if shared is None else shared / folder.name
        yield parts
        remove_folder(parts)

    def shared(self, artifacts: Path) -> Path | None:
        """The folder for results that all machines share; None for that of the artifacts.

        Raises:
            UserError: it would be in the local cache of a bucket, which other machines do not see.
        """
        if self._folder is not None:
            if is_remote(self._folder):
                raise UserError(f"runner.folder={self._folder}: name a folder of a file system that all machines share")
            return Path(self._folder).resolve()
        if (url := bucket_of(artifacts)) is not None and self._backend.several_machines():
            raise UserError(
                f"artifacts={url} are in a cache on this machine, which others do not see: set runner.folder to a "
                "folder of a file system that all machines share"
            )
        return None

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any], folder: Path) -> Iterator[Any]:
        """Results of a function that keeps them itself, in the order of its arguments; like the builtin `map`.

        Args:
            function: can be pickled; sent to each machine once.
            arguments: can be pickled.
            folder: folder of the tasks, which all machines see.
        """
        tasks = [Task(f"call-{i:05}", None, partial(_call, argument)) for i, argument in enumerate(arguments)]
        with closing(self.run(tasks, function, folder)) as results:
            for result in results:
                yield result.value

    def run(
        self,
        tasks: Sequence[Task],
        shared: Any,
        folder: Path,
        report: Callable[[int], None] | None = None,
        *,
        patient: bool = False,
        silence: float | None = None,
    ) -> Generator[Result]:
        """Run tasks; yields their results in order. When the iterator is closed, tasks that run are cancelled.

        Patient tasks that have started are first asked to stop, and get `STOP_SECONDS` for it.

        Args:
            tasks: the tasks.
            shared: first argument of their calls.
            folder: folder for results, which all machines see.
            report: called with the bytes of the finished tasks, and those that the others have reported (`Heartbeat`).
            patient: whether tasks may take any time, so that slow ones are not copied.
            silence: seconds without progress after which a patient task that has reported some is given up and started
                again; None for no limit.

        Raises:
            UserError: a task raised one, lost its worker too often, or wrote its data where this process cannot see it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_LOOK_UPS) as pool:
            values = list(pool.map(partial(finished, folder=folder), tasks))
        results = {i: value for i, value in enumerate(values) if value is not None}
        state = _Run(self._backend, silence if patient else self._timeout, tasks, folder, results, patient=patient)
        try:
            for i, task in enumerate(tasks):
                while i not in results:
                    state.step(shared)
                    if report is not None:
                        report(state.done)
                state.top_up(shared)  # before the caller spends time on the result
                data = task.data(folder)
                if task.identity is not None:
                    wait_for(data)
                yield Result(results[i], data)
        finally:
            state.cancel()


class _Run:
    def __init__(
        self,
        backend: Backend,
        timeout: float | None,
        tasks: Sequence[Task],
        folder: Path,
        results: dict[int, Any],
        *,
        patient: bool,
    ) -> None:
        self.patient, self.watched = patient, backend.watched and not patient
        self.backend, self.timeout, self.tasks, self.folder, self.results = backend, timeout, tasks, folder, results
        self.waiting = deque(i for i in range(len(tasks)) if i not in results)
        self.attempts: dict[Any, _Attempt] = {}
        self.lost = [0] * len(tasks)
        self.reported = [0] * len(tasks)
        self.seconds: list[float] = []
        self.shared: Any = None

    @property
    def done(self) -> int:
        """Bytes of the finished tasks, and those that the others have reported."""
        return sum(
            task.size if i in self.results else min(task.size, self.reported[i]) for i, task in enumerate(self.tasks)
        )

    def top_up(self, shared: Any) -> None:
        """Keep some tasks more submitted than run at once, so that no worker waits for this process."""
        slots = self.backend.slots()
        wanted = slots + (slots + 1) // 2 - len(self.attempts)
        if chosen := [self.waiting.popleft() for _ in range(min(wanted, len(self.waiting)))]:
            self._submit(chosen, shared)

    def _submit(self, chosen: list[int], shared: Any, *, extra: bool = False) -> None:
        if self.shared is None:
            self.shared = self.backend.share(shared)
        attempts = [_Attempt(i, self._beat(i)) for i in chosen]  # an earlier attempt may have written beats
        handles = self.backend.submit([self.tasks[i] for i in chosen], self.shared, self.folder, extra=extra)
        self.attempts.update(zip(handles, attempts, strict=True))

    def _beat(self, index: int) -> Beat | None:
        return last_beat(self.tasks[index].data(self.folder)) if self.patient else None

    def step(self, shared: Any) -> None:
        """Submit, wait a moment, and take what has ended."""
        self.top_up(shared)
        for handle in self.backend.wait(list(self.attempts), _POLL_SECONDS):
            attempt = self.attempts.pop(handle)
            if attempt.index in self.results:
                continue
            try:
                outcome = self.backend.outcome(handle)
            except LostError as error:
                outcome = {"lost": str(error)}
            if "lost" in outcome:
                if self.patient and time.monotonic() - attempt.started > _PROGRESS_SECONDS:
                    self.lost[attempt.index] = 0
                self._lose(attempt.index, outcome["lost"])
                self.waiting.appendleft(attempt.index)
                continue
            if "error" in outcome:
                raise UserError(outcome["error"])
            self.results[attempt.index] = outcome["value"]
            self.seconds.append(time.monotonic() - attempt.started)
            for copy in [other for other, each in self.attempts.items() if each.index == attempt.index]:
                self.backend.cancel(copy)
                del self.attempts[copy]
        if self.patient:
            self._listen(shared)
        if self.watched:
            self._watch(shared)

    def _listen(self, shared: Any) -> None:
        """Read the progress of tasks, and replace those that have shown none for too long. A task may wait to start."""
        now = time.monotonic()
        for handle, attempt in list(self.attempts.items()):
            beat = self._beat(attempt.index)
            if beat is not None and beat != attempt.beat:
                attempt.beat, attempt.heard = beat, now
                self.reported[attempt.index] = max(self.reported[attempt.index], beat.done)
            elif attempt.heard is not None and self.timeout is not None and now - attempt.heard > self.timeout:
                self._give_up(handle, f"it showed no progress for runner.timeout_s={self.timeout:g} seconds", shared)

    def _watch(self, shared: Any) -> None:
        """Replace tasks that hang; copy slow ones once no others are left to start."""
        now = time.monotonic()
        for handle, attempt in list(self.attempts.items()):
            if self.timeout is not None and now - attempt.started > self.timeout:
                self._give_up(handle, f"it took longer than runner.timeout_s={self.timeout:g}", shared)
        if self.waiting or not self.seconds or len(self.attempts) >= self.backend.slots():
            return
        limit = max(_LEAST_STRAGGLER_SECONDS, _STRAGGLES * statistics.median(self.seconds))
        indices = [attempt.index for attempt in self.attempts.values()]
        slow = [a.index for a in self.attempts.values() if now - a.started > limit and indices.count(a.index) == 1]
        if slow:
            self._submit(slow[:1], shared)

    def _give_up(self, handle: Any, why: str, shared: Any) -> None:
        self.backend.cancel(handle)
        index = self.attempts.pop(handle).index
        self._lose(index, why)
        self._submit([index], shared, extra=True)  # the old worker may keep its place

    def _lose(self, index: int, why: str) -> None:
        self.lost[index] += 1
        if self.lost[index] >= ATTEMPTS:
            raise UserError(
                f"task {self.tasks[index].name} failed {ATTEMPTS} times without an error of its own, the last time "
                f"because {why}; if memory is short, lower runner.part_mb, runner.memory_mb or runner.workers"
            )

    def cancel(self) -> None:
        """End all tasks that run."""
        started = [handle for handle, attempt in self.attempts.items() if attempt.heard is not None]
        try:
            self._cancel([handle for handle in self.attempts if handle not in started])
            if started:
                started = self._stop(started)
        finally:
            self._cancel(started)
            self.attempts.clear()

    def _cancel(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            with suppress(Exception):  # the backend may be gone
                self.backend.cancel(handle)

    def _stop(self, handles: list[Any]) -> list[Any]:
        """Ask tasks to stop, and wait until they have; return those that have not."""
        _logger.warning(
            "waiting up to %.0f s for %d tasks to write their checkpoints; Ctrl-C ends them at once",
            STOP_SECONDS,
            len(handles),
        )
        deadline = time.monotonic() + STOP_SECONDS
        with suppress(Exception):
            ask_to_stop(self.folder)
            while handles and time.monotonic() < deadline:
                ended = self.backend.wait(handles, _POLL_SECONDS)
                handles = [handle for handle in handles if handle not in ended]
        return handles


def wait_for(data: Path) -> None:
    """Wait for the data of a finished task to appear on this machine.

    Raises:
        UserError: it does not.
    """
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while not data.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"a task has written {data}, which this machine does not see; set runner.folder to a folder that all "
                "machines of the cluster share"
            )
        time.sleep(_POLL_SECONDS)
