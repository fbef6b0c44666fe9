"""Connection to a Ray cluster, or the start of one on this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiments
from tokenizer.errors import UserError, shortened
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from experiments.config import RunnerConfig

_OBJECT_STORE_BYTES = 200_000_000
_CONNECT_SECONDS = 5.0


def started(runner: RunnerConfig) -> Any:
    """Return the module `ray`, connected to the cluster of `runner.address`, or to a new one of processes here.

    Raises:
        UserError: the cluster cannot be reached.
    """
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
        threads = runner.threads or 1
        workers = runner.workers or max(1, thread_count(None) // threads)
        settings |= {
            "num_cpus": workers * threads,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _check_reachable(runner.address)
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise UserError(
            f"runner.address={runner.address}: no Ray cluster can be used there: {shortened(error)}; start one with "
            "`ray start --head`, or set runner.address=null to start one on this machine"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray replaces them
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return ray


def _check_reachable(address: str | None) -> None:
    """Raise an OSError if no program listens at `HOST:PORT`, because Ray would end the process."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
