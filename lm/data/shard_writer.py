"""Writing of encoded documents: what all layouts share, and our own shards."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xxhash

from lm.data.shards import COVERED, FORMAT, FORMAT_VERSION, MANIFEST, NORMALIZED, TextLoss, token_hashes
from tokenizer.durable import naming, write_whole
from tokenizer.errors import UserError, quoted
from tokenizer.files import recorded, remember_checksum, write_sealed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike

_BLOCK_BYTES = 1 << 24


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
class EncodedBatch:
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

    def __getitem__(self, documents: slice) -> EncodedBatch:
        first, last, _ = documents.indices(len(self.ends))
        start, stop = (int(self.ends[i - 1]) if i else 0 for i in (first, last))
        return EncodedBatch(
            self.stream[start:stop],
            self.ends[first:last] - start,
            self.sizes[first:last],
            self.normalized[first:last],
            None if self.covered is None else self.covered[start:stop],
        )


def smallest_dtype(vocab_size: int) -> str:
    """Type of ids on disk: uint16 up to 65,536 tokens, otherwise uint32."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


class Encoder:
    """Encodes documents for a `Writer`.

    Args:
        tokenizer: Must have an `end_of_text`.
        dtype: Type of the ids, uint16 or uint32; None takes the smaller one that holds the vocabulary.
    """

    def __init__(self, tokenizer: TokenizerLike, dtype: str | None = None) -> None:
        self._tokenizer = tokenizer
        self.eos = tokenizer.end_id
        self.lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
        self.dtype = dtype or smallest_dtype(tokenizer.vocab_size)

    def encode(self, batch: Batch, first: int) -> EncodedBatch:
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
        return EncodedBatch(stream.ids, stream.ends, sizes, normalized, stream.covered)


class Writer(ABC):
    """Writes encoded documents into the files of a new folder. Each layout is a subclass.

    Args:
        folder: Target; must be empty.
        tokenizer: Encodes the documents.
        tokens_per_file: A new file is started once the last one has this many tokens.

    Attributes:
        reader: Programs that read the layout.
        ends_documents: Whether `end_of_text` follows each document. Otherwise it precedes each one.
        n_documents: Documents so far.
        n_bytes: UTF-8 bytes of the documents so far.
        n_tokens: Tokens so far.
    """

    reader: ClassVar[str]
    ends_documents: ClassVar[bool] = False

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_file: int) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self.encoder = Encoder(tokenizer, self.dtype(tokenizer.vocab_size))
        folder.mkdir(parents=True, exist_ok=True)
        self._tokens_per_file = tokens_per_file
        self._files: list[dict[str, Any]] = []
        self.n_documents, self.n_bytes, self.n_tokens = 0, 0, 0
        self._begin: tuple[int, int, int] | None = None  # totals before the current file
        self._loss = TextLoss()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    @classmethod
    def dtype(cls, vocab_size: int) -> str:
        """Type of the encoded ids, uint16 or uint32.

        Raises:
            UserError: If the layout cannot hold the vocabulary.
        """
        return smallest_dtype(vocab_size)

    @abstractmethod
    def _start(self, number: int) -> str:
        """Create a file of tokens and return its name."""

    @abstractmethod
    def _append(self, encoded: EncodedBatch) -> None:
        """Append documents to the current file. The totals do not count them yet."""

    @abstractmethod
    def _end(self) -> dict[str, Any]:
        """Complete the current file and return fields for its record."""

    @abstractmethod
    def _abandon(self) -> None:
        """Close all open files."""

    def add(self, encoded: EncodedBatch) -> None:
        """Append documents; a file that is full is followed by a new one, and no document is split."""
        while len(encoded.ends):
            if self._begin is None:
                self._begin = self.n_documents, self.n_bytes, self.n_tokens
                self._files.append({"name": self._start(len(self._files))})
            full = self._begin[2] + self._tokens_per_file
            n = min(len(encoded.ends), int(np.searchsorted(encoded.ends, full - self.n_tokens)) + 1)
            part, encoded = encoded[:n], encoded[n:]
            self._append(part)
            if self.tokenizer.changes_text:
                self._loss += self._text_loss(part)
            self.n_tokens += len(part.stream)
            self.n_documents += len(part.ends)
            self.n_bytes += int(part.sizes.sum())
            if self.n_tokens >= full:
                self._end_file()

    def _text_loss(self, encoded: EncodedBatch) -> TextLoss:
        """Text that the tokens of some documents lack."""
        changed = int(np.count_nonzero(encoded.normalized))
        if encoded.covered is None:
            return TextLoss(changed_documents=changed)
        covered = encoded.covered.astype(np.int64)
        lacking = encoded.sizes - np.diff(np.append(0, covered.cumsum())[encoded.ends], prepend=0)
        unknown_id = self.tokenizer.unknown_id
        unknown = encoded.stream == (-1 if unknown_id is None else unknown_id)
        return TextLoss(
            changed_documents=changed,
            unaccounted_documents=int(np.count_nonzero(lacking)),
            unaccounted_bytes=int(lacking.sum()),
            unknown_tokens=int(np.count_nonzero(unknown)),
            unknown_bytes=int(covered[unknown].sum()),
        )

    def _end_file(self) -> None:
        """Complete the current file, if there is one, and record it."""
        if self._begin is None:
            return
        (documents, n_bytes, n_tokens), self._begin = self._begin, None
        record = self._files[-1]
        record |= {
            "n_tokens": self.n_tokens - n_tokens,
            "n_documents": self.n_documents - documents,
            "n_bytes": self.n_bytes - n_bytes,
            "documents": [documents, self.n_documents],  # half-open range of document indices in the whole stream
            **self._end(),
        }
        if self.tokenizer.changes_text:
            record["text_loss"] = asdict(self._loss)
            self._loss = TextLoss()

    def finish(self, skipped: dict[str, Any] | None = None) -> dict[str, Any]:
        """Close the files, write the manifest and return it.

        Args:
            skipped: Records of the corpus that are missing, if any, for the manifest.
        """
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self._end_file()
        losses = [TextLoss(**file["text_loss"]) for file in self._files if "text_loss" in file]
        return self._write_manifest(
            {
                "dtype": self.encoder.dtype,
                "vocab_size": len(self.encoder.lengths),
                "eos_id": self.encoder.eos,
                "end_of_text": self.tokenizer.end_of_text,
                "tokenizer_sha256": self.tokenizer.sha256,
                "n_tokens": self.n_tokens,
                "n_documents": self.n_documents,
                "n_bytes": self.n_bytes,
                # Only where it can happen: the bytes above are of the documents as they came.
                **({"text_loss": asdict(sum(losses, TextLoss()))} if losses else {}),
                **({"skipped": skipped} if skipped else {}),
            }
        )

    @abstractmethod
    def _write_manifest(self, about: dict[str, Any]) -> dict[str, Any]:
        """Write the manifest, which contains `about`, and return it."""


class ShardWriter(Writer):
    """Our own shards, as `lm.data.shards` describes them."""

    reader = "this program"

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_file: int) -> None:
        super().__init__(folder, tokenizer, tokens_per_file)
        self._document_lists = ["document_ends.bin", "document_bytes.bin", *([NORMALIZED] * tokenizer.changes_text)]
        lists = [*self._document_lists, *([] if tokenizer.fixed_bytes else [COVERED])]
        self._list_files = {name: HashedFile(folder / name) for name in lists}
        self._shard: HashedFile | None = None

    def _abandon(self) -> None:
        for file in (self._shard, *self._list_files.values()):
            if file is not None:
                file.abandon()

    def _start(self, number: int) -> str:
        name = f"tokens-{number:05}.bin"
        self._shard = HashedFile(self.folder / name)
        return name

    def _append(self, encoded: EncodedBatch) -> None:
        assert self._shard is not None
        self._shard.write(np.ascontiguousarray(encoded.stream).data)
        numbers = (encoded.ends + self.n_tokens, encoded.sizes, encoded.normalized)
        for name, listed in zip(self._document_lists, numbers, strict=False):
            self._list_files[name].write(listed.astype("<i8").data)
        if encoded.covered is not None:
            self._list_files[COVERED].write(encoded.covered.astype("<u4").data)

    def _end(self) -> dict[str, Any]:
        assert self._shard is not None
        return {"xxh3_128": self._shard.close()}

    def finish_part(self) -> list[dict[str, Any]]:
        """Close the files without a manifest, for `append_part`; return the records of the files of tokens."""
        self._end_file()
        for file in self._list_files.values():
            file.close()
        return self._files

    def append_part(self, folder: Path, shards: Sequence[dict[str, Any]]) -> None:
        """Append the documents of another writer, whose files of tokens are moved here."""
        for shard in shards:
            name = f"tokens-{len(self._files):05}.bin"
            if not (self.folder / name).exists():  # otherwise a writer that was killed has moved it
                (folder / shard["name"]).rename(self.folder / name)
            with (self.folder / name).open("rb") as file:
                remember_checksum(file, shard["xxh3_128"])
            documents = [self.n_documents + i for i in shard["documents"]]
            self._files.append({**shard, "name": name, "documents": documents})
        for name, target in self._list_files.items():
            with (folder / name).open("rb") as source:
                while block := source.read(_BLOCK_BYTES):
                    if name == "document_ends.bin":
                        block = (np.frombuffer(block, "<i8") + self.n_tokens).tobytes()
                    target.write(memoryview(block))
        self.n_tokens += sum(shard["n_tokens"] for shard in shards)
        self.n_documents += sum(shard["n_documents"] for shard in shards)
        self.n_bytes += sum(shard["n_bytes"] for shard in shards)

    def _write_manifest(self, about: dict[str, Any]) -> dict[str, Any]:
        for file in self._list_files.values():
            file.close()
        write_whole(self.folder / "token_bytes.bin", self.encoder.lengths.astype("<u4").tobytes())
        write_whole(self.folder / "token_hashes.bin", token_hashes(self.tokenizer).astype("<u8").tobytes())
        files = [*(shard["name"] for shard in self._files), *self._list_files, "token_bytes.bin", "token_hashes.bin"]
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **about,
            "tokens_per_shard": self._tokens_per_file,
            "shards": self._files,
            "files": recorded(self.folder, files),
        }
        write_sealed(self.folder / MANIFEST, manifest)
        return manifest
