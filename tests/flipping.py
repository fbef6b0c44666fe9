"""Flipping single bits of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def flips(path: Path, n: int, seed: int = 0) -> Iterator[int]:
    """Flip `n` random bits of a file, one at a time: yields the number of the bit while it is flipped."""
    content = path.read_bytes()
    try:
        for bit in np.random.default_rng(seed).integers(8 * len(content), size=n).tolist():
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(flipped)
            yield bit
    finally:
        path.write_bytes(content)
