"""Tasks as array jobs of Slurm, through submitit."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from experiments.cluster.tasks import LostError, Task, execute

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.config import RunnerConfig

_ARRAY = 500
"""Jobs to keep submitted; Slurm's default limit for an array is 1001."""


class SlurmBackend:
    """Array jobs. Slurm ends jobs that hang, after `runner.timeout_s`.

    Args:
        runner: settings; `address` is a cluster of submitit: None for Slurm, "local" for processes of this machine.
    """

    watched, needs_files = False, True

    def __init__(self, runner: RunnerConfig) -> None:
        import submitit

        self._submitit, self._runner = submitit, runner
        self._executor: Any = None

    def several_machines(self) -> bool:
        """See `Backend.several_machines`."""
        return self._runner.address != "local"

    def slots(self) -> int:
        """See `Backend.slots`."""
        return self._runner.workers or 2 if self._runner.address == "local" else _ARRAY

    def gpus(self) -> None:
        """See `Backend.gpus`."""

    def share(self, value: Any) -> Any:
        """See `Backend.share`."""
        return value

    def submit(self, tasks: Sequence[Task], shared: Any, folder: Path, *, extra: bool = False) -> list[Any]:
        """See `Backend.submit`."""
        runner = self._runner
        if self._executor is None:
            self._executor = self._submitit.AutoExecutor(folder / "jobs", cluster=runner.address)
            limits = {} if runner.timeout_s is None else {"timeout_min": max(1, round(runner.timeout_s / 60))}
            if tasks[0].gpus:
                limits["gpus_per_node"] = tasks[0].gpus
            several = {} if runner.workers is None else {"slurm_array_parallelism": runner.workers}
            self._executor.update_parameters(
                name="superbpe", cpus_per_task=runner.threads or 1, **limits, **several, **runner.slurm
            )
        jobs = self._executor.map_array(execute, tasks, [shared] * len(tasks), [folder] * len(tasks))
        return list(jobs)

    def wait(self, handles: Sequence[Any], seconds: float) -> list[Any]:
        """See `Backend.wait`."""
        deadline = time.monotonic() + seconds
        while True:
            if ended := [job for job in handles if job.done()]:
                return ended
            if time.monotonic() > deadline:
                return []
            time.sleep(min(seconds, 0.1))

    def outcome(self, handle: Any) -> dict[str, Any]:
        """See `Backend.outcome`."""
        utils = self._submitit.core.utils
        try:
            outcome: dict[str, Any] = handle.result()
        except utils.FailedJobError:  # an exception of the task, with its traceback
            raise
        except (utils.UncompletedJobError, FileNotFoundError, EOFError) as error:
            raise LostError(str(error)) from None
        return outcome

    def cancel(self, handle: Any) -> None:
        """See `Backend.cancel`."""
        with suppress(ProcessLookupError):
            handle.cancel(check=False)
