"""Append-only files with checksums."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm.data.shards import TextLoss
from tokenizer import storage
from tokenizer.checksums import remember_checksum

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class ShardFile:
    """A file of tokens, which is named `.partial` until it is complete.

    Args:
        path: The file.
        first_document: Index of its first document.
    """

    def __init__(self, path: Path, *, first_document: int) -> None:
        self.path = path
        self.n_tokens = 0
        self.text_loss = TextLoss()
        self._first_document = first_document
        self._n_documents = self._n_bytes = 0
        self._text: xxhash.xxh3_128 | None = None
        self._partial = path.with_name(path.name + ".partial")
        self._file = HashedFile(self._partial)

    def add(self, tokens: NDArray[Any], n_documents: int, n_bytes: int, text: NDArray[np.uint8] | None = None) -> None:
        """Append whole documents: their tokens, and their text if it is there."""
        self._file.write(np.ascontiguousarray(tokens).data)
        if text is not None:
            self._text = self._text or xxhash.xxh3_128()
            self._text.update(text.data)
        self.n_tokens += len(tokens)
        self._n_documents += n_documents
        self._n_bytes += n_bytes

    @property
    def text_hash(self) -> str | None:
        """XXH3-128 of the documents' text, if it was passed."""
        return None if self._text is None else self._text.hexdigest()

    def record(self, digest: str) -> dict[str, Any]:
        """Its record, given the XXH3-128 of the finished file."""
        return {
            "name": self.path.name,
            "n_tokens": self.n_tokens,
            "n_documents": self._n_documents,
            "n_bytes": self._n_bytes,
            # Half-open range of document indices in the whole stream.
            "documents": [self._first_document, self._first_document + self._n_documents],
            "xxh3_128": digest,
        }

    def close(self) -> None:
        """Close the file without finishing it."""
        self._file.close()

    def finish(self) -> str:
        """Flush the file, rename it and return its XXH3-128."""
        digest = self._file.sync()
        self._file.close()
        storage.disk.rename(self._partial, self.path)
        return digest


class TextHash:
    """Running hash of the text of a finished shard.

    Args:
        documents: Half-open range of the shard's documents.
        expected: XXH3-128 of their text; None if it is not known.
    """

    def __init__(self, documents: Sequence[int], expected: str | None) -> None:
        self.documents = documents
        self.left = documents[1] - documents[0]
        """Documents that were not added."""
        self._hash, self._expected = xxhash.xxh3_128(), expected

    def update(self, text: NDArray[np.uint8], n_documents: int) -> None:
        """Add the text of the next documents."""
        self._hash.update(np.ascontiguousarray(text).data)
        self.left -= n_documents

    def agrees(self) -> bool:
        """False if all documents were added, and differ from those of the shard."""
        return bool(self.left) or self._expected is None or self._expected == self._hash.hexdigest()


class HashedFile:
    """An append-only file with a running checksum.

    Args:
        path: The file.
        keep: Append to its content instead of replacing it.
    """

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        self._path = path
        self._hash = hash_of_first(path, path.stat().st_size) if keep and path.exists() else xxhash.xxh3_128()
        self._file: IO[bytes] = storage.disk.open(path, "ab" if keep else "wb")

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self._hash.update(data)
        self._file.write(data)

    def sync(self) -> str:
        """Flush the file to disk and return its XXH3-128 so far."""
        digest: str = self._hash.hexdigest()
        remember_checksum(self._file, digest)
        storage.disk.sync(self._path)
        return digest

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def hash_of_first(path: Path, n_bytes: int) -> xxhash.xxh3_128:
    """Running hash of a file's first `n_bytes`, or of the whole file if it is shorter."""
    found = xxhash.xxh3_128()
    with storage.naming(path), storage.disk.open(path, "rb") as file:
        while n_bytes and (part := file.read(min(n_bytes, 1 << 20))):
            found.update(part)
            n_bytes -= len(part)
    return found


def checksum_of_first(path: Path, n_bytes: int) -> str:
    """XXH3-128 of a file's first bytes; empty if there is no such file."""
    return str(hash_of_first(path, n_bytes).hexdigest()) if path.exists() else ""
