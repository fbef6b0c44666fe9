"""Rows of the training steps; each process reads its own rows only."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lm.model.device import upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from lm.data.rows import Rows
    from lm.train.distributed import World

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

    def micro_batches(self, n_rows: int | None, multiple: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, int64[rows, positions], of parts of the rows.

        Args:
            n_rows: Most rows of a part; None for all.
            multiple: The number of positions is rounded up to a multiple of this, so that there are few shapes.
        """
        parts = math.ceil(len(self.lengths) / (n_rows or len(self.lengths)))
        ends = [len(self.lengths) * part // parts for part in range(parts + 1)]  # of about the same number of rows
        for first, end in pairwise(ends):
            longest = min(_rounded(self.lengths[end - 1], multiple), self.ids.shape[1] - 1)
            part = self.ids[first:end]
            yield part[:, :longest].clamp(min=0), part[:, 1 : longest + 1]


def read_batch(
    rows: Rows, step: int, device: torch.device, world: World, multiple: int = 1, rows_multiple: int = 1
) -> Batch:
    """Read a process's rows of a step. A process without any has an empty row.

    Args:
        rows: The text.
        step: The step, from 0.
        device: Device of the tokens.
        world: The processes, which share the rows of a step.
        multiple: As for `Batch.micro_batches`.
        rows_multiple: Empty rows are added up to a multiple of this, so that there are few shapes.
    """
    spans = rows.spans(step)
    lengths = spans[:, 1] - spans[:, 0]
    # By length, so that rows of about the same length are padded together; every process gets rows of all lengths.
    mine = np.argsort(lengths, kind="stable")[world.rank :: world.size]
    empty = _rounded(len(mine), rows_multiple) - len(mine)
    longest = min(_rounded(int(lengths[mine].max(initial=0)), multiple), rows.most_tokens)
    ids = np.full((empty + len(mine), longest + 1), NO_TARGET, np.int64)
    n_bytes = 0
    for row, (start, stop) in zip(ids[empty:], spans[mine].tolist(), strict=True):
        row[: stop - start + 1] = rows.stream.read(start, stop + 1)
        n_bytes += rows.stream.text_bytes(start + 1, stop + 1)
    filled = [0] * empty + lengths[mine].tolist()
    return Batch(upload(torch.from_numpy(ids), device), filled, int(lengths.sum()), int(lengths.max()), n_bytes)


def _rounded(length: int, multiple: int) -> int:
    """The smallest multiple that is at least 1 and this length."""
    return max(1, -(-length // multiple)) * multiple
