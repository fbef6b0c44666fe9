"""Rows of the training steps, read ahead in a background thread; each process reads its own rows only."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lm.train.distributed import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from lm.data.rows import Rows

NO_TARGET = -1
"""Target of padding at the end of a row."""


class Batch(NamedTuple):
    """Rows of one process for one step, shortest first.

    Attributes:
        ids: int64[n_rows, longest + 1], padded with `NO_TARGET`.
        lengths: Number of targets of each row.
        n_tokens: Targets of the step in all processes together.
        longest: Targets of the longest row of the step in any process.
        n_bytes: Bytes of text of this process's targets.
    """

    ids: Tensor
    lengths: list[int]
    n_tokens: int
    longest: int
    n_bytes: int

    def micro_batches(self, n_rows: int, multiple: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, int64[rows, positions], of parts of the rows.

        Args:
            n_rows: Rows of a part.
            multiple: The number of positions is rounded up to a multiple of this, so that there are few shapes.
        """
        for first in range(0, len(self.ids), n_rows):
            longest = max(1, self.lengths[min(first + n_rows, len(self.ids)) - 1])
            part = self.ids[first : first + n_rows, : -(-longest // multiple) * multiple + 1]
            yield part[:, :-1].clamp(min=0), part[:, 1:]


class BatchReader:
    """Reads the rows of a step while the previous step computes.

    Args:
        rows: The text. Only the background thread may use it after the first step.
        device: Device of the tokens.
        multiple: As for `Batch.micro_batches`.
        world: The processes, which share the rows of a step.
    """

    def __init__(self, rows: Rows, device: torch.device, *, multiple: int = 1, world: World | None = None) -> None:
        self._rows, self._device, self._multiple = rows, device, multiple
        self._world = world or World()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: tuple[int, Future[Batch]] | None = None

    def take(self, step: int, steps: int) -> Batch:
        """This process's rows of a step, on the device.

        Args:
            step: The step, from 0.
            steps: Steps of the run; the next one is read ahead unless this is the last.
        """
        ahead = self._ahead
        future = ahead[1] if ahead is not None and ahead[0] == step else self._thread.submit(self._read, step)
        batch = future.result()
        if step + 1 < steps:
            self._ahead = step + 1, self._thread.submit(self._read, step + 1)
        return batch._replace(ids=batch.ids.to(self._device, non_blocking=True))

    def _read(self, step: int) -> Batch:
        spans = self._rows.spans(step)
        lengths = spans[:, 1] - spans[:, 0]
        # By length, so that rows of about the same length are padded together; every process gets rows of all lengths.
        mine = np.argsort(lengths, kind="stable")[self._world.rank :: self._world.size]
        longest = -(-max(1, int(lengths[mine].max())) // self._multiple) * self._multiple
        ids = np.full((len(mine), longest + 1), NO_TARGET, np.int64)
        stream = self._rows.stream
        for row, (start, stop) in zip(ids, spans[mine].tolist(), strict=True):
            row[: stop - start + 1] = stream.read(start, stop + 1)
        tensor = torch.from_numpy(ids)
        if self._device.type == "cuda":
            tensor = tensor.pin_memory()  # or the copy to the device would wait for the previous step
        n_bytes = sum(stream.text_bytes(start + 1, stop + 1) for start, stop in spans[mine].tolist())
        return Batch(tensor, lengths[mine].tolist(), int(lengths.sum()), int(lengths.max()), n_bytes)
