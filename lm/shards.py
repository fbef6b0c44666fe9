"""Encoded corpora on disk: raw little-endian tokens, memory-mapped, with the bytes of every document.

A folder of shards holds

- `shards.json`: format version, dtype, vocabulary size, hash of the tokenizer, counts and sizes of all files;
- `tokens-00000.bin`, ...: ids as uint16 (vocabularies up to 65,536) or uint32. Every document is
  `<|endoftext|>` followed by its tokens, and no document is cut by the end of a file;
- `document_ends.bin`: uint64, position in the whole stream just after each document;
- `document_bytes.bin`: uint64, UTF-8 bytes of each original document;
- `token_bytes.bin`: uint32, bytes of each token of the vocabulary, 0 for special tokens.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.bpe import Tokenizer
    from tokenizer.progress import Progress

FORMAT = "superbpe-shards"
FORMAT_VERSION = 1
MANIFEST = "shards.json"
END_OF_TEXT = "<|endoftext|>"
_DTYPES = {"uint16": "<u2", "uint32": "<u4"}


def write_shards(
    folder: Path,
    tokenizer: Tokenizer,
    batches: Iterable[Batch],
    *,
    tokens_per_shard: int = 100_000_000,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Encode documents into a folder of shards, which appears only when it is whole.

    Args:
        folder: Where to write; must not exist, or be empty.
        tokenizer: Encodes the documents; must have the special token `<|endoftext|>`.
        batches: Documents, as `tokenizer.corpus.Corpus.batches` yields them.
        tokens_per_shard: A new file starts once the last one holds this many tokens.
        threads: Threads of the encoder; None uses all cores.
        progress: Called after every batch with ("shards", bytes of text done, None).

    Returns:
        The manifest, as in `shards.json`.

    Raises:
        UserError: If the folder is taken, no document came, or tokens do not spell their document.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty; remove it or choose another folder for the shards")
    # One name, not one per process: a killed attempt is swept away by the next.
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with _Writer(partial, tokenizer, tokens_per_shard) as writer:
            for batch in batches:
                ids, offsets = tokenizer.encode_documents(batch, threads=threads)
                writer.add(ids, offsets, np.diff(batch.offsets))
                if progress is not None:
                    progress("shards", writer.n_bytes, None)
            manifest = writer.finish()
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


class _Writer:
    """Appends encoded documents to the files of one folder and keeps the counts."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, tokens_per_shard: int) -> None:
        self.n_tokens = self.n_documents = self.n_bytes = 0
        self._folder = folder
        self._tokens_per_shard = tokens_per_shard
        self._sha256 = tokenizer.sha256
        self._lengths = np.asarray(tokenizer.token_byte_lengths())
        self._dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        if END_OF_TEXT not in tokenizer.special_tokens:
            names = ", ".join(tokenizer.special_tokens) or "none"
            raise UserError(
                f"the tokenizer has no special token {END_OF_TEXT} to part documents (it has: {names}); "
                f"train or import it with special_tokens=['{END_OF_TEXT}']"
            )
        self._eos = tokenizer.special_tokens[END_OF_TEXT]
        self._shards: list[dict[str, Any]] = []
        self._open: BinaryIO | None = None
        self._ends = (folder / "document_ends.bin").open("wb")
        self._bytes = (folder / "document_bytes.bin").open("wb")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._open, self._ends, self._bytes):
            if file is not None:
                file.close()

    def add(self, ids: NDArray[Any], offsets: NDArray[Any], document_bytes: NDArray[Any]) -> None:
        """Append documents: ids[n_tokens], offsets[n_documents + 1] into them, bytes of each document."""
        if len(document_bytes) == 0:
            return
        offsets = offsets.astype(np.int64)
        self._check(ids, offsets, document_bytes)
        stream = np.insert(ids, offsets[:-1], self._eos).astype(_DTYPES[self._dtype])
        ends = offsets[1:] + np.arange(1, len(offsets))
        self._ends.write((ends + self.n_tokens).astype("<u8").tobytes())
        self._bytes.write(document_bytes.astype("<u8").tobytes())
        # A file takes whole documents until it is full.
        start = document = 0
        while document < len(ends):
            if self._open is None or self._shards[-1]["n_tokens"] >= self._tokens_per_shard:
                self._next_file()
            room = self._tokens_per_shard - self._shards[-1]["n_tokens"]
            stop_document = min(len(ends), int(np.searchsorted(ends, start + room)) + 1)
            stop = int(ends[stop_document - 1])
            assert self._open is not None
            self._open.write(stream[start:stop].tobytes())
            self._shards[-1]["n_tokens"] += stop - start
            self._shards[-1]["n_documents"] += stop_document - document
            start, document = stop, stop_document
        self.n_tokens += len(stream)
        self.n_documents += len(ends)
        self.n_bytes += int(document_bytes.sum())

    def _check(self, ids: NDArray[Any], offsets: NDArray[Any], document_bytes: NDArray[Any]) -> None:
        """Every loss per byte rests on this: the tokens of a document have exactly its bytes."""
        spelled = np.concatenate(([0], np.cumsum(self._lengths[ids], dtype=np.int64)))[offsets]
        wrong = np.flatnonzero(np.diff(spelled) != document_bytes)
        if len(wrong):
            first = int(wrong[0])
            raise UserError(
                f"document {self.n_documents + first} has {document_bytes[first]} bytes, but its tokens have "
                f"{spelled[first + 1] - spelled[first]}: this tokenizer does not reproduce text, so a loss "
                "per byte would be wrong; use one that covers every byte"
            )
        if (ids == self._eos).any():
            raise UserError(f"the tokenizer encoded ordinary text as {END_OF_TEXT}; it must never do that")

    def _next_file(self) -> None:
        if self._open is not None:
            self._open.close()
        name = f"tokens-{len(self._shards):05}.bin"
        self._shards.append({"name": name, "n_tokens": 0, "n_documents": 0})
        self._open = (self._folder / name).open("wb")

    def finish(self) -> dict[str, Any]:
        """Close the files, write the manifest and return it."""
        if self.n_bytes == 0:
            raise UserError("no documents to encode: the corpus (or its split) is empty; check its paths and filters")
        self.__exit__(None, None, None)
        (self._folder / "token_bytes.bin").write_bytes(self._lengths.astype("<u4").tobytes())
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "dtype": self._dtype,
            "vocab_size": len(self._lengths),
            "tokenizer_sha256": self._sha256,
            "eos_id": self._eos,
            "n_tokens": self.n_tokens,
            "n_documents": self.n_documents,
            "n_bytes": self.n_bytes,
            "shards": self._shards,
            "file_bytes": {path.name: path.stat().st_size for path in sorted(self._folder.iterdir())},
        }
        with (self._folder / MANIFEST).open("w", encoding="utf-8") as file:
            file.write(json.dumps(manifest, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return manifest


class Shards:
    """A folder of shards, memory-mapped.

    Attributes:
        folder: Where it lies.
        n_tokens: Tokens of the stream, one `<|endoftext|>` per document included.
        n_documents: Documents.
        n_bytes: UTF-8 bytes of the original documents.
        vocab_size: Size of the tokenizer's vocabulary.
        eos_id: Id of `<|endoftext|>`.
        tokenizer_sha256: Name of the tokenizer.
        document_ends: int64[n_documents], position in the stream just after each document.
        document_bytes: int64[n_documents], UTF-8 bytes of each original document.
        token_byte_lengths: int64[vocab_size], bytes of each token, 0 for special tokens.
    """

    def __init__(self, folder: Path) -> None:
        manifest = _read_manifest(folder)
        self.folder = folder
        self.n_tokens: int = manifest["n_tokens"]
        self.n_documents: int = manifest["n_documents"]
        self.n_bytes: int = manifest["n_bytes"]
        self.vocab_size: int = manifest["vocab_size"]
        self.eos_id: int = manifest["eos_id"]
        self.tokenizer_sha256: str = manifest["tokenizer_sha256"]
        self._files = [np.memmap(folder / s["name"], manifest["dtype"], "r") for s in manifest["shards"]]
        self._starts = np.cumsum([0] + [len(file) for file in self._files])
        # Stored as uint64, viewed as int64: numpy turns uint64 minus int into float.
        self.document_ends = _map_int64(folder / "document_ends.bin")
        self.document_bytes = _map_int64(folder / "document_bytes.bin")
        self.token_byte_lengths = np.fromfile(folder / "token_bytes.bin", "<u4").astype(np.int64)
        self._check()

    @classmethod
    def open(cls, folder: Path, tokenizer: Tokenizer | None = None) -> Shards:
        """Map the shards in `folder`.

        Args:
            folder: As written by `write_shards`.
            tokenizer: If given, the one that must have written them.

        Raises:
            UserError: If files are missing, damaged, or from another tokenizer.
        """
        shards = cls(folder)
        if tokenizer is not None and tokenizer.sha256 != shards.tokenizer_sha256:
            raise UserError(
                f"the shards in {folder} were written by tokenizer {shards.tokenizer_sha256[:12]}, not by "
                f"{tokenizer.sha256[:12]}; write them again with this tokenizer, or load the other one"
            )
        return shards

    def document(self, i: int) -> NDArray[np.int64]:
        """Tokens of document `i`, without the leading `<|endoftext|>`."""
        start = int(self.document_ends[i - 1]) if i else 0
        return self.tokens(start + 1, int(self.document_ends[i]))

    def tokens(self, start: int, stop: int) -> NDArray[np.int64]:
        """Copy of the stream from position `start` to `stop`, `<|endoftext|>` included.

        Raises:
            UserError: If an id lies outside the vocabulary (the file was damaged).
        """
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start}:{stop} of a stream of {self.n_tokens}")
        out = np.empty(stop - start, np.int64)
        file = int(np.searchsorted(self._starts, start, side="right")) - 1
        position = start
        while position < stop:
            end = min(stop, int(self._starts[file + 1]))
            offset = int(self._starts[file])
            out[position - start : end - start] = self._files[file][position - offset : end - offset]
            position, file = end, file + 1
        if len(out) and out.max() >= self.vocab_size:
            raise UserError(self._damage(f"id {out.max()} is outside the vocabulary of {self.vocab_size}"))
        return out

    def _check(self) -> None:
        """What can be checked without reading all tokens; `tokens` checks the rest as it reads."""
        ends, sizes = self.document_ends, self.document_bytes
        if self._starts[-1] != self.n_tokens:
            raise UserError(self._damage("its files do not hold as many tokens as its manifest says"))
        if len(ends) != self.n_documents or len(sizes) != self.n_documents or self.n_documents == 0:
            raise UserError(self._damage("its document files do not match the number of documents"))
        if ends[0] < 1 or ends[-1] != self.n_tokens or (np.diff(ends) < 1).any():
            raise UserError(self._damage("its document boundaries are out of order"))
        if (sizes < 0).any() or int(sizes.sum()) != self.n_bytes:
            raise UserError(self._damage(f"its documents do not add up to {self.n_bytes} bytes"))
        if len(self.token_byte_lengths) != self.vocab_size or not 0 <= self.eos_id < self.vocab_size:
            raise UserError(self._damage(f"its vocabulary does not have {self.vocab_size} tokens"))
        for file in self._files:
            if file[0] != self.eos_id or file[: 1 << 20].max() >= self.vocab_size:
                raise UserError(self._damage("its tokens do not start with <|endoftext|> or leave the vocabulary"))

    def _damage(self, what: str) -> str:
        return f"the shards in {self.folder} are damaged: {what}; delete the folder and write it again"


def _map_int64(path: Path) -> NDArray[np.int64]:
    return np.memmap(path, "<i8", "r")


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Read `shards.json`, hold the sizes of the files against it, and turn its dtype into numpy's."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (manifest["format"], manifest["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise UserError(
                f"{folder} holds {manifest['format']} version {manifest['format_version']}; this program "
                f"reads {FORMAT} version {FORMAT_VERSION}: write the shards again"
            )
        for name, size in manifest["file_bytes"].items():
            actual = (folder / name).stat().st_size
            if actual != size:
                raise UserError(
                    f"the shards in {folder} are damaged: {name} has {actual} bytes, not {size}; "
                    "delete the folder and write it again"
                )
        manifest["dtype"] = _DTYPES[manifest["dtype"]]
        width = np.dtype(manifest["dtype"]).itemsize
        for shard in manifest["shards"]:
            if manifest["file_bytes"][shard["name"]] != width * shard["n_tokens"]:
                raise UserError(
                    f"the shards in {folder} are damaged: {shard['name']} does not hold as many tokens as "
                    f"{MANIFEST} says; delete the folder and write it again"
                )
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing: {folder} is not a whole folder of shards") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / MANIFEST} is damaged ({error!r}); delete the folder and write it again") from error
    return manifest
