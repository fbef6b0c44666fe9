"""Training and evaluation in several processes, as started by `torchrun`.

The first process runs the experiment as if it were alone, with its artifacts, locks and logs. The others wait for the
jobs that it broadcasts and take part only in training and evaluation, so they need no locks.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The other processes wait while the first one counts and shards.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class World:
    """The processes of a run.

    Attributes:
        rank: Index of this process.
        size: Number of processes.
        local_rank: Index of this process on its machine, and of its CUDA device.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def any(self, flag: bool) -> bool:
        """Whether `flag` is True in any process; a collective call."""
        if self.size == 1:
            return flag
        votes = torch.tensor([int(flag)])  # on the CPU, so that no CUDA stream waits for it
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return bool(votes.item())

    def all_equal(self, number: int) -> bool:
        """Whether `number` is the same in all processes; a collective call."""
        if self.size == 1:
            return True
        ends = torch.tensor([number, -number])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        return int(ends[0]) == -int(ends[1])

    def broadcast(self, job: dict[str, Any] | None) -> dict[str, Any] | None:
        """Send the next job from the first process to the others, which wait for it; return it.

        Args:
            job: JSON-able, or None if there are no more jobs. Ignored except in the first process.
        """
        if self.size == 1:
            return job
        text = json.dumps(job).encode() if self.rank == 0 else b""
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        data = torch.zeros(int(length.item()), dtype=torch.uint8)
        if text:
            data = torch.tensor(list(text), dtype=torch.uint8)
        dist.broadcast(data, 0)
        received: dict[str, Any] | None = json.loads(bytes(data.tolist()))
        return received


_ALONE = World()
_world = _ALONE
_broken = False


def current() -> World:
    """The processes of this run."""
    return _world


@contextmanager
def lockstep(agreed: tuple[type[BaseException], ...] = (UserError, KeyboardInterrupt)) -> Iterator[None]:
    """Context for collective work: after an error in one process alone, no further collective calls are made.

    Args:
        agreed: Exceptions that either all processes raise at the same point, or none.
    """
    global _broken
    try:
        yield
    except agreed:
        raise
    except BaseException:
        _broken = True
        raise


def launch(first: Callable[[], int], join: Callable[[dict[str, Any]], None]) -> int:
    """Run `first` in the first process and `join` in the others; return the exit code.

    Args:
        first: The work of the first process, which broadcasts jobs.
        join: Takes part in one job.

    Raises:
        UserError: If variables that `torchrun` sets are missing.
    """
    global _world
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in names if name not in os.environ]:
        raise UserError(f"WORLD_SIZE is set but {', '.join(missing)} is not; start several processes with torchrun")
    world = World(*(int(os.environ[name]) for name in names[:3]))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    _world = world
    try:
        if world.rank:
            return _follow(world, join)
        code = first()
        if not _broken:  # otherwise they notice that this process is gone
            world.broadcast(None)
        return code
    finally:
        _world = _ALONE
        if not _broken:
            dist.destroy_process_group()


def _follow(world: World, join: Callable[[dict[str, Any]], None]) -> int:
    """Take part in jobs until the first process has no more; return the exit code.

    Signals reach every process, but only the first one acts on them: if another process exited on its own, it could
    close a connection that the first process still reads from. If the first process is gone, every wait fails.
    """
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        while (job := world.broadcast(None)) is not None:
            with suppress(UserError, KeyboardInterrupt):  # raised in every process; the first one reports it
                join(job)
    except RuntimeError:  # from Gloo and NCCL when a connection is closed
        if not received:
            raise
        return 128 + received[-1]
    return 0
