"""Tasks on a Ray cluster. Ray schedules them, and repeats those whose worker died.

Added here: a task whose result exists is not run again, and a task that runs without progress is ended and submitted
again. A task may wait for a worker as long as it takes; a line says what it waits for.

Results and signs of life of running tasks are files in a folder that all machines see. A result is a record,
`NAME-HASH.json`, and the file of arrays that the record lists with its checksum.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter, deque
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import experiments
from lm.train.interrupt import STOPS
from tokenizer.durable import replacing
from tokenizer.errors import UserError, shortened
from tokenizer.files import check_files, check_sizes, digest, read_sealed, recorded, write_sealed
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.config import RunnerConfig
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.progress import Progress

    Blocks = Generator[dict[str, NDArray[Any]], None, Any]
    """Named arrays of a result, block by block, so that they are not all in memory; returns JSON (the value)."""
    Beat = Callable[[int], None]
    """To call with the bytes that are done."""
    Work = Callable[[Any, Beat], Blocks]
    """A function of the argument of a task."""

TASKS = "tasks"
BEAT_SECONDS = 2.0
WAIT_SECONDS = 120
"""If none of the tasks has started after this time, a line says so."""
SHARE = "set artifacts (for a bucket: SUPERBPE_CACHE) to a folder that all machines of the cluster share"
RETRIES = 11
"""Ray repeats a task this often after its worker died."""
_POLL_SECONDS = 0.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work whose result does not depend on where and how often it is done.

    Attributes:
        name: start of the names of its files.
        identity: JSON of everything that the result depends on.
        argument: argument of the function that does the work; can be pickled.
        size: bytes of text, for the progress.
        memory: bytes that it asks of Ray; 0 for any machine.
    """

    name: str
    identity: Any
    argument: Any
    size: int = 0
    memory: int = 0

    def file(self, folder: Path, kind: str) -> Path:
        """Path of one of its files: `json`, `data` or `beat`."""
        return folder / f"{self.name}-{digest(self.identity)[:16]}.{kind}"


@dataclass(frozen=True)
class Result:
    """Result of a task.

    Attributes:
        value: JSON.
        path: the file of arrays.
        files: its size and checksum.
        names: names of the arrays of each block.
        n_bytes: size of all arrays in memory.
    """

    value: Any
    path: Path
    files: dict[str, Any]
    names: list[list[str]]
    n_bytes: int

    @classmethod
    def of(cls, task: Task, folder: Path) -> Result | None:
        """Return the result of a finished task, or None."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            result = cls(path=task.file(folder, "data"), **read_sealed(task.file(folder, "json")))
            check_sizes(folder, result.files)
            return result
        return None

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Read the arrays, after the file has been compared with its checksum.

        Raises:
            UserError: the file is missing or damaged.
        """
        import pyarrow as pa

        try:
            check_files(self.path.parent, self.files)
        except FileNotFoundError:
            raise UserError(f"this machine does not see {self.path}, which a task has written; {SHARE}") from None
        except UserError as error:
            raise UserError(f"{error}; delete it, then run the same command again") from None
        with self.path.open("rb") as file, pa.CompressedInputStream(file, "zstd") as packed:
            for names in self.names:
                block = {name: np.lib.format.read_array(packed) for name in names}
                for array in block.values():
                    array.flags.writeable = False  # so that the core borrows its values
                yield block


def execute(work: Work, task: Task, folder: Path) -> Result:
    """Run a task on this machine, unless it is finished.

    Raises:
        UserError: this machine does not see the folder.
    """
    import pyarrow as pa

    if not folder.is_dir():
        raise UserError(f"{socket.gethostname()} does not see {folder}; {SHARE}")
    beat = _Beat(task, folder)
    if (finished := Result.of(task, folder)) is not None:
        return finished
    path, names, values, n_bytes = task.file(folder, "data"), list[list[str]](), list[Any](), 0

    def blocks() -> Blocks:
        values.append((yield from work(task.argument, beat)))

    with replacing(path) as file, pa.CompressedOutputStream(file, "zstd") as packed:
        for block in blocks():
            names.append(list(block))
            for array in block.values():
                np.lib.format.write_array(packed, array, allow_pickle=False)
                n_bytes += array.nbytes
    record = {"value": values[0], "files": recorded(folder, [path.name]), "names": names, "n_bytes": n_bytes}
    write_sealed(task.file(folder, "json"), record)
    return Result(path=path, **record)


def _look(_: object, __: Beat) -> Blocks:
    """Do nothing, as a task."""
    yield from ()


def folder_of_tasks(folders: Iterable[Path]) -> Path:
    """The first of unfinished artifacts that are built together, in whose `TASKS` tasks write their results.

    The others lose what an earlier attempt, which built other artifacts, has left there.
    """
    first, *others = sorted(folders)
    for folder in others:
        shutil.rmtree(folder / TASKS, ignore_errors=True)
    return first


def as_progress(beat: Beat) -> Progress:
    """Report the progress of a function as signs of life."""
    return lambda _what, done, _total: beat(done)


class Sign(NamedTuple):
    """Sign of life of a running task: its attempt, machine, bytes of text done, and Unix time."""

    attempt: int
    host: str
    done: int
    time: float

    @classmethod
    def last(cls, task: Task, folder: Path) -> Sign | None:
        """Read the last sign of life of a task; None if it has not started."""
        with suppress(OSError, ValueError, TypeError):
            return cls(*json.loads(task.file(folder, "beat").read_bytes()))
        return None


class _Beat:
    """Writes signs of life of a task; they may fail, because the work does not depend on them."""

    def __init__(self, task: Task, folder: Path) -> None:
        before = Sign.last(task, folder)
        attempt, done = (before.attempt + 1, before.done) if before is not None else (1, 0)
        self._sign = Sign(attempt, socket.gethostname(), done, 0.0)
        self._path, self._due = task.file(folder, "beat"), 0.0
        self(0)

    def __call__(self, done: int) -> None:
        self._sign = self._sign._replace(done=max(done, self._sign.done), time=time.time())
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + BEAT_SECONDS
            with suppress(OSError):
                self._path.write_text(json.dumps(self._sign), encoding="utf-8")


def connect(runner: RunnerConfig) -> Cluster | None:
    """Connect to the cluster that the settings name; None for `local`.

    Raises:
        UserError: the cluster cannot be reached, or Ray is not installed.
    """
    if runner.name == "local":
        return None
    return Cluster(started(runner), runner)


def started(runner: RunnerConfig) -> Any:
    """Return the module `ray`, connected to the cluster of `runner.address`, or to a new one of processes here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray prints a paragraph for every lost worker, which its own log files have too. `Cluster` prints a line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    import ray

    if ray.is_initialized():
        return ray
    # The machines import this package from where this one does, unless it is installed there.
    path = [str(Path(experiments.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings: dict[str, Any] = {
        "address": runner.address or "local",
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}},
        "log_to_driver": False,
        "logging_level": "error",
    }
    if runner.address is None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: slow beside any other process
        settings |= {
            "num_cpus": max(thread_count(None), runner.threads or 1),
            "object_store_memory": 200_000_000,
            "include_dashboard": False,
        }
    handlers = {number: signal.getsignal(number) for number in STOPS}
    slow = threading.Timer(15.0, _logger.warning, ["Ray has not started after 15 seconds, and may wait for minutes"])
    slow.daemon = True
    slow.start()
    try:
        host, colon, port = (runner.address or "").rpartition(":")
        if colon and port.isdigit() and "/" not in host:  # Ray would end the process if no program listens there
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        ray.init(**settings)
    except Exception as error:  # of any class: some are `Exception` itself
        why = shortened(" ".join(str(error).split()))
        if runner.address is None:
            why = f"Ray does not start on this machine: {why}; see its logs (ray/session_latest), or set runner=local"
            raise UserError(why) from None
        raise UserError(
            f"runner.address={runner.address}: no Ray cluster can be used there: {why}; start one with "
            "`ray start --head`, or set runner.address=null to start one on this machine"
        ) from None
    finally:
        slow.cancel()
        if threading.current_thread() is threading.main_thread():  # Ray replaces them
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return ray


class Cluster:
    """Runs tasks on a Ray cluster.

    Args:
        ray: the module, connected to the cluster.
        runner: settings.
    """

    def __init__(self, ray: Any, runner: RunnerConfig) -> None:
        self.threads, self.part_bytes = runner.threads or 1, runner.part_mb * 1_000_000
        self.ray, self.timeout = ray, runner.timeout_s

    def machines(self) -> list[Mapping[str, float]]:
        """Resources of each machine (`CPU`, `GPU`)."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def check_folder(self, folder: Path) -> None:
        """Check that all machines that run tasks see a folder, except for those that do not answer within a minute.

        Raises:
            UserError: a machine does not see it.
        """
        affinity = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked: dict[Any, Task] = {}
        with TemporaryDirectory(prefix=".tasks-", dir=folder.resolve(), ignore_cleanup_errors=True) as place:
            for node in self.ray.nodes():
                if node["Alive"] and node["Resources"].get("CPU", 0) >= self.threads:
                    on_node = affinity(node["NodeID"], soft=True)
                    look = self.ray.remote(num_cpus=0, scheduling_strategy=on_node)(execute)
                    task = Task("look", len(asked), None)
                    asked[look.remote(_look, task, Path(place))] = task
            for ref in self.ray.wait(list(asked), num_returns=len(asked), timeout=60)[0] if asked else ():
                self.result(ref, asked[ref])

    def result(self, ref: Any, task: Task) -> Result:
        """Return the result of a task that has ended.

        Raises:
            UserError: the task raised it, or was lost too often.
        """
        errors = self.ray.exceptions
        try:
            return self.ray.get(ref)  # type: ignore[no-any-return]
        except errors.RayTaskError as error:
            raise (error.cause or error) from error
        except errors.RayError as error:
            raise UserError(
                f"task {task.name} was lost again and again without an error of its own, the last time because "
                f"{type(error).__name__}: {shortened(error)}; if memory is short, lower runner.part_mb or "
                "runner.memory_mb, or raise runner.threads"
            ) from None

    @contextmanager
    def results(self, folder: Path) -> Iterator[Path]:
        """Yield a folder for the results of tasks. After an error it stays, so that the same command finds them."""
        yield folder.resolve()
        shutil.rmtree(folder, ignore_errors=True)

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        folder: Path,
        report: Callable[[int], None] | None = None,
        *,
        gpus: int = 0,
    ) -> Generator[Result]:
        """Run tasks; yields their results in order. When the iterator is closed, tasks that run are ended.

        Args:
            work: called with the argument of each task; yields blocks of arrays and returns JSON.
            tasks: the tasks.
            folder: folder for results, which all machines see.
            report: called with the bytes that are done, of finished and of running tasks.
            gpus: GPUs of each task.

        Raises:
            UserError: a task raised one, was lost too often, or did not see the folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        run = _Run(self, work, tasks, folder, gpus)
        try:
            for task in tasks:
                while task not in run.results:
                    run.step()
                    if report is not None:
                        report(run.done())
                run.submit()  # before the caller spends time on the result
                yield run.results[task]
        finally:
            run.cancel()

    def map_parts(
        self,
        name: str,
        work: Work,
        corpus: Corpus,
        split: Split,
        folder: Path,
        progress: Progress | None = None,
        part_bytes: int | None = None,
        key: str = "",
    ) -> Generator[Result]:
        """Work on the parts of a corpus; yields their results in order.

        Args:
            name: start of the names of the results.
            work: called with each part; returns `n_bytes` of text, and `skipped` as `part.skipped.so_far()`.
            corpus: the corpus.
            split: side of its held-out split.
            folder: folder for results, which all machines see.
            progress: called with the bytes of files read.
            part_bytes: size of a part; None for `runner.part_mb`.
            key: hash of the settings of `work`, if the folder may have results with others.

        Raises:
            UserError: there are no documents.
        """
        parts = corpus.parts(split, part_bytes or self.part_bytes)
        tasks = [
            Task(f"{name}-{i:05}", [split, part.part_identity(), key], part, part.stored_bytes)
            for i, part in enumerate(parts)
        ]
        tick, values = Throttle(progress, "bytes of files read", sum(task.size for task in tasks)), []
        with closing(self.run(work, tasks, folder, tick)) as results:
            for result in results:
                values.append(result.value)
                yield result
        corpus.check_parts(split, values)


class _Run:
    """The tasks of one call of `Cluster.run`: those that wait, those that Ray has, and the results of the others."""

    def __init__(self, cluster: Cluster, work: Work, tasks: Sequence[Task], folder: Path, gpus: int) -> None:
        self.cluster, self.ray, self.folder = cluster, cluster.ray, folder
        self.results = {task: result for task in tasks if (result := Result.of(task, folder)) is not None}
        self.finished = sum(task.size for task in self.results)  # bytes
        self.waiting = deque(task for task in tasks if task not in self.results)
        self.submitted: dict[Any, Task] = {}
        self.signs: dict[Task, tuple[Sign, float]] = {}  # of unfinished tasks: the last one, and when it was read
        self.silent: Counter[Task] = Counter()  # how often each was ended
        self.n_submitted = self.last_started = 0  # numbers of tasks in the order in which Ray gets and starts them
        self.numbers: dict[Task, int] = {}
        self.looked = self.waits_since = time.monotonic()
        self.explained = False
        self.execute = self.ray.remote(num_cpus=cluster.threads, num_gpus=gpus, max_retries=RETRIES)(execute)
        self.work = self.ray.put(work) if self.waiting else None
        self.needed = {"CPU": cluster.threads, "GPU": gpus}
        if self.waiting and not self._machines():
            why = "%d tasks wait: no machine of the Ray cluster has %d CPUs and %d GPUs, which each takes"
            _logger.warning(why, len(tasks), *self.needed.values())

    def _machines(self) -> list[Mapping[str, float]]:
        """Resources of the machines that can run a task."""
        return [has for has in self.cluster.machines() if all(has.get(x, 0) >= n for x, n in self.needed.items())]

    def done(self) -> int:
        """Bytes of the finished tasks, and those that the others have reported."""
        return self.finished + sum(min(task.size, sign.done) for task, (sign, _) in self.signs.items())

    def submit(self) -> None:
        """Keep half as many more tasks submitted as run at once, so that no worker waits for this process."""
        slots = int(self.ray.cluster_resources().get("CPU", 0)) // self.cluster.threads
        most = max(2, slots * 3 // 2)
        while self.waiting and len(self.submitted) < most:
            task = self.waiting.popleft()
            task.file(self.folder, "beat").unlink(missing_ok=True)  # of an earlier command, or a task that was ended
            self.signs.pop(task, None)
            execute = self.execute
            if task.memory:  # a task that no machine has the memory for gets the largest one for itself
                most = max((int(has.get("memory", 0)) for has in self._machines()), default=0)
                execute = execute.options(memory=min(task.memory, most))
            self.submitted[execute.remote(self.work, task, self.folder)] = task
            self.n_submitted += 1
            self.numbers[task] = self.n_submitted

    def step(self) -> None:
        """Submit, wait a moment, take the result of a task that has ended, and look at the others."""
        self.submit()
        for ref in self.ray.wait(list(self.submitted), num_returns=1, timeout=_POLL_SECONDS)[0]:
            task = self.submitted.pop(ref)
            self._listen(task, room=False)
            self.results[task] = self.cluster.result(ref, task)
            self.finished += task.size
            self.signs.pop(task, None)
        if time.monotonic() - self.looked > BEAT_SECONDS:
            self.looked = time.monotonic()
            room = self._has_room()
            for ref, task in list(self.submitted.items()):
                if self._listen(task, room=room):
                    self._end(ref, task)
            self._explain()

    def _listen(self, task: Task, *, room: bool) -> bool:
        """Read the last sign of life of a task, and report a new attempt; return whether it is silent for too long.

        With `room`, no task waits for CPUs.
        """
        sign, now, limit = Sign.last(task, self.folder), time.monotonic(), self.cluster.timeout
        number = self.numbers[task]
        before, heard = self.signs.get(task, (None, now))
        if sign is not None:
            self.last_started = max(self.last_started, number)
        elif before is not None and before.time:
            sign = before
        elif not task.memory and (number < self.last_started or room):
            sign = Sign(1, "an unknown machine", 0, 0.0)  # it does not wait for a worker
        else:
            self.signs.pop(task, None)
            return False
        if sign != before:
            if sign.attempt > (before.attempt if before is not None else 1):
                _logger.warning("task %s lost its worker; attempt %d runs on %s", task.name, sign.attempt, sign.host)
            self.signs[task] = sign, now
            return False
        return limit is not None and now - heard > limit

    def _has_room(self) -> bool:
        """Whether one of the machines could surely start another task, so that none waits for CPUs."""
        free, n_machines = self.ray.available_resources().get("CPU", 0), len(self._machines())
        return not self.needed["GPU"] and free > n_machines * (self.needed["CPU"] - 1)

    def _explain(self) -> None:
        """Say once why nothing happens: all tasks may wait for workers, as long as it takes, or a worker may hang."""
        if self.signs or not self.submitted:
            self.waits_since = time.monotonic()
        elif time.monotonic() - self.waits_since > WAIT_SECONDS and not self.explained:
            self.explained = True
            _logger.warning(
                "%d tasks have waited for %d seconds, each for %d CPUs and %d GPUs (free: %d of %d CPUs). Other "
                "programs use the cluster, or a worker hangs (`ray status`); after Ctrl-C, the same command resumes",
                len(self.submitted) + len(self.waiting),
                WAIT_SECONDS,
                *self.needed.values(),
                self.ray.available_resources().get("CPU", 0),
                self.ray.cluster_resources().get("CPU", 0),
            )

    def _end(self, ref: Any, task: Task) -> None:
        """End a silent task, and put it in the queue again."""
        if not self._cancel(ref):
            return  # it has just ended
        del self.submitted[ref]
        silence = f"it showed no progress for runner.timeout_s={self.cluster.timeout:g} seconds"
        _logger.warning("task %s on %s was ended: %s", task.name, self.signs[task][0].host, silence)
        self.silent[task] += 1
        if self.silent[task] > RETRIES:
            raise UserError(
                f"task {task.name} was ended {self.silent[task]} times: {silence}; raise it, or set it to null"
            )
        self.waiting.appendleft(task)

    def _cancel(self, ref: Any) -> bool:
        """End a task; return False if it has ended by itself."""
        # Ray aborts this process if it is asked to cancel a task at the moment at which its result arrives
        # (Ray 2.60: "Tried to complete task that was not pending").
        if self.ray.wait([ref], timeout=0)[0]:
            return False
        self.ray.cancel(ref, force=True)
        return True

    def cancel(self) -> None:
        """End all tasks that run."""
        for ref in self.submitted:
            with suppress(Exception):  # the cluster may be gone
                self._cancel(ref)
        self.submitted.clear()
