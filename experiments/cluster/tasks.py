"""Tasks on a Ray cluster. Ray schedules them, and repeats those whose worker died.

Added here: a task whose result exists is not run again, and a task that runs without progress is ended, so that Ray
repeats it. A task may wait for a worker as long as it takes, but a line says why nothing runs.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cluster import results
from experiments.cluster.results import Result, Sign, Task, execute
from tokenizer.errors import UserError, shortened
from tokenizer.files import is_remote
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from experiments.cluster.results import Work
    from experiments.config import RunnerConfig
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.progress import Progress

RETRIES = 11
"""Ray repeats a task this often after its worker died."""
_POLL_SECONDS = 0.5
QUIET_SECONDS = 30.0
"""Time without any running task after which a line says what the tasks wait for."""
_logger = logging.getLogger(__name__)


class LostError(Exception):
    """A process that a task has started died; Ray runs the task again."""


class Cluster:
    """Runs tasks on a Ray cluster.

    Args:
        ray: the module, connected to the cluster.
        runner: settings.

    Raises:
        UserError: `runner.folder` is a URL.
    """

    def __init__(self, ray: Any, runner: RunnerConfig) -> None:
        self.threads, self.part_bytes = runner.threads or 1, runner.part_mb * 1_000_000
        self.ray, self.timeout, self.workers = ray, runner.timeout_s, runner.workers
        self._folder = None if runner.folder is None else Path(runner.folder).resolve()
        if is_remote(runner.folder or ""):
            raise UserError(f"runner.folder={runner.folder} must be a folder that all machines of the cluster share")

    def machines(self) -> dict[str, Mapping[str, float]]:
        """Resources of each machine (`CPU`, `GPU`), by the id of its Ray node."""
        return {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}

    @contextmanager
    def results(self, folder: Path, *, resume: bool = True) -> Iterator[Path]:
        """Yield a folder for the results of tasks, which is deleted at the end.

        Args:
            folder: the folder; `runner.folder` has one of a similar name instead, if it is set.
            resume: whether to keep it after an error, so that the same command finds its results.
        """
        path = folder.resolve()
        if self._folder is not None:
            path = self._folder / f"{path.parent.name}-{path.name}"
        try:
            yield path
        except BaseException:
            if not resume:
                shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path, ignore_errors=True)

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
        identity: Any,
        folder: Path,
        progress: Progress | None = None,
        part_bytes: int = 0,
    ) -> Generator[Result]:
        """Work on the parts of a corpus; yields their results in order.

        Args:
            name: start of the names of the results.
            work: called with each part; `skipped` of its value is `part.part_skipped()`.
            corpus: the corpus.
            split: side of its held-out split.
            identity: JSON of the settings that the results depend on.
            folder: folder for results, which all machines see.
            progress: called with the bytes of files read.
            part_bytes: least size of a part.
        """
        parts = corpus.parts(split, max(self.part_bytes, part_bytes))
        tasks = [
            Task(f"{name}-{i:05}", [split, identity, part.part_identity()], part, part.stored_bytes)
            for i, part in enumerate(parts)
        ]
        tick, skipped = Throttle(progress, "bytes of files read", sum(task.size for task in tasks)), []
        with closing(self.run(work, tasks, folder, tick)) as results:
            for result in results:
                skipped.append(result.value["skipped"])
                yield result
        corpus.skipped.add_parts(skipped)
        corpus.check_unchanged()


@dataclass
class _Submitted:
    """A task that Ray was asked to run, its last sign of life and the time of that, and the bytes that it has done."""

    task: Task
    sign: Sign | None = None
    heard: float = 0.0
    done: int = 0
    why: str = ""


class _Run:
    """The tasks of one call of `Cluster.run`: those that wait, those that Ray has, and the results of the others."""

    def __init__(self, cluster: Cluster, work: Work, tasks: Sequence[Task], folder: Path, gpus: int) -> None:
        self.cluster, self.ray, self.folder, self.gpus = cluster, cluster.ray, folder, gpus
        self.results = {task: result for task in tasks if (result := Result.of(task, folder)) is not None}
        self.waiting = deque(task for task in tasks if task not in self.results)
        self.submitted: dict[Any, _Submitted] = {}
        self.looked = self.lively = time.monotonic()
        self.said = ""
        options = {"num_cpus": cluster.threads, "num_gpus": gpus, "max_retries": RETRIES}
        self.execute = self.ray.remote(**options, retry_exceptions=[LostError])(execute)
        self.work = self.ray.put(work) if self.waiting else None

    def done(self) -> int:
        """Bytes of the finished tasks, and those that the others have reported."""
        running = sum(min(entry.task.size, entry.done) for entry in self.submitted.values())
        return running + sum(task.size for task in self.results)

    def submit(self) -> None:
        """Keep some tasks more submitted than run at once, so that no worker waits for this process."""
        if not self.waiting:
            return
        cores = int(self.ray.cluster_resources().get("CPU", 0))
        slots = max(1, min(cores // self.cluster.threads, self.cluster.workers or cores))
        most = slots if self.cluster.workers else slots + (slots + 1) // 2
        while self.waiting and len(self.submitted) < most:
            task = self.waiting.popleft()
            task.file(self.folder, "beat").unlink(missing_ok=True)  # of an earlier command
            self.submitted[self.execute.remote(self.work, task, self.folder)] = _Submitted(task)

    def step(self) -> None:
        """Submit, wait a moment, take the result of a task that has ended, and look at the others."""
        self.submit()
        ended, _ = self.ray.wait(list(self.submitted), num_returns=1, timeout=_POLL_SECONDS)
        for ref in ended:
            entry = self.submitted.pop(ref)
            self._listen(entry)
            self.results[entry.task] = self._result(ref, entry)
            self.lively = time.monotonic()
        if time.monotonic() - self.looked > results.BEAT_SECONDS:
            self.looked = time.monotonic()
            for entry in self.submitted.values():
                self._listen(entry)
            self._explain_waiting()

    def _result(self, ref: Any, entry: _Submitted) -> Result:
        errors = self.ray.exceptions
        try:
            result: Result = self.ray.get(ref)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, LostError):
                raise (error.cause or error) from error
            why = str(error.cause)
        except errors.RayError as error:
            why = entry.why or f"{type(error).__name__}: {shortened(error)}"
        else:
            return result
        raise UserError(
            f"task {entry.task.name} was lost again and again without an error of its own, the last time because {why}"
            "; if memory is short, lower runner.part_mb, runner.memory_mb or runner.workers"
        )

    def _listen(self, entry: _Submitted) -> None:
        """Read the last sign of life of a task: report a new attempt, and end one that has been silent."""
        sign, now, limit = Sign.last(entry.task, self.folder), time.monotonic(), self.cluster.timeout
        if sign is not None and sign != entry.sign:
            if sign.attempt > (entry.sign.attempt if entry.sign is not None else 1):
                _logger.warning(
                    "task %s lost its worker; attempt %d runs on %s", entry.task.name, sign.attempt, sign.host
                )
            entry.sign, entry.heard, entry.done, self.lively = sign, now, max(entry.done, sign.done), now
        elif entry.sign is not None and limit is not None and now - entry.heard > limit:
            entry.heard = now
            if self._kill(entry.sign):
                entry.why = f"it showed no progress for runner.timeout_s={limit:g} seconds"
                _logger.warning("task %s on %s was ended: %s", entry.task.name, entry.sign.host, entry.why)

    def _kill(self, sign: Sign) -> bool:
        """End a worker on its machine. Cancelling its task would not free the cores of a process that is stopped."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with suppress(self.ray.exceptions.RayError, ValueError):  # the machine is gone
            there = NodeAffinitySchedulingStrategy(sign.node, soft=False)
            kill = self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(kill_worker)
            return bool(self.ray.get(kill.remote(sign.pid), timeout=60))
        return False

    def _explain_waiting(self) -> None:
        """Say what tasks wait for if there has been no sign of life for a while, and none can be running."""
        if not self.submitted or time.monotonic() - self.lively < QUIET_SECONDS:
            return
        self.lively, machines = time.monotonic(), self.cluster.machines()
        if any(entry.sign is not None and entry.sign.node in machines for entry in self.submitted.values()):
            return
        sizes = [f"{m.get('CPU', 0):g} CPUs and {m.get('GPU', 0):g} GPUs" for m in machines.values()]
        why = (
            f"no machine of the Ray cluster has {self.cluster.threads} CPUs and {self.gpus} GPUs free, which each task "
            f"takes; its machines have {', '.join(sizes) or 'none'}, and other programs may use them"
        )
        if why != self.said:
            self.said = why
            _logger.warning("%d tasks are waiting: %s", len(self.submitted) + len(self.waiting), why)

    def cancel(self) -> None:
        """End all tasks that run."""
        for ref in self.submitted:
            # Ray aborts this process if it is asked to cancel a task at the moment at which its result arrives
            # (Ray 2.60: "Tried to complete task that was not pending").
            with suppress(Exception):  # the cluster may be gone
                ended, _ = self.ray.wait([ref], timeout=0)
                if not ended:
                    self.ray.cancel(ref, force=True)
        self.submitted.clear()


def kill_worker(pid: int) -> bool:
    """Kill a process of this machine if it is a worker of Ray."""
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    if not listed.stdout.startswith("ray::"):
        return False
    os.kill(pid, signal.SIGKILL)
    return True
