"""Initial rows of the vocabulary tables, drawn by what a token spells and not by its id."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

VERSION = 2
"""Raise it with every change of the initial weights, so that runs with other weights are neither resumed nor reused."""
_ROWS_PER_TASK = 1024


def draw_rows(table: Tensor, token_hashes: Sequence[int] | NDArray[np.uint64], *, stream: int, std: float) -> None:
    """Fill a table with normal rows, each from a counter-based generator with the key (stream, hash of the token).

    Two vocabularies get the same row for a token that they share, whatever its ids. Padding rows are zero.

    Args:
        table: float32[padded vocabulary, hidden_size], on the CPU.
        token_hashes: uint64[vocab_size].
        stream: Tells tables and seeds apart.
        std: Standard deviation.
    """
    rows, n = table.detach().numpy(), len(token_hashes)
    rows[n:] = 0
    keys = np.full((n, 2), stream % (1 << 64), np.uint64)
    keys[:, 1] = token_hashes

    def draw(first: int) -> None:
        for i in range(first, min(first + _ROWS_PER_TASK, n)):
            np.random.Generator(np.random.Philox(key=keys[i])).standard_normal(dtype=np.float32, out=rows[i])

    with ThreadPoolExecutor() as pool:  # NumPy releases the GIL while it draws
        list(pool.map(draw, range(0, n, _ROWS_PER_TASK)))
    rows[:n] *= std
