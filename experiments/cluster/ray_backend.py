"""Tasks of a Ray cluster."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiments
from experiments.cluster.tasks import LostError, Task, execute
from tokenizer.errors import UserError, shortened
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.config import RunnerConfig

_OBJECT_STORE_BYTES = 200_000_000
_RESOURCES_SECONDS = 5.0
_CONNECT_SECONDS = 5.0


class RayBackend:
    """Ray tasks. Only what tasks share and small results go through the object store.

    Args:
        runner: settings; `address` is None to start a cluster of processes on this machine.
    """

    watched, needs_files = True, False

    def __init__(self, runner: RunnerConfig) -> None:
        self._threads, self._workers = runner.threads or 1, runner.workers
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray = ray
        self._slots, self._looked = 1, 0.0
        if not ray.is_initialized():
            self._connect(runner.address)
        # Lost tasks are repeated by `Cluster`, which also counts hanging ones.
        self._execute = ray.remote(max_retries=0)(execute)

    def _connect(self, address: str | None) -> None:
        # The machines import this package from where this one does, unless it is installed there.
        path = [str(Path(experiments.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings: dict[str, Any] = {
            "address": address or "local",
            "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}},
            "log_to_driver": False,
            "logging_level": "error",
        }
        if address is None:
            os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: slow beside any other process
            workers = self._workers or max(1, thread_count(None) // self._threads)
            settings |= {
                "num_cpus": workers * self._threads,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "include_dashboard": False,
            }
        main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            _check_reachable(address)
            self._ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError, OSError, self._ray.exceptions.RayError) as error:
            raise UserError(
                f"runner.address={address}: no Ray cluster can be used there: {shortened(error)}; start one with "
                "`ray start --head`, or set runner.address=null to start one on this machine"
            ) from None
        finally:
            if main:  # Ray replaces them
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def several_machines(self) -> bool:
        """See `Backend.several_machines`."""
        here = socket.gethostname()
        return any(node["Alive"] and node["NodeManagerHostname"] != here for node in self._ray.nodes())

    def slots(self) -> int:
        """See `Backend.slots`."""
        if time.monotonic() - self._looked > _RESOURCES_SECONDS:  # machines come and go
            cores = int(self._ray.cluster_resources().get("CPU", 0))
            self._slots = max(1, min(cores // self._threads, self._workers or cores))
            self._looked = time.monotonic()
        return self._slots

    def gpus(self) -> int:
        """See `Backend.gpus`."""
        return max((int(node["Resources"].get("GPU", 0)) for node in self._ray.nodes() if node["Alive"]), default=0)

    def share(self, value: Any) -> Any:
        """See `Backend.share`."""
        return self._ray.put(value)

    def submit(self, tasks: Sequence[Task], shared: Any, folder: Path, *, extra: bool = False) -> list[Any]:
        """See `Backend.submit`."""
        cores = 0 if extra else self._threads
        return [
            self._execute.options(num_cpus=cores, num_gpus=task.gpus).remote(task, shared, folder) for task in tasks
        ]

    def wait(self, handles: Sequence[Any], seconds: float) -> list[Any]:
        """See `Backend.wait`."""
        if not handles:
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)
        if not ended:
            ended, _ = self._ray.wait(list(handles), num_returns=1, timeout=seconds)
        return list(ended)

    def outcome(self, handle: Any) -> dict[str, Any]:
        """See `Backend.outcome`."""
        errors = self._ray.exceptions
        try:
            outcome: dict[str, Any] = self._ray.get(handle)
        except errors.RayTaskError as error:
            raise (error.cause or error) from error
        except errors.RuntimeEnvSetupError as error:
            raise UserError(f"the machines of the Ray cluster cannot start a task: {shortened(error)}") from None
        except errors.RayError as error:
            raise LostError(f"{type(error).__name__}: {shortened(error)}") from None
        return outcome

    def cancel(self, handle: Any) -> None:
        """See `Backend.cancel`."""
        # Ray aborts this process if it is asked to cancel a task at the moment at which its result arrives (Ray 2.60:
        # "Tried to complete task that was not pending").
        ended, _ = self._ray.wait([handle], timeout=0)
        if not ended:
            self._ray.cancel(handle, force=True)


def _check_reachable(address: str | None) -> None:
    """Raise an OSError if no program listens at `HOST:PORT`, because Ray would end the process."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
