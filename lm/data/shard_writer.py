"""Writing of shards: encoded documents into files of tokens and lists of documents."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm.data.shards import COVERED, FORMAT, FORMAT_VERSION, MANIFEST, NORMALIZED, TextLoss, token_hashes
from tokenizer.durable import naming, write_whole
from tokenizer.errors import UserError, quoted
from tokenizer.files import recorded, remember_checksum, write_sealed

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike


class HashedFile:
    """A file that is written in order, with a running checksum."""

    def __init__(self, path: Path) -> None:
        self._path, self._hash, self._file = path, xxhash.xxh3_128(), path.open("wb")

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self._hash.update(data)
        with naming(self._path):
            self._file.write(data)

    def close(self) -> str:
        """Flush the file to disk and close it; return its XXH3-128."""
        digest: str = self._hash.hexdigest()
        with naming(self._path), self._file:
            remember_checksum(self._file, digest)
            os.fsync(self._file.fileno())
        return digest

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class Encoded:
    """Encoded documents.

    Attributes:
        stream: uint16 or uint32[n_tokens], the documents' tokens.
        ends: int64[n_documents], end of each document in the stream.
        sizes: int64[n_documents], UTF-8 bytes of each document.
        normalized: int64[n_documents], as `Shards.normalized_bytes`.
        covered: uint32[n_tokens], as `Shards.covered_bytes`; None where tokens always have the same bytes.
    """

    stream: NDArray[Any]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    normalized: NDArray[np.int64]
    covered: NDArray[np.uint32] | None

    def __getitem__(self, documents: slice) -> Encoded:
        first, last, _ = documents.indices(len(self.ends))
        start, stop = (int(self.ends[i - 1]) if i else 0 for i in (first, last))
        return Encoded(
            self.stream[start:stop],
            self.ends[first:last] - start,
            self.sizes[first:last],
            self.normalized[first:last],
            None if self.covered is None else self.covered[start:stop],
        )


class Encoder:
    """Encodes documents for a `Writer`.

    Args:
        tokenizer: Must have an `end_of_text`.
    """

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self._tokenizer = tokenizer
        self.eos = tokenizer.end_id
        self.lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
        self.dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"

    def encode(self, batch: Batch, first: int) -> Encoded:
        """Encode documents, of which the first has index `first`, on the calling thread."""
        stream = self._tokenizer.encode_stream(batch, self.eos, self.lengths, narrow=self.dtype == "uint16")
        sizes = np.diff(batch.offsets)
        expected = sizes if stream.expected is None else stream.expected
        normalized = np.zeros(len(sizes), np.int64)
        if stream.changed is not None:
            normalized[stream.changed] = np.where(expected == 0, -1, expected)[stream.changed]
        # Loss per byte is only valid if the tokens of a document have exactly its bytes.
        wrong = np.flatnonzero(stream.spelled != expected)
        if len(wrong):
            at = int(wrong[0])
            raise UserError(
                f"document {first + at} has {expected[at]} bytes, but its tokens have {stream.spelled[at]}: this "
                "tokenizer does not preserve text, so a loss per byte would be wrong; use one that covers every byte"
            )
        if stream.marked is not None:
            end = quoted(self._tokenizer.end_of_text)
            raise UserError(
                f"document {first + stream.marked} contains text that the tokenizer encodes as its end of text, {end}; "
                "name another token with end_of_text (a new string gets a new id)"
            )
        return Encoded(stream.ids, stream.ends, sizes, normalized, stream.covered)


class Writer:
    """Writes encoded documents into a new folder.

    Args:
        folder: Target; must be empty.
        tokenizer: Encodes the documents.
        tokens_per_shard: A new file is started once the last one has this many tokens.
    """

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_shard: int) -> None:
        self.folder, self.encoder = folder, Encoder(tokenizer)
        self._tokenizer, self._tokens_per_shard = tokenizer, tokens_per_shard
        folder.mkdir(parents=True, exist_ok=True)
        self._document_lists = ["document_ends.bin", "document_bytes.bin", *([NORMALIZED] * tokenizer.changes_text)]
        lists = [*self._document_lists, *([] if tokenizer.fixed_bytes else [COVERED])]
        self._list_files = {name: HashedFile(folder / name) for name in lists}
        self._shards: list[dict[str, Any]] = []
        self.n_documents, self.n_bytes, self._n_tokens = 0, 0, 0
        self._begin = 0, 0, 0  # totals before the current shard
        self._shard: HashedFile | None = None
        self._shard_loss = TextLoss()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._shard, *self._list_files.values()):
            if file is not None:
                file.abandon()

    def add(self, encoded: Encoded) -> None:
        """Append documents; a file that is full is followed by a new one, and no document is split."""
        while len(encoded.ends):
            if self._shard is None:
                self._shard = HashedFile(self.folder / _name(len(self._shards)))
                self._begin = self.n_documents, self.n_bytes, self._n_tokens
            full = self._begin[2] + self._tokens_per_shard
            n = min(len(encoded.ends), int(np.searchsorted(encoded.ends, full - self._n_tokens)) + 1)
            self._append(self._shard, encoded[:n])
            encoded = encoded[n:]
            if self._n_tokens >= full:
                self._finish_shard()

    def _append(self, shard: HashedFile, encoded: Encoded) -> None:
        """Append documents to the current shard."""
        shard.write(np.ascontiguousarray(encoded.stream).data)
        numbers = (encoded.ends + self._n_tokens, encoded.sizes, encoded.normalized)
        for name, listed in zip(self._document_lists, numbers, strict=False):
            self._list_files[name].write(listed.astype("<i8").data)
        if encoded.covered is not None:
            self._list_files[COVERED].write(encoded.covered.astype("<u4").data)
        if self._tokenizer.changes_text:
            self._shard_loss += self._loss(encoded)
        self._n_tokens += len(encoded.stream)
        self.n_documents += len(encoded.ends)
        self.n_bytes += int(encoded.sizes.sum())

    def _loss(self, encoded: Encoded) -> TextLoss:
        """Text that the tokens of some documents lack."""
        changed = int(np.count_nonzero(encoded.normalized))
        if encoded.covered is None:
            return TextLoss(changed_documents=changed)
        covered = encoded.covered.astype(np.int64)
        lacking = encoded.sizes - np.diff(np.append(0, covered.cumsum())[encoded.ends], prepend=0)
        unknown_id = self._tokenizer.unknown_id
        unknown = encoded.stream == (-1 if unknown_id is None else unknown_id)
        return TextLoss(
            changed_documents=changed,
            unaccounted_documents=int(np.count_nonzero(lacking)),
            unaccounted_bytes=int(lacking.sum()),
            unknown_tokens=int(np.count_nonzero(unknown)),
            unknown_bytes=int(covered[unknown].sum()),
        )

    def _finish_shard(self) -> None:
        """Close the current shard and record it."""
        shard, self._shard = self._shard, None
        if shard is None:
            return
        documents, n_bytes, n_tokens = self._begin
        record: dict[str, Any] = {
            "name": _name(len(self._shards)),
            "n_tokens": self._n_tokens - n_tokens,
            "n_documents": self.n_documents - documents,
            "n_bytes": self.n_bytes - n_bytes,
            "documents": [documents, self.n_documents],  # half-open range of document indices in the whole stream
            "xxh3_128": shard.close(),
        }
        if self._tokenizer.changes_text:
            record["text_loss"] = asdict(self._shard_loss)
            self._shard_loss = TextLoss()
        self._shards.append(record)

    def finish(self, skipped: dict[str, Any] | None = None) -> dict[str, Any]:
        """Close the files, write the manifest and return it.

        Args:
            skipped: Records of the corpus that are missing, if any, for the manifest.
        """
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self._finish_shard()
        for file in self._list_files.values():
            file.close()
        write_whole(self.folder / "token_bytes.bin", self.encoder.lengths.astype("<u4").tobytes())
        write_whole(self.folder / "token_hashes.bin", token_hashes(self._tokenizer).astype("<u8").tobytes())
        files = [*(shard["name"] for shard in self._shards), *self._list_files, "token_bytes.bin", "token_hashes.bin"]
        losses = [TextLoss(**shard["text_loss"]) for shard in self._shards if "text_loss" in shard]
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "dtype": self.encoder.dtype,
            "vocab_size": len(self.encoder.lengths),
            "eos_id": self.encoder.eos,
            "end_of_text": self._tokenizer.end_of_text,
            "tokenizer_sha256": self._tokenizer.sha256,
            "tokens_per_shard": self._tokens_per_shard,
            "n_tokens": self._n_tokens,
            "n_documents": self.n_documents,
            "n_bytes": self.n_bytes,
            # Only where it can happen: the bytes above are of the documents as they came.
            **({"text_loss": asdict(sum(losses, TextLoss()))} if losses else {}),
            **({"skipped": skipped} if skipped else {}),
            "shards": self._shards,
            "files": recorded(self.folder, files),
        }
        write_sealed(self.folder / MANIFEST, manifest)
        return manifest


def _name(number: int) -> str:
    return f"tokens-{number:05}.bin"
