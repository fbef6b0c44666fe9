"""Tokens of the training steps; each process reads its own rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lm.model.device import upload

if TYPE_CHECKING:
    from torch import Tensor

    from lm.data.stream import DocumentStream
    from lm.train.distributed import World


def read_batch(
    stream: DocumentStream, step: int, tokens_per_step: int, device: torch.device, world: World
) -> tuple[Tensor, int | None]:
    """A process's tokens of a step, and the bytes that these cover if the stream counts them.

    Args:
        stream: The text.
        step: The step, from 0.
        tokens_per_step: Tokens that a step predicts in all processes together.
        device: Device of the tokens.
        world: The processes, which share the rows of a step in order of their ranks.

    Returns:
        int64[tokens_per_step / processes + 1] on the device.
    """
    share = tokens_per_step // world.size
    start = step * tokens_per_step + world.rank * share
    stop = start + share + 1
    return upload(torch.from_numpy(stream.read(start, stop)), device), stream.covered_bytes(start + 1, stop)
