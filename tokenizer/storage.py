"""File operations on everything that is kept: artifacts, shards, checkpoints, counts, tokenizer folders and reports.

All of them go through `disk`, which tests replace to make an operation fail. `tokenizer.corpus.remote_disk` implements
the same methods for object storage, for files that appear under their names as a whole.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to every OSError in the block without a file name, as `write` and `fsync` raise it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


class Disk:
    """The local file system."""

    def open(self, path: Path, mode: str) -> IO[bytes]:
        """Open a file in a binary mode."""
        return cast(IO[bytes], path.open(mode))

    def read(self, path: Path) -> bytes:
        """Return the content of a file."""
        with naming(path), self.open(path, "rb") as file:
            return file.read()

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or a folder with this path."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return path.stat().st_size

    def mode(self, path: Path) -> int:
        """Return the type and the permissions of a file."""
        return path.stat().st_mode

    def local(self, path: Path) -> Path:
        """Return a local path of a file, for a library that reads or maps it itself."""
        return path

    @contextmanager
    def borrowed(self, path: Path) -> Iterator[Path]:
        """Yield a local path of a file, for a library that reads it itself in the block."""
        yield self.local(path)

    def free_bytes(self, folder: Path) -> int:
        """Return the free bytes of the disk of a folder, or of its first parent that exists."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free

    @contextmanager
    def written(self, path: Path) -> Iterator[Path]:
        """Yield a local path of a file, for a library that writes it itself in the block."""
        yield path

    def sync(self, path: Path) -> None:
        """Flush a file or a folder to the device."""
        with naming(path):
            self._sync(path)

    def _sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or a folder; an existing file is replaced."""
        source.replace(target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        path.unlink(missing_ok=missing_ok)

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, unless they exist."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_folder(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Delete a folder and its content, if it exists."""
        if ignore_errors or path.exists():
            shutil.rmtree(path, ignore_errors=ignore_errors)


disk = Disk()
