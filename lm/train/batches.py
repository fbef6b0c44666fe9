"""Batches of the training steps; each process reads its own rows only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lm.model.device import upload
from lm.model.segments import PackedSegments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from lm.data.rows import Rows
    from lm.train.distributed import World


class MicroBatch(NamedTuple):
    """Rows of one forward and backward pass, packed end to end; the arguments of `lm.model.loss.Objective`.

    Attributes:
        ids: int64[seq_len], inputs.
        targets: int64[n_targets]; all inputs have one, except in a process without rows.
        segments: Rows, or their documents.
    """

    ids: Tensor
    targets: Tensor
    segments: PackedSegments


class Batch(NamedTuple):
    """Rows of one process for one step.

    Attributes:
        parts: Micro-batches, at least one.
        n_tokens: Targets of the step in all processes together.
        longest: Targets of the longest row of the step in any process.
        n_bytes: Bytes of text of this process's targets.
    """

    parts: list[MicroBatch]
    n_tokens: int
    longest: int
    n_bytes: int


def read_batch(
    rows: Rows, step: int, device: torch.device, world: World, part_rows: int | None = None, eos_id: int | None = None
) -> Batch:
    """Read a process's rows of a step.

    Args:
        rows: The text.
        step: The step, from 0.
        device: Device of the tokens.
        world: The processes, which share the rows of a step.
        part_rows: Rows of a micro-batch, on average; None for all.
        eos_id: Id that begins a document, if positions attend within their own document only; None for rows.
    """
    spans = rows.spans(step)
    lengths = spans[:, 1] - spans[:, 0]
    # Longest first; every process gets rows of all lengths.
    mine = spans[np.argsort(-lengths, kind="stable")[world.rank :: world.size]]
    n_bytes = sum(rows.stream.text_bytes(start + 1, stop + 1) for start, stop in mine.tolist())
    n_parts = max(1, math.ceil(len(mine) / (part_rows or max(1, len(mine)))))
    parts = [
        _packed([rows.stream.read(start, stop + 1) for start, stop in part], eos_id, device)
        for part in _divided(mine, n_parts)
    ]
    return Batch(parts, int(lengths.sum()), int(lengths.max()), n_bytes)


def _divided(spans: NDArray[np.int64], n_parts: int) -> list[list[tuple[int, int]]]:
    """Divide rows, longest first, into parts of about equally many tokens."""
    parts: list[list[tuple[int, int]]] = [[] for _ in range(n_parts)]
    tokens = [0] * n_parts
    for start, stop in spans.tolist():
        emptiest = tokens.index(min(tokens))
        parts[emptiest].append((start, stop))
        tokens[emptiest] += stop - start
    return parts


def _packed(rows: Sequence[NDArray[np.int64]], eos_id: int | None, device: torch.device) -> MicroBatch:
    """A micro-batch of rows; the last token of a row is a target only."""
    empty = np.empty(0, np.int64)
    ids = np.concatenate([empty, *(row[:-1] for row in rows)])
    targets = np.concatenate([empty, *(row[1:] for row in rows)])
    starts = np.cumsum([0, *(len(row) - 1 for row in rows)])
    if eos_id is not None:
        starts = np.concatenate((starts, np.flatnonzero(ids == eos_id)))
    lengths = np.diff(np.unique(starts)).tolist()
    if not lengths:  # a process without rows takes part in the exchange of gradients
        ids = np.zeros(2, np.int64)
        lengths = [2]
    return MicroBatch(
        upload(torch.from_numpy(ids), device),
        upload(torch.from_numpy(targets), device),
        PackedSegments.of(lengths, device),
    )
