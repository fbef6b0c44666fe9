"""Training and evaluation in several processes, as started by `torchrun`.

The first process runs the experiment as if it were alone, with its artifacts, locks and logs. The others do the jobs
that it broadcasts: they take part only in training and evaluation, so they need no locks.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from lm.train.interrupt import STOPS
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The other processes wait for a job while the first one counts and shards. During a job, they are never far apart.
_PATIENCE, _TIMEOUT = timedelta(days=30), timedelta(minutes=30)
_logger = logging.getLogger(__name__)
Job = Callable[[], object]


@dataclass(frozen=True)
class World:
    """The processes of a run.

    Attributes:
        rank: Index of this process.
        local_rank: Index of this process on its machine, and of its CUDA device.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def any(self, *flags: bool) -> list[bool]:
        """Whether each of `flags` is True in any process; a collective call."""
        if self.size == 1:
            return [*flags]
        votes = torch.tensor([int(flag) for flag in flags])  # on the CPU, so that no CUDA stream waits for it
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return [bool(vote) for vote in votes.tolist()]

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes; a collective call."""
        if self.size > 1:
            tensor = tensor.clone()
            dist.all_reduce(tensor)
        return tensor

    def all_equal(self, number: int) -> bool:
        """Whether `number` is the same in all processes; a collective call."""
        if self.size == 1:
            return True
        ends = torch.tensor([number, -number])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        return int(ends[0]) == -int(ends[1])

    def broadcast(self, job: Job | None) -> Job | None:
        """Send the next job from the first process to the others, which wait for it; return it.

        Args:
            job: The part of the other processes in collective work, a `functools.partial` of a function of a module;
                None if there are no more jobs. Ignored except in the first process.
        """
        if self.size == 1:
            return job
        jobs = [job]
        dist.broadcast_object_list(jobs, 0, group=_jobs, device=torch.device("cpu"))
        return jobs[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context at whose end a UserError of any process is raised in all of them; a collective call."""
        failed: str | None = None
        try:
            yield
        except UserError as error:
            if self.size == 1:
                raise
            failed = f"process {self.rank}: {error}" if self.rank else str(error)
        if self.size > 1:
            messages: list[str | None] = [None] * self.size
            dist.all_gather_object(messages, failed)
            if failures := [message for message in messages if message is not None]:
                raise UserError(failures[0])


_ALONE = World()
_world = _ALONE
_broken = False
_jobs: dist.ProcessGroup | None = None


def current() -> World:
    """The processes of this run."""
    return _world


@contextmanager
def lockstep(agreed: tuple[type[BaseException], ...] = (UserError, KeyboardInterrupt)) -> Iterator[None]:
    """Context for collective work: after an error in one process alone, no further collective calls are made.

    Args:
        agreed: Exceptions that either all processes raise at the same point, or none.

    Raises:
        UserError: If another process is gone.
    """
    global _broken
    try:
        yield
    except agreed:
        raise
    except BaseException as error:
        _broken = True
        if _is_lost(error):
            raise UserError(_LOST) from error
        raise


_LOST = "training or evaluation aborted: another process failed or does not answer (see its own message)"


def _is_lost(error: BaseException) -> bool:
    """Whether an error means that the connection to another process is closed or has timed out."""
    # Gloo raises RuntimeErrors, which name its source files.
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo/" in str(error))


def launch(first: Callable[[], int]) -> int:
    """Run the work of the first process, and in the others the jobs that it broadcasts; return the exit code.

    Raises:
        UserError: If variables that `torchrun` sets are missing.
    """
    global _world, _jobs
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in names if name not in os.environ]:
        raise UserError(f"WORLD_SIZE is set but {', '.join(missing)} is not; start several processes with torchrun")
    world = World(*(int(os.environ[name]) for name in names[:3]))
    # Without a GPU for every process, settings other than lm.train.device=cpu are rejected later.
    n_devices, n_here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
    if dist.is_nccl_available() and n_devices >= n_here:
        device = torch.device("cuda", world.local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_TIMEOUT, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=_TIMEOUT)
    _jobs = dist.new_group(backend="gloo", timeout=_PATIENCE)
    _world = world
    try:
        with lockstep():
            if world.rank:
                return _follow(world)
            code = first()
            if not _broken:  # otherwise they notice that this process is gone
                world.broadcast(None)
            return code
    finally:
        _world, _jobs = _ALONE, None
        if not _broken:
            dist.destroy_process_group()


def _follow(world: World) -> int:
    """Take part in jobs until the first process has no more; return the exit code.

    Signals reach every process, but only the first one acts on them: if another process exited on its own, it could
    close a connection that the first process still reads from. If the first process is gone, every wait fails.
    """
    received: list[int] = []
    for number in (number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        while (job := world.broadcast(None)) is not None:
            try:
                job()
            except (UserError, KeyboardInterrupt) as error:
                if _broken:  # otherwise it is raised in every process, and the first one reports it
                    return _ended(world, str(error), received)
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        return _ended(world, _LOST, received)
    return 0


def _ended(world: World, message: str, received: list[int]) -> int:
    """Report why a process ends alone, unless after a signal; return the exit code."""
    if received:
        return 128 + received[-1]
    _logger.error("process %d: %s", world.rank, message)
    return 1
