"""Losses in bits, per byte of the original text. Models predict in nats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

Nats = TypeVar("Nats", float, "NDArray[Any]")


def bytes_per_token(n_bytes: float, n_tokens: float) -> float:
    """Bytes of original text per token of text; the separators of documents are no tokens of text, and not counted.

    >>> bytes_per_token(1000, 250)
    4.0
    """
    return float(n_bytes) / max(float(n_tokens), 1.0)


def bits(nats: Nats) -> Nats:
    """Convert a loss, or an array of losses, from nats to bits."""
    return nats / math.log(2)


def bits_per_byte(nats: Nats, n_bytes: float) -> Nats:
    """Bits per byte of a loss in nats over this many bytes of the original text.

    >>> bits_per_byte(math.log(256), 1)
    8.0
    """
    return bits(nats) / n_bytes
