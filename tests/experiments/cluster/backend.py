"""A backend that runs tasks in this process, on threads, and loses, delays or blocks those that a test names."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

from experiments.cluster.tasks import Cluster, LostError, execute
from experiments.config import RunnerConfig


class Threads:
    """`faults[name]` are what happens to the attempts of a task, one after the other: "lost", or seconds to wait."""

    watched, several, needs_files = True, False, False

    def __init__(self, slots: int = 2, gpus: int | None = None, **faults: list) -> None:
        self.n_gpus = gpus
        self.n_slots, self.faults = slots, {name.replace("_", "-"): list(each) for name, each in faults.items()}
        self.pool = ThreadPoolExecutor(16)
        self.submitted: list[str] = []
        self.running: set[Future] = set()
        self.cancelled = 0
        self.stop = threading.Event()

    def several_machines(self) -> bool:
        return self.several

    def slots(self) -> int:
        return self.n_slots

    def gpus(self):
        return self.n_gpus

    def share(self, value):
        return value

    def submit(self, tasks, shared, folder, *, extra=False):
        handles = []
        for task in tasks:
            self.submitted.append(task.name)
            queued = self.faults.get(task.name)
            handles.append(self.pool.submit(self._run, task, shared, folder, queued.pop(0) if queued else 0))
        self.running |= set(handles)
        return handles

    def _run(self, task, shared, folder, fault):
        if fault == "lost":
            raise LostError("its worker died")
        self.stop.wait(fault)
        return execute(task, shared, folder)

    def wait(self, handles, seconds):
        if not handles:
            time.sleep(seconds)
        return list(wait(handles, seconds, "FIRST_COMPLETED").done)

    def outcome(self, handle):
        return handle.result()

    def cancel(self, handle) -> None:
        self.cancelled += 1
        handle.cancel()


def cluster_of(backend, **settings) -> Cluster:
    return Cluster(backend, RunnerConfig(**{"threads": 1, "part_mb": 1, **settings}))
