"""Work in several processes, as `torchrun` starts them: the first one works, the others join in for models' sake.

Only training and evaluation are shared. The first process runs the experiment as if it were alone, with its artifacts,
locks and logs; the others wait for the jobs that it announces, so there is nothing to lock that two could wait for.
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

# The others wait while the first process counts, shards and evaluates.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class World:
    """The processes of a run.

    Attributes:
        rank: Number of this process.
        size: How many there are.
        local_rank: Number of this process on its machine: its CUDA device.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def agree(self, flag: bool) -> bool:
        """Whether any process says so; every process must ask."""
        if self.size == 1:
            return flag
        votes = torch.tensor([int(flag)])  # on the CPU: no CUDA stream waits for it
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return bool(votes.item())

    def same(self, number: int) -> bool:
        """Whether all processes have the same number; every process must ask."""
        if self.size == 1:
            return True
        ends = torch.tensor([number, -number])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        return int(ends[0]) == -int(ends[1])

    def announce(self, job: dict[str, Any] | None) -> dict[str, Any] | None:
        """Tell the other processes what to do next; in these, wait for it and return it.

        Args:
            job: JSON-able; None: there is nothing more to do. Ignored in the other processes.
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
        heard: dict[str, Any] | None = json.loads(bytes(data.tolist()))
        return heard


_ALONE = World()
_world = _ALONE
_broken = False


def current() -> World:
    """The processes that this one belongs to."""
    return _world


@contextmanager
def together(agreed: tuple[type[BaseException], ...] = (UserError, KeyboardInterrupt)) -> Iterator[None]:
    """Around work in step with the other processes: where one fails alone, the others cannot be talked to any more.

    Args:
        agreed: What all processes raise at the same place, or none.
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
    """Do a job in the first process, with the help of the others; return the exit code.

    Args:
        first: The job; it announces what the others shall join.
        join: What the others do with each announcement.

    Raises:
        UserError: If the variables that `torchrun` sets are not there.
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
        if not _broken:  # else they notice that this process is gone
            world.announce(None)
        return code
    finally:
        _world = _ALONE
        if not _broken:
            dist.destroy_process_group()


def _follow(world: World, join: Callable[[dict[str, Any]], None]) -> int:
    """Join in until the first process has nothing more to do; return the exit code.

    Signals reach every process, and only the first one acts on them: one that ended here on its own could close a
    connection that the first process still reads from. Without the first process, every wait fails.
    """
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        while (job := world.announce(None)) is not None:
            with suppress(UserError, KeyboardInterrupt):  # everyone's; the first process tells the user
                join(job)
    except RuntimeError:  # Gloo's and NCCL's, where the connection is closed
        if not received:
            raise
        return 128 + received[-1]
    return 0
