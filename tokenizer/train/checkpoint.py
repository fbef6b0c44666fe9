"""Merges on disk while they are being found, so that an interrupted training goes on where it was."""

from __future__ import annotations

import os
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenizer.durable import replacing
from tokenizer.errors import UserError
from tokenizer.files import check_file

if TYPE_CHECKING:
    from tokenizer import _native


@dataclass(frozen=True)
class Merges:
    """Merges that training has found.

    Attributes:
        ranks: [n, 2], by rank; see `Tokenizer.from_ranks`.
        counts: [n], the count of each pair when it was merged.
        seconds: time spent in earlier sittings.
    """

    ranks: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint64]
    seconds: float = 0.0

    @classmethod
    def none(cls) -> Merges:
        """No merges yet."""
        return cls(np.empty((0, 2), np.uint32), np.empty(0, np.uint64))

    def then(self, found: _native.MergeColumns, seconds: float = 0.0) -> Merges:
        """These and the ones found after them, in so many more seconds."""
        return Merges(
            np.concatenate([self.ranks, np.stack([found["left"], found["right"]], axis=1)]),
            np.concatenate([self.counts, found["count"]]),
            self.seconds + seconds,
        )

    def first(self, n: int) -> Merges:
        """The first n of them: merges nest."""
        return replace(self, ranks=self.ranks[:n], counts=self.counts[:n])


class Checkpoint:
    """A file of merges that belongs to one training.

    Attributes:
        seconds: time between two writes.

    Args:
        path: the file (.npz); a partial one is never seen under this name.
        identity: names the training: what it reads and its rules.
        seconds: as the attribute.
    """

    def __init__(self, path: Path, identity: str, seconds: float) -> None:
        self._path = path
        self._identity = identity
        self.seconds = seconds
        self._last = time.monotonic()

    def load(self) -> Merges:
        """What the file holds, or nothing if there is none.

        Raises:
            UserError: the file is damaged or of another training, or there is no folder to write it to.
        """
        if not self._path.exists():
            if not self._path.parent.is_dir() or not os.access(self._path.parent, os.W_OK):
                raise UserError(f"checkpoint={str(self._path)!r} cannot be written; name a file in a folder of yours")
            return Merges.none()
        check_file(self._path)
        try:
            with np.load(self._path, allow_pickle=False) as saved:
                if str(saved["identity"]) != self._identity:
                    raise UserError(
                        f"{self._path} is the checkpoint of another training (other counts or settings); delete it to "
                        "start anew"
                    )
                return Merges(saved["ranks"], saved["counts"], float(saved["seconds"]))
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{self._path} is damaged ({error}); delete it to start anew") from None

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._last >= self.seconds

    def save(self, merges: Merges) -> None:
        """Writes the file beside its name, and renames it."""
        with replacing(self._path) as file:
            np.savez(file, identity=self._identity, ranks=merges.ranks, counts=merges.counts, seconds=merges.seconds)
        self._last = time.monotonic()
