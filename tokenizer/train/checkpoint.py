"""Checkpoints of the merge loop, so that an interrupted training can resume."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenizer.durable import replacing
from tokenizer.errors import UserError
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from tokenizer import _native


@dataclass(frozen=True)
class Merges:
    """Merges learned so far.

    Attributes:
        ranks: [n, 2], by rank; see `Tokenizer.from_ranks`.
        counts: [n], the count of each pair when it was merged.
        seconds: training time of earlier runs, up to the checkpoint.
    """

    ranks: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint64]
    seconds: float = 0.0

    @classmethod
    def none(cls) -> Merges:
        """No merges yet."""
        return cls(np.empty((0, 2), np.uint32), np.empty(0, np.uint64))

    def then(self, found: _native.MergeColumns, seconds: float = 0.0) -> Merges:
        """Append merges that were found in `seconds` more seconds."""
        return Merges(
            np.concatenate([self.ranks, np.stack([found["left"], found["right"]], axis=1)]),
            np.concatenate([self.counts, found["count"]]),
            self.seconds + seconds,
        )

    def first(self, n: int) -> Merges:
        """The first n merges."""
        return replace(self, ranks=self.ranks[:n], counts=self.counts[:n])


class Checkpoint:
    """A checkpoint file of one training run.

    Attributes:
        seconds: time between two writes.

    Args:
        path: the file (.npz), replaced atomically.
        identity: hash of the training's input and rules.
        seconds: time between two writes.
    """

    def __init__(self, path: Path, identity: str, seconds: float) -> None:
        self._path = path
        self._identity = identity
        self.seconds = seconds
        self._last = time.monotonic()

    def load(self) -> Merges:
        """Merges in the file; none if it does not exist.

        Raises:
            UserError: the file is damaged or belongs to another training, or its folder cannot be written.
        """
        if not self._path.exists():
            if not self._path.parent.is_dir() or not os.access(self._path.parent, os.W_OK):
                raise UserError(f"checkpoint={str(self._path)!r} cannot be written; use a file in a writable folder")
            return Merges.none()
        remedy = "delete it to start from scratch"
        found = read_arrays(self._path, remedy)
        try:
            identity = str(found["identity"])
            merges = Merges(found["ranks"], found["counts"], float(found["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self._path} is damaged ({error!r}); {remedy}") from None
        if identity != self._identity:
            raise UserError(f"{self._path} is the checkpoint of another training (other counts or settings); {remedy}")
        return merges

    def due(self) -> bool:
        """Whether the checkpoint is due to be written."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, merges: Merges) -> None:
        """Write the file atomically."""
        with replacing(self._path) as file:
            np.savez(file, identity=self._identity, ranks=merges.ranks, counts=merges.counts, seconds=merges.seconds)
        self._last = time.monotonic()
