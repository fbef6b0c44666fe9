"""The part of Ray's interface that the cluster uses, on threads of this process, with faults that a test names."""

import ast
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

from experiments.cluster import tasks
from experiments.cluster.tasks import Cluster
from experiments.config import RunnerConfig

_parsing = threading.Lock()


def _literal_eval(text, parse=ast.literal_eval):
    """NumPy parses the header of an array, and CPython 3.11 fails at times where two threads parse."""
    with _parsing:
        return parse(text)


ast.literal_eval = _literal_eval


class WorkerCrashedError(Exception):
    """A worker died more often than Ray repeats its task."""


class FakeRay:
    """`faults[name]` are what happens to the attempts of a task, one after the other: "lost", or seconds to wait."""

    def __init__(self, slots=2, gpus=0, memory=1 << 40, **faults):
        self.resources = {"CPU": slots, "GPU": gpus, "memory": memory}
        self.head = {"memory": 2 * memory}  # runs no task
        self.memory, self.free = {}, 0
        self.faults = {name.replace("_", "-"): list(each) for name, each in faults.items()}
        self.pool = ThreadPoolExecutor(16)
        self.submitted = []
        self.attempts = defaultdict(int)
        self.cancelled = []
        self.names = {}
        self.stop = threading.Event()
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        self.util = SimpleNamespace(scheduling_strategies=affinity)
        self.exceptions = SimpleNamespace(RayError=WorkerCrashedError, RayTaskError=ZeroDivisionError)

    def cluster_resources(self):
        return self.resources

    def available_resources(self):
        return {"CPU": self.free}

    def nodes(self):
        return [{"NodeID": "", "Alive": True, "Resources": has} for has in (self.head, self.resources)]

    def put(self, value):
        return value

    def sent(self, arguments):
        """The arguments as a worker gets them; a test may have them pickled, as Ray does."""
        return arguments

    def remote(self, *, max_retries=0, **options):
        def decorated(function):
            def submit(*arguments):
                future = self.pool.submit(self._run, function, arguments, max_retries)
                self.submitted.append(arguments[1].name)
                self.names[future] = arguments[1].name
                return future

            def sized(*, memory):
                def submit_sized(*arguments):
                    self.memory[arguments[1].name] = memory
                    return submit(*arguments)

                return SimpleNamespace(remote=submit_sized)

            return SimpleNamespace(remote=submit, options=sized)

        return decorated

    def _run(self, function, arguments, retries):
        name = arguments[1].name
        for _ in range(retries + 1):
            self.attempts[name] += 1
            queued = self.faults.get(name)
            fault = queued.pop(0) if queued else 0
            if fault == "lost":
                tasks._Beat(*arguments[1:])
                continue
            self.stop.wait(fault)
            return function(*self.sent(arguments))
        raise WorkerCrashedError("its worker died")

    def wait(self, futures, num_returns=1, timeout=None):
        done = list(wait(futures, timeout, "FIRST_COMPLETED" if num_returns == 1 else "ALL_COMPLETED").done)
        return done[:num_returns], [future for future in futures if future not in done[:num_returns]]

    def get(self, future, timeout=None):
        return future.result(timeout)

    def cancel(self, future, force=False):
        self.cancelled.append(self.names[future])
        future.cancel()


def cluster_of(ray, **settings):
    return Cluster(ray, RunnerConfig(**{"threads": 1, "part_mb": 1, **settings}))
