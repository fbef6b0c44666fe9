"""Tokens of the training steps, read ahead in a background thread; each process reads its own rows only."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from lm.train.distributed import World

if TYPE_CHECKING:
    from torch import Tensor

    from lm.data.stream import DocumentStream


class BatchReader:
    """Reads the tokens of a step while the previous step computes.

    Args:
        stream: The text. Only the background thread may use it after the first step.
        tokens_per_step: Tokens that a step predicts in all processes together.
        device: Device of the tokens.
        count_bytes: Whether the bytes of a step come from the stream, as for shards with `covered_bytes`.
        world: The processes, which share the rows of a step in order of their ranks.
    """

    def __init__(
        self,
        stream: DocumentStream,
        tokens_per_step: int,
        device: torch.device,
        *,
        count_bytes: bool,
        world: World | None = None,
    ) -> None:
        self._stream, self._tokens_per_step, self._device = stream, tokens_per_step, device
        self._world = world or World()
        self._count_bytes = count_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: tuple[int, Future[tuple[Tensor, int | None]]] | None = None

    def take(self, step: int, steps: int) -> tuple[Tensor, int | None]:
        """This process's tokens of a step, and the bytes that these cover if the stream counts them.

        Args:
            step: The step, from 0.
            steps: Steps of the run; the next one is read ahead unless this is the last.

        Returns:
            int64[tokens_per_step / processes + 1] on the device.
        """
        ahead = self._ahead
        ids, n_bytes = (ahead[1] if ahead is not None and ahead[0] == step else self._submit(step)).result()
        if step + 1 < steps:
            self._ahead = step + 1, self._submit(step + 1)
        return ids.to(self._device, non_blocking=True), n_bytes

    def _submit(self, step: int) -> Future[tuple[Tensor, int | None]]:
        return self._thread.submit(self._read, step * self._tokens_per_step)

    def _read(self, start: int) -> tuple[Tensor, int | None]:
        share = self._tokens_per_step // self._world.size
        start += self._world.rank * share
        stop = start + share + 1
        ids = torch.from_numpy(self._stream.read(start, stop))
        if self._device.type == "cuda":
            ids = ids.pin_memory()  # or the copy to the device would wait for the previous step
        return ids, self._stream.covered_bytes(start + 1, stop) if self._count_bytes else None
