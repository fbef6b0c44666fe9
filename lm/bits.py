"""Losses in bits. Models predict in nats; tokenizers are compared in bits per byte of the original text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

Nats = TypeVar("Nats", float, "NDArray[Any]")


def bits(nats: Nats) -> Nats:
    """Convert a loss, or an array of losses, from nats to bits."""
    return nats / math.log(2)


def bits_per_byte(nats: Nats, n_bytes: float) -> Nats:
    """Bits per byte of a loss in nats over this many bytes of the original text.

    >>> bits_per_byte(math.log(256), 1)
    8.0
    """
    return bits(nats) / n_bytes
