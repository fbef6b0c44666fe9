"""Initial rows of the vocabulary tables, drawn by what a token spells and not by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

VERSION = 3
"""Raise it with every change of the initial weights, so that runs with other weights are neither resumed nor reused."""
_ROWS_AT_ONCE = 4096
# 2^64 over the golden ratio: the increment of SplitMix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw_rows(table: Tensor, token_hashes: Sequence[int] | NDArray[np.uint64], *, stream: int, std: float) -> None:
    """Fill a table with normal rows, each drawn from a generator that the stream and the hash of its token seed.

    Two vocabularies get the same row for a token that they share, whatever its ids. Padding rows are zero.

    Args:
        table: float32[padded vocabulary, hidden_size], on the CPU.
        token_hashes: uint64[vocab_size].
        stream: Tells tables and seeds apart.
        std: Standard deviation.
    """
    rows, hashes = table.detach(), np.asarray(token_hashes, np.uint64)
    rows[len(hashes) :] = 0
    seeds = _mixed(hashes ^ _mixed(np.array([stream % (1 << 64)], np.uint64)))
    steps = np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * _GOLDEN
    for first in range(0, len(hashes), _ROWS_AT_ONCE):
        bits = _mixed(seeds[first : first + _ROWS_AT_ONCE, None] + steps)
        uniform = torch.from_numpy((bits >> np.uint64(11)).astype(np.float64)).add_(0.5).mul_(2.0**-53)
        rows[first : first + len(bits)] = torch.special.ndtri(uniform) * std


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Output function of SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
