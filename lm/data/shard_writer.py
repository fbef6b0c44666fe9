"""Crash-safe writing of shards.

`progress.json` lists the finished shards. It is replaced after each of them, once the tokens and the lists of documents
are on disk, so a killed process loses only the unfinished shard. Finished shards are verified by checksum before
writing resumes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm.data.shard_files import HashedFile, hash_of_first
from lm.data.shards import COVERED, END_OF_TEXT, FORMAT, FORMAT_VERSION, MANIFEST, NORMALIZED, TextLoss, token_hashes
from tokenizer.durable import write_whole
from tokenizer.errors import UserError
from tokenizer.files import check_files, checksum, read_sealed, recorded, write_sealed

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike

PROGRESS = "progress.json"
"""Settings, records of the finished shards, and checksums of the lists and of the text up to there."""
_RESTORE = "restore that text, or delete the folder to start over"


@dataclass(frozen=True)
class Encoded:
    """Encoded documents.

    Attributes:
        stream: uint16 or uint32[n_tokens], the documents' tokens.
        ends: int64[n_documents], end of each document in the stream.
        sizes: int64[n_documents], UTF-8 bytes of each document.
        normalized: int64[n_documents], as `Shards.normalized_bytes`.
        covered: uint32[n_tokens], as `Shards.covered_bytes`; None where tokens always have the same bytes.
        text: uint8[n_bytes], the documents; None if they were encoded elsewhere.
    """

    stream: NDArray[Any]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    normalized: NDArray[np.int64]
    covered: NDArray[np.uint32] | None
    text: NDArray[np.uint8] | None = None

    def without(self, documents: int) -> Encoded:
        """Drop the first documents."""
        return self[documents : len(self.ends)]

    def __getitem__(self, documents: slice) -> Encoded:
        first, last, _ = documents.indices(len(self.ends))
        start, stop = (int(self.ends[i - 1]) if i else 0 for i in (first, last))
        begin, end = (int(self.sizes[:i].sum()) for i in (first, last))
        return Encoded(
            self.stream[start:stop],
            self.ends[first:last] - start,
            self.sizes[first:last],
            self.normalized[first:last],
            None if self.covered is None else self.covered[start:stop],
            None if self.text is None else self.text[begin:end],
        )


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


def complete(folder: Path, tokenizer: TokenizerLike, tokens_per_shard: int) -> dict[str, Any] | None:
    """The manifest of a folder that a `Writer` with these arguments finished; None for any other folder."""
    manifest = _read(folder / MANIFEST)
    settings = _settings(tokenizer, tokens_per_shard)
    if manifest is None or {key: manifest.get(key) for key in settings} != settings:
        return None
    try:
        check_files(folder, manifest["files"])
    except (UserError, FileNotFoundError):
        return None
    (folder / PROGRESS).unlink(missing_ok=True)
    return manifest


class Writer:
    """Writes encoded documents into one folder, after the shards that are already finished there.

    Args:
        folder: Target; finished shards with other settings are removed.
        tokenizer: Encodes the documents.
        tokens_per_shard: A new file is started once the last one has this many tokens.
    """

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_shard: int) -> None:
        self.folder, self.encoder = folder, Encoder(tokenizer)
        self._tokenizer, self._tokens_per_shard = tokenizer, tokens_per_shard
        self._settings = _settings(tokenizer, tokens_per_shard)
        # Bytes of each document's, and of each token's number in the files that are written beside the tokens.
        self._document_lists = {"document_ends.bin": 8, "document_bytes.bin": 8}
        self._document_lists |= {NORMALIZED: 8} if tokenizer.changes_text else {}
        self._token_lists = {} if tokenizer.fixed_bytes else {COVERED: 4}
        progress = self._resume()
        self._shards: list[dict[str, Any]] = progress["shards"]
        self.n_documents, self.n_bytes, self._n_tokens = (
            sum(int(shard[key]) for shard in self._shards) for key in ("n_documents", "n_bytes", "n_tokens")
        )
        self._begin = self.n_documents, self.n_bytes, self._n_tokens  # totals before the current shard
        sizes = folder / "document_bytes.bin"
        self._sizes_written = np.fromfile(sizes, "<u8").astype(np.int64) if self._shards else np.empty(0, np.int64)
        lists = (*self._document_lists, *self._token_lists)
        self._list_files = {name: HashedFile(folder / name, keep=True) for name in lists}
        self._text_written: str | None = progress["text"]
        self._text: xxhash.xxh3_128 | None = xxhash.xxh3_128()
        self._shard: HashedFile | None = None
        self._shard_loss = TextLoss()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._shard, *self._list_files.values()):
            if file is not None:
                file.close()

    def _resume(self) -> dict[str, Any]:
        """Return the progress with these settings, and remove everything that it does not list."""
        self.folder.mkdir(parents=True, exist_ok=True)
        progress = _read(self.folder / PROGRESS)
        if progress is None or progress["settings"] != self._settings or not self._is_intact(progress):
            progress = {"shards": [], "text": None}
        sizes = self._list_sizes(progress) if progress["shards"] else {}
        kept = {PROGRESS, *sizes, *(_name(i) for i in range(len(progress["shards"])))} if sizes else set()
        for path in self.folder.iterdir():
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for name, size in sizes.items():
            os.truncate(self.folder / name, size)
        return progress

    def _is_intact(self, progress: dict[str, Any]) -> bool:
        """Whether the finished shards and the lists up to there have their checksums."""
        try:
            return all(
                checksum(self.folder / _name(i)) == shard["xxh3_128"] for i, shard in enumerate(progress["shards"])
            ) and all(
                hash_of_first(self.folder / name, size).hexdigest() == progress["lists"][name]
                for name, size in self._list_sizes(progress).items()
            )
        except (FileNotFoundError, KeyError):
            return False

    def _list_sizes(self, progress: dict[str, Any]) -> dict[str, int]:
        """Bytes of the lists that belong to the finished shards."""
        documents, tokens = (sum(shard[key] for shard in progress["shards"]) for key in ("n_documents", "n_tokens"))
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
        wrong = np.flatnonzero(self._sizes_written[first : first + n] != sizes)
        if len(wrong):
            at = int(wrong[0])
            raise UserError(
                f"{self.folder} has finished shards of another text: document {first + at} has {sizes[at]} bytes now "
                f"and had {self._sizes_written[first + at]}; {_RESTORE}"
            )
        self._hash_text(np.asarray(batch.data)[batch.offsets[0] : batch.offsets[n]])
        digest = None if self._text is None else self._text.hexdigest()
        if first + n == self.n_documents and None not in (digest, self._text_written) and digest != self._text_written:
            raise UserError(
                f"{self.folder} has finished shards of another text: one of the documents 0 to {self.n_documents - 1} "
                f"has changed; {_RESTORE}"
            )

    def _hash_text(self, text: NDArray[np.uint8] | None) -> None:
        """Add the text of the next documents to the running hash, which ends where a text is unknown."""
        if text is None:
            self._text = None
        elif self._text is not None:
            self._text.update(np.ascontiguousarray(text).data)

    def add(self, encoded: Encoded) -> None:
        """Append documents; a file that is full is followed by a new one, and no document is split."""
        while len(encoded.ends):
            if self._shard is None:
                self._shard = HashedFile(self.folder / _name(len(self._shards)))
                self._begin = self.n_documents, self.n_bytes, self._n_tokens
            full = self._begin[2] + self._tokens_per_shard
            n = min(len(encoded.ends), int(np.searchsorted(encoded.ends, full - self._n_tokens)) + 1)
            self._append(self._shard, encoded[:n])
            encoded = encoded.without(n)
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
        self._hash_text(encoded.text)
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
        """Flush the current shard and the lists to disk, and record them in the progress."""
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
            "xxh3_128": shard.sync(),
        }
        shard.close()
        if self._tokenizer.changes_text:
            record["text_loss"] = asdict(self._shard_loss)
            self._shard_loss = TextLoss()
        self._shards.append(record)
        progress = {
            "settings": self._settings,
            "shards": self._shards,
            "lists": {name: file.sync() for name, file in self._list_files.items()},
            "text": None if self._text is None else self._text.hexdigest(),
        }
        write_sealed(self.folder / PROGRESS, progress)

    def finish(self, skipped: dict[str, Any] | None = None) -> dict[str, Any]:
        """Close the files, write the manifest and return it.

        Args:
            skipped: Records of the corpus that are missing, if any, for the manifest.
        """
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self._finish_shard()
        self.__exit__(None, None, None)
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
            **self._settings,
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
        (self.folder / PROGRESS).unlink()
        return manifest


def _settings(tokenizer: TokenizerLike, tokens_per_shard: int) -> dict[str, Any]:
    """Besides the text, these determine the content of a folder."""
    return {"tokenizer_sha256": tokenizer.sha256, "tokens_per_shard": tokens_per_shard}


def _read(path: Path) -> dict[str, Any] | None:
    """Read a sealed file; None if it is missing or damaged, so that its content is made again."""
    try:
        return read_sealed(path)
    except (FileNotFoundError, ValueError):
        return None


def _name(number: int) -> str:
    return f"tokens-{number:05}.bin"
