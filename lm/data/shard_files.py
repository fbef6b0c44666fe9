"""Append-only files with checksums."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import xxhash

from tokenizer.durable import naming
from tokenizer.files import remember_checksum

if TYPE_CHECKING:
    from pathlib import Path


class HashedFile:
    """An append-only file with a running checksum.

    Args:
        path: The file.
        keep: Append to its content instead of replacing it.
    """

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        self._path = path
        self._hash = hash_of_first(path, path.stat().st_size) if keep and path.exists() else xxhash.xxh3_128()
        self._file = path.open("ab" if keep else "wb")

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self._hash.update(data)
        with naming(self._path):
            self._file.write(data)

    def sync(self) -> str:
        """Flush the file to disk and return its XXH3-128 so far."""
        digest: str = self._hash.hexdigest()
        with naming(self._path):
            remember_checksum(self._file, digest)
            os.fsync(self._file.fileno())
        return digest

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def hash_of_first(path: Path, n_bytes: int) -> xxhash.xxh3_128:
    """Running hash of a file's first `n_bytes`, or of the whole file if it is shorter."""
    found = xxhash.xxh3_128()
    with naming(path), path.open("rb") as file:
        while n_bytes and (part := file.read(min(n_bytes, 1 << 20))):
            found.update(part)
            n_bytes -= len(part)
    return found
