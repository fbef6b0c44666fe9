"""Free disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizer import storage
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

_CERTAIN = 0.5
"""Share of an estimate that must fit: an estimate may be twice too large, and work that fits is never rejected."""


def check_free(folder: Path, expected: int, what: str, remedy: str) -> None:
    """Stop work whose files will not fit on the disk.

    Args:
        folder: the folder of the files.
        expected: estimate of the bytes to write.
        what: what is written, a plural for the message.
        remedy: what the user can do.

    Raises:
        UserError: less than half of `expected` is free.
    """
    free = storage.disk.free_bytes(folder)
    if free < expected * _CERTAIN:
        raise UserError(
            f"{folder}: the {what} need about {expected / 1e9:.3g} GB, but {free / 1e9:.3g} GB of the disk are free; "
            f"{remedy}"
        )
