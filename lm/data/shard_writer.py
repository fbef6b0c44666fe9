"""Crash-safe writing of shards: every file is either finished or can be discarded.

A shard is finished once its record, `tokens-00000.json`, is on disk, which is written after the tokens. A killed
process loses only the unfinished shard. Finished shards are verified by checksum before writing resumes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.shard_files import HashedFile, ShardFile, TextHash, checksum_of_first
from lm.data.shards import COVERED, END_OF_TEXT, FORMAT, FORMAT_VERSION, MANIFEST, NORMALIZED, TextLoss, token_hashes
from tokenizer import storage
from tokenizer.checksums import check_files, checksum, read_sealed, recorded, write_sealed
from tokenizer.durable import write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike

IN_ORDER = "in-order"
"""Subfolder with the documents in corpus order, the source of a shuffled folder."""
_SETTINGS = "settings.json"
_TEXTS = "texts.json"
"""Hashes of the text of each finished shard, to notice another text when a run is resumed."""
_RESTORE = "restore that text, or delete the folder to start over"
_LISTS = {"document_ends.bin": 8, "document_bytes.bin": 8}
"""Bytes of each document's number in the files that are written beside the tokens."""


@dataclass(frozen=True)
class Encoded:
    """Encoded documents.

    Attributes:
        stream: uint16 or uint32[n_tokens], the documents' tokens.
        ends: int64[n_documents], end of each document in the stream.
        sizes: int64[n_documents], UTF-8 bytes of each document.
        normalized: int64[n_documents], as `Shards.normalized_bytes`.
        covered: uint32[n_tokens], as `Shards.covered_bytes`; None where tokens always have the same bytes.
        text: uint8[n_bytes], the documents; None if they come from shards or from a cluster.
    """

    stream: NDArray[Any]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    normalized: NDArray[np.int64]
    covered: NDArray[np.uint32] | None
    text: NDArray[np.uint8] | None = None

    def without(self, documents: int) -> Encoded:
        """Drop the first documents."""
        start = int(self.ends[documents - 1]) if documents else 0
        rest = self.ends[documents:] - start
        covered = None if self.covered is None else self.covered[start:]
        text = None if self.text is None else self.text[int(self.sizes[:documents].sum()) :]
        return Encoded(self.stream[start:], rest, self.sizes[documents:], self.normalized[documents:], covered, text)


class Encoder:
    """Encodes documents for a `Writer`.

    Args:
        tokenizer: Must have the special token `<|endoftext|>`.
    """

    def __init__(self, tokenizer: TokenizerLike) -> None:
        if END_OF_TEXT not in tokenizer.special_tokens:
            names = ", ".join(tokenizer.special_tokens) or "none"
            raise UserError(
                f"the tokenizer has no special token {END_OF_TEXT} to separate documents (it has: {names}); "
                f"train or import it with special_tokens=['{END_OF_TEXT}']"
            )
        self._tokenizer = tokenizer
        self.eos = tokenizer.special_tokens[END_OF_TEXT]
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
            raise UserError(f"the tokenizer encoded ordinary text as {END_OF_TEXT}, which must not happen")
        text = np.asarray(batch.data)[batch.offsets[0] :]
        return Encoded(stream.ids, stream.ends, sizes, normalized, stream.covered, text)


class Writer:
    """Writes encoded documents into one folder, after the shards that are already finished there.

    Args:
        folder: Target; finished shards with other settings are removed.
        tokenizer: Encodes the documents.
        tokens_per_shard: A new file is started once the last one has this many tokens.
        shuffle_seed: Seed of the document order.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: TokenizerLike,
        tokens_per_shard: int,
        shuffle_seed: int | None,
    ) -> None:
        self.folder, self.encoder = folder, Encoder(tokenizer)
        self._token_hashes = token_hashes(tokenizer)
        self._tokens_per_shard = tokens_per_shard
        # Besides the text, these determine the content.
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
        self._sizes_written = np.fromfile(
            storage.disk.local(folder / "document_bytes.bin"), "<u8", self.n_documents
        ).astype(np.int64)
        lists = (*self._document_lists, *self._token_lists)
        self._list_files = {name: HashedFile(folder / name, keep=True) for name in lists}
        self._shard: ShardFile | None = None
        found = _read(folder / _TEXTS) or {"texts": []}
        n = len(self._shards)
        self._texts: list[str | None] = [*found["texts"], *repeat(None, n)][:n]
        self._unchecked = map(TextHash, (shard["documents"] for shard in self._shards), self._texts)
        self._checked = TextHash((0, 0), None)

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
        """The manifest, if the folder is complete and has these settings."""
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
        storage.disk.remove(self.folder / _SETTINGS, missing_ok=True)
        storage.disk.remove(self.folder / _TEXTS, missing_ok=True)
        storage.disk.remove_folder(self.folder / IN_ORDER)

    def _finished(self) -> list[dict[str, Any]]:
        """Remove everything but the finished shards with these settings; return their records."""
        if _read(self.folder / _SETTINGS) != self._settings:
            storage.disk.make_folder(self.folder)
            for path in self.folder.iterdir():
                if path.is_file():
                    storage.disk.remove(path)
                elif path.name != IN_ORDER or self._settings["shuffle_seed"] is None:
                    storage.disk.remove_folder(path)
            write_sealed(self.folder / _SETTINGS, self._settings)
        found: list[dict[str, Any]] = []
        while (record := _read(self.folder / f"tokens-{len(found):05}.json")) is not None:
            path = self.folder / record["name"]
            if not path.exists() or checksum(path) != record["xxh3_128"]:
                break
            found.append(record)
        sizes = self._list_sizes(found)
        if found and any(
            checksum_of_first(self.folder / name, size) != found[-1]["lists"].get(name) for name, size in sizes.items()
        ):
            found, sizes = [], self._list_sizes([])
        kept = {name for record in found for name in (record["name"], _record_name(record["name"]))}
        for path in [*self.folder.glob("tokens-*"), *self.folder.glob(".*.partial")]:
            if path.name not in kept:
                storage.disk.remove(path)
        for name, size in sizes.items():
            with storage.disk.open(self.folder / name, "ab") as file:
                file.truncate(size)
        return found

    def _list_sizes(self, records: list[dict[str, Any]]) -> dict[str, int]:
        """Bytes of the lists that belong to these shards."""
        documents, tokens = (sum(record[key] for record in records) for key in ("n_documents", "n_tokens"))
        sizes = {name: width * documents for name, width in self._document_lists.items()}
        return sizes | {name: width * tokens for name, width in self._token_lists.items()}

    def check_text(self, first: int, batch: Batch, n: int) -> None:
        """Raise an error if the first documents of a batch differ from those of the finished shards.

        Args:
            first: Index of the batch's first document. Batches come in order.
            batch: The documents.
            n: Number of documents to check.
        """
        sizes = np.diff(batch.offsets)[:n]
        wrong = np.flatnonzero(self._sizes_written[first : first + len(sizes)] != sizes)
        if len(wrong):
            at = int(wrong[0])
            raise UserError(
                f"{self.folder} has finished shards of another text: document {first + at} has {sizes[at]} bytes now "
                f"and had {self._sizes_written[first + at]}; {_RESTORE}"
            )
        data = np.asarray(batch.data)
        start = 0
        while start < n:
            if not self._checked.left:
                self._checked = next(self._unchecked)
            stop = min(n, start + self._checked.left)
            self._checked.update(data[batch.offsets[start] : batch.offsets[stop]], stop - start)
            if not self._checked.agrees():
                raise UserError(
                    f"{self.folder} has finished shards of another text: one of the documents "
                    f"{self._checked.documents[0]} to {self._checked.documents[1] - 1} has changed; {_RESTORE}"
                )
            start = stop

    def add(self, encoded: Encoded) -> None:
        """Append documents; a file that is full is followed by a new one, and no document is split."""
        stream, ends, sizes = encoded.stream, encoded.ends, encoded.sizes
        start = document = byte = 0
        while document < len(ends):
            if self._shard is None:
                path = self.folder / f"tokens-{len(self._shards):05}.bin"
                self._shard = ShardFile(path, first_document=self.n_documents)
            capacity = self._tokens_per_shard - self._shard.n_tokens
            stop_document = min(len(ends), int(np.searchsorted(ends, start + capacity)) + 1)
            stop = int(ends[stop_document - 1])
            n_bytes = int(sizes[document:stop_document].sum())
            text = None if encoded.text is None else encoded.text[byte : byte + n_bytes]
            self._shard.add(stream[start:stop], stop_document - document, n_bytes, text)
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
            start, document, byte = stop, stop_document, byte + n_bytes
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
        """Finish the shard: its record is written last."""
        shard, self._shard = self._shard, None
        if shard is None:
            return
        lists = {name: file.sync() for name, file in self._list_files.items()}
        record = {**shard.record(shard.finish()), "lists": lists}
        if self._changes_text:
            record["text_loss"] = asdict(shard.text_loss)
            self._text_loss += shard.text_loss
        if shard.text_hash is not None:
            self._texts.append(shard.text_hash)
            write_sealed(self.folder / _TEXTS, {"texts": self._texts})
        write_sealed(self.folder / _record_name(record["name"]), record)
        self._shards.append(record)

    def finish(self) -> dict[str, Any]:
        """Close the files, write the manifest and return it."""
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self._finish_shard()
        self.__exit__(None, None, None)
        write_whole(self.folder / "token_bytes.bin", self.encoder.lengths.astype("<u4").tobytes())
        write_whole(self.folder / "token_hashes.bin", self._token_hashes.astype("<u8").tobytes())
        records = [_record_name(shard["name"]) for shard in self._shards]
        files = [
            *(shard["name"] for shard in self._shards),
            *records,
            *self._list_files,
            "token_bytes.bin",
            "token_hashes.bin",
        ]
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "dtype": self.encoder.dtype,
            "vocab_size": len(self.encoder.lengths),
            "eos_id": self.encoder.eos,
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


def _read(path: Path) -> dict[str, Any] | None:
    """Read a sealed file; None if it is missing or damaged, so that its content is made again."""
    try:
        return read_sealed(path)
    except (FileNotFoundError, ValueError):
        return None


def _record_name(name: str) -> str:
    return f"{name.removesuffix('.bin')}.json"
