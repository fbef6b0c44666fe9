"""Flipping single bits of a file."""

import numpy as np


def flips(path, n, seed=0):
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
