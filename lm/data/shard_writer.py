"""Shards as they are being written: files that are either finished or can be thrown away.

A shard is finished when its tokens are on disk and, written after them, its record, `tokens-00000.json`. A killed
process loses the unfinished shard. Finished ones are compared with their checksums before writing continues.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm.data.shards import COVERED, END_OF_TEXT, FORMAT, FORMAT_VERSION, MANIFEST, NORMALIZED, TextLoss
from tokenizer.durable import check_files, checksum, read_sealed, recorded, remember_checksum, write_sealed, write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike

IN_ORDER = "in-order"
"""The folder inside, with the documents in the order of the corpus, from which a shuffled one is made."""
_SETTINGS = "settings.json"
_LISTS = {"document_ends.bin": 8, "document_bytes.bin": 8}
"""Bytes of each document's number in the files that are written beside the tokens."""


@dataclass(frozen=True)
class Encoded:
    """Documents as they are written: stream[n_tokens], and for each its end in the stream and its bytes of text.

    `normalized` and `covered` are the numbers of `Shards.normalized_bytes` and `Shards.covered_bytes`.
    """

    stream: NDArray[Any]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    normalized: NDArray[np.int64]
    covered: NDArray[np.uint32] | None

    def without(self, documents: int) -> Encoded:
        """The same without the first documents."""
        start = int(self.ends[documents - 1]) if documents else 0
        rest = self.ends[documents:] - start
        covered = None if self.covered is None else self.covered[start:]
        return Encoded(self.stream[start:], rest, self.sizes[documents:], self.normalized[documents:], covered)


class Writer:
    """Writes encoded documents into the files of one folder, behind the shards that are finished there.

    Args:
        folder: Where; finished shards that other settings wrote are removed.
        tokenizer: Encodes the documents.
        tokens_per_shard: A new file starts once the last one holds this many tokens.
        shuffle_seed: What the documents' order was drawn with.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: TokenizerLike,
        tokens_per_shard: int,
        shuffle_seed: int | None,
    ) -> None:
        if END_OF_TEXT not in tokenizer.special_tokens:
            names = ", ".join(tokenizer.special_tokens) or "none"
            raise UserError(
                f"the tokenizer has no special token {END_OF_TEXT} to part documents (it has: {names}); "
                f"train or import it with special_tokens=['{END_OF_TEXT}']"
            )
        self.folder = folder
        self._eos = tokenizer.special_tokens[END_OF_TEXT]
        self._lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
        self._dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        self._tokens_per_shard = tokens_per_shard
        # What decides the content beside the text.
        self._settings = {
            "tokenizer_sha256": tokenizer.sha256,
            "tokens_per_shard": tokens_per_shard,
            "shuffle_seed": shuffle_seed,
        }
        self._changes_text, self._unknown_id = tokenizer.changes_text, tokenizer.unknown_id
        self._document_lists = _LISTS | ({NORMALIZED: 8} if self._changes_text else {})
        self._token_lists = {} if tokenizer.fixed_bytes else {COVERED: 4}
        self.manifest = self._whole()
        self._shards = self.manifest["shards"] if self.manifest else self._finished()
        self.n_documents = self._total("n_documents")
        self.n_bytes = self._total("n_bytes")
        self._n_tokens = self._total("n_tokens")
        self._text_loss = sum((TextLoss(**shard.get("text_loss", {})) for shard in self._shards), TextLoss())
        self._sizes_written = np.fromfile(folder / "document_bytes.bin", "<u8", self.n_documents).astype(np.int64)
        lists = (*self._document_lists, *self._token_lists)
        self._list_files = {name: _Hashed(folder / name, keep=True) for name in lists}
        self._shard: _Shard | None = None

    def _total(self, key: str) -> int:
        return sum(int(shard[key]) for shard in self._shards)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._shard, *self._list_files.values()):
            if file is not None:
                file.close()

    def _whole(self) -> dict[str, Any] | None:
        """The manifest, if everything was written that these settings ask for."""
        found = _read(self.folder / MANIFEST)
        if found is None or {key: found.get(key) for key in self._settings} != self._settings:
            return None
        try:
            check_files(self.folder, found["files"])
        except (UserError, FileNotFoundError):
            return None
        self._remove_scaffold()
        return found

    def _remove_scaffold(self) -> None:
        (self.folder / _SETTINGS).unlink(missing_ok=True)
        shutil.rmtree(self.folder / IN_ORDER, ignore_errors=True)

    def _finished(self) -> list[dict[str, Any]]:
        """Records of the finished shards; everything else is removed. None if other settings wrote them."""
        if _read(self.folder / _SETTINGS) != self._settings:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.iterdir():
                if path.is_file():
                    path.unlink()
                elif path.name != IN_ORDER or self._settings["shuffle_seed"] is None:
                    shutil.rmtree(path)
            write_sealed(self.folder / _SETTINGS, self._settings)
        found: list[dict[str, Any]] = []
        while (record := _read(self.folder / f"tokens-{len(found):05}.json")) is not None:
            path = self.folder / record["name"]
            if not path.exists() or checksum(path) != record["xxh3_128"]:
                break
            found.append(record)
        sizes = self._list_sizes(found)
        if found and any(
            _checksum_of_first(self.folder / name, size) != found[-1]["lists"].get(name) for name, size in sizes.items()
        ):
            found, sizes = [], self._list_sizes([])
        kept = {name for record in found for name in (record["name"], _record_name(record["name"]))}
        for path in [*self.folder.glob("tokens-*"), *self.folder.glob(".*.partial")]:
            if path.name not in kept:
                path.unlink()
        for name, size in sizes.items():
            with (self.folder / name).open("ab") as file:
                file.truncate(size)
        return found

    def _list_sizes(self, records: list[dict[str, Any]]) -> dict[str, int]:
        """Bytes of the lists that belong to these shards."""
        documents, tokens = (sum(record[key] for record in records) for key in ("n_documents", "n_tokens"))
        sizes = {name: width * documents for name, width in self._document_lists.items()}
        return sizes | {name: width * tokens for name, width in self._token_lists.items()}

    def check_sizes(self, first: int, sizes: NDArray[np.int64]) -> None:
        """Refuse documents, from number `first` on, that are not as long as those of the finished shards."""
        wrong = np.flatnonzero(self._sizes_written[first : first + len(sizes)] != sizes)
        if len(wrong):
            at = int(wrong[0])
            raise UserError(
                f"{self.folder} holds finished shards of another text: document {first + at} has {sizes[at]} bytes now "
                f"and had {self._sizes_written[first + at]}; bring back that text, or delete that folder to start anew"
            )

    def encode(self, tokenizer: TokenizerLike, batch: Batch, first: int) -> Encoded:
        """Encode documents, the first of which has the number `first`, on the calling thread."""
        stream = tokenizer.encode_stream(batch, self._eos, self._lengths, narrow=self._dtype == "uint16")
        sizes = np.diff(batch.offsets)
        expected = sizes if stream.expected is None else stream.expected
        normalized = np.zeros(len(sizes), np.int64)
        if stream.changed is not None:
            normalized[stream.changed] = np.where(expected == 0, -1, expected)[stream.changed]
        # Every loss per byte rests on this: the tokens of a document have exactly its bytes.
        wrong = np.flatnonzero(stream.spelled != expected)
        if len(wrong):
            at = int(wrong[0])
            raise UserError(
                f"document {first + at} has {expected[at]} bytes, but its tokens have {stream.spelled[at]}: this "
                "tokenizer does not reproduce text, so a loss per byte would be wrong; use one that covers every byte"
            )
        if stream.marked is not None:
            raise UserError(f"the tokenizer encoded ordinary text as {END_OF_TEXT}; it must never do that")
        return Encoded(stream.ids, stream.ends, sizes, normalized, stream.covered)

    def add(self, encoded: Encoded) -> None:
        """Append documents; a file takes whole ones until it is full."""
        stream, ends, sizes = encoded.stream, encoded.ends, encoded.sizes
        start = document = 0
        while document < len(ends):
            if self._shard is None:
                path = self.folder / f"tokens-{len(self._shards):05}.bin"
                self._shard = _Shard(path, first_document=self.n_documents)
            room = self._tokens_per_shard - self._shard.n_tokens
            stop_document = min(len(ends), int(np.searchsorted(ends, start + room)) + 1)
            stop = int(ends[stop_document - 1])
            n_bytes = int(sizes[document:stop_document].sum())
            self._shard.write(stream[start:stop], stop_document - document, n_bytes)
            numbers = (
                ends[document:stop_document] - start + self._n_tokens,
                sizes[document:stop_document],
                encoded.normalized[document:stop_document],
            )
            for name, listed in zip(self._document_lists, numbers, strict=False):
                self._list_files[name].write(listed.astype("<i8").data)
            if encoded.covered is not None:
                self._list_files[COVERED].write(encoded.covered[start:stop].astype("<u4").data)
            if self._changes_text:
                self._shard.text_loss += self._loss(encoded, start, stop, document, stop_document)
            self._n_tokens += stop - start
            self.n_documents += stop_document - document
            self.n_bytes += n_bytes
            start, document = stop, stop_document
            if self._shard.n_tokens >= self._tokens_per_shard:
                self._finish_shard()

    def _loss(self, encoded: Encoded, start: int, stop: int, document: int, stop_document: int) -> TextLoss:
        """What the tokens `start` to `stop`, those of the given documents, lack of the text."""
        changed = int(np.count_nonzero(encoded.normalized[document:stop_document]))
        if encoded.covered is None:
            return TextLoss(changed_documents=changed)
        covered = encoded.covered[start:stop].astype(np.int64)
        ends = encoded.ends[document:stop_document] - start
        lacking = encoded.sizes[document:stop_document] - np.diff(np.append(0, covered.cumsum())[ends], prepend=0)
        unknown = encoded.stream[start:stop] == (-1 if self._unknown_id is None else self._unknown_id)
        return TextLoss(
            changed_documents=changed,
            unaccounted_documents=int(np.count_nonzero(lacking)),
            unaccounted_bytes=int(lacking.sum()),
            unknown_tokens=int(np.count_nonzero(unknown)),
            unknown_bytes=int(covered[unknown].sum()),
        )

    def _finish_shard(self) -> None:
        """Bring the shard to disk, then its record: with that it is finished."""
        if self._shard is None:
            return
        record = {**self._shard.finish(), "lists": {name: file.sync() for name, file in self._list_files.items()}}
        if self._changes_text:
            record["text_loss"] = asdict(self._shard.text_loss)
            self._text_loss += self._shard.text_loss
        write_sealed(self.folder / _record_name(record["name"]), record)
        self._shards.append(record)
        self._shard = None

    def finish(self) -> dict[str, Any]:
        """Close the files, write the manifest and return it."""
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self._finish_shard()
        self.__exit__(None, None, None)
        write_whole(self.folder / "token_bytes.bin", self._lengths.astype("<u4").tobytes())
        records = [_record_name(shard["name"]) for shard in self._shards]
        files = [*(shard["name"] for shard in self._shards), *records, *self._list_files, "token_bytes.bin"]
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "dtype": self._dtype,
            "vocab_size": len(self._lengths),
            "eos_id": self._eos,
            **self._settings,
            "n_tokens": self._n_tokens,
            "n_documents": self.n_documents,
            "n_bytes": self.n_bytes,
            # Only where it can happen: the bytes above are of the documents as they came.
            **({"text_loss": asdict(self._text_loss)} if self._changes_text else {}),
            "shards": self._shards,
            "files": recorded(self.folder, files),
        }
        write_sealed(self.folder / MANIFEST, manifest)
        self._remove_scaffold()
        return manifest


class _Shard:
    """One file of tokens, called `.partial` until it is complete."""

    def __init__(self, path: Path, *, first_document: int) -> None:
        self.n_tokens = 0
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        self._file = _Hashed(self._partial)
        self.text_loss = TextLoss()
        self._first_document = first_document
        self._n_documents = self._n_bytes = 0

    def write(self, tokens: NDArray[Any], n_documents: int, n_bytes: int) -> None:
        """Append whole documents."""
        self._file.write(np.ascontiguousarray(tokens).data)
        self.n_tokens += len(tokens)
        self._n_documents += n_documents
        self._n_bytes += n_bytes

    def close(self) -> None:
        """Leave it unfinished."""
        self._file.close()

    def finish(self) -> dict[str, Any]:
        """Flush it, give it its name and return its record."""
        digest = self._file.sync()
        self._file.close()
        self._partial.replace(self._path)
        return {
            "name": self._path.name,
            "n_tokens": self.n_tokens,
            "n_documents": self._n_documents,
            "n_bytes": self._n_bytes,
            # Numbers in the whole stream, the last one excluded.
            "documents": [self._first_document, self._first_document + self._n_documents],
            "xxh3_128": digest,
        }


class _Hashed:
    """A file that is written from front to back and knows its checksum.

    Args:
        path: The file.
        keep: Append to what it holds.
    """

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        self._hash = _hash_of_first(path, path.stat().st_size) if keep and path.exists() else xxhash.xxh3_128()
        self._file: IO[bytes] = path.open("ab" if keep else "wb")

    def write(self, data: memoryview) -> None:
        """Append."""
        self._hash.update(data)
        self._file.write(data)

    def sync(self) -> str:
        """Bring the file to disk and return its XXH3-128 so far."""
        digest: str = self._hash.hexdigest()
        remember_checksum(self._file, digest)
        os.fsync(self._file.fileno())
        return digest

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _hash_of_first(path: Path, n_bytes: int) -> xxhash.xxh3_128:
    """The hash of a file's first bytes, or of all if it has fewer."""
    found = xxhash.xxh3_128()
    with path.open("rb") as file:
        while n_bytes and (part := file.read(min(n_bytes, 1 << 20))):
            found.update(part)
            n_bytes -= len(part)
    return found


def _checksum_of_first(path: Path, n_bytes: int) -> str:
    return str(_hash_of_first(path, n_bytes).hexdigest()) if path.exists() else ""


def _read(path: Path) -> dict[str, Any] | None:
    """A sealed file; None if it is missing or damaged, so that what it describes is made again."""
    try:
        return read_sealed(path)
    except (FileNotFoundError, ValueError):
        return None


def _record_name(name: str) -> str:
    return f"{name.removesuffix('.bin')}.json"
