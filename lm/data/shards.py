"""Encoded corpora on disk: memory-mapped little-endian tokens, with the size in bytes of every document.

A folder of shards holds

- `shards.json`: format version, dtype, vocabulary size, hash of the tokenizer, counts, the range of documents of each
  file of tokens, number and places of damaged records that were skipped, and sizes and checksums of all files;
- `tokens-00000.bin`, ...: ids as uint16 (vocabularies up to 65,536) or uint32. Every document is
  `end_of_text` followed by its tokens, and no document is cut by the end of a file;
- `document_ends.bin`: uint64, position in the whole stream just after each document;
- `document_bytes.bin`: uint64, UTF-8 bytes of each original document;
- `normalized_bytes.bin`, where the tokenizer may change text: int64, for a document that decodes to another text, the
  bytes that its tokens stand for, or -1 where they stand for none; 0 for any other document;
- `covered_bytes.bin`, where the bytes of a token depend on the text (`TokenizerLike.fixed_bytes`): uint32, for each
  token of the stream, how many bytes of its document it stands for;
- `token_bytes.bin`: uint32, bytes of each token of the vocabulary, 0 for special tokens;
- `token_hashes.bin`: uint64, hash of each token (`token_hashes`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from tokenizer.errors import UserError, shortened
from tokenizer.files import Verify, check_files, read_json, read_sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer.interface import TokenizerLike

FORMAT = "superbpe-shards"
FORMAT_VERSION = 4  # 4: the parts of a corpus begin new files
MANIFEST = "shards.json"
NORMALIZED = "normalized_bytes.bin"
COVERED = "covered_bytes.bin"
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
_FILES = ("document_ends.bin", "document_bytes.bin", "token_bytes.bin", "token_hashes.bin")
"""Files of every folder, besides the tokens."""


@dataclass(frozen=True)
class TextLoss:
    """Text that the tokens of an encoded corpus lack; none, unless the tokenizer may change text.

    Attributes:
        changed_documents: Documents that do not decode to their own text.
        unaccounted_documents: Documents with bytes that no token stands for.
        unaccounted_bytes: These bytes.
        unknown_tokens: Tokens for what the vocabulary cannot spell.
        unknown_bytes: Bytes that they stand for.
    """

    changed_documents: int = 0
    unaccounted_documents: int = 0
    unaccounted_bytes: int = 0
    unknown_tokens: int = 0
    unknown_bytes: int = 0

    def __add__(self, other: TextLoss) -> TextLoss:
        mine, theirs = asdict(self), asdict(other)
        return TextLoss(**{name: mine[name] + theirs[name] for name in mine})


# Seeds of the hash: equal bytes of different kinds get different hashes.
_ORDINARY, _SPECIAL, _NO_TOKEN, _REPEATED = range(4)


def token_hashes(tokenizer: TokenizerLike) -> NDArray[np.uint64]:
    """uint64[vocab_size]: XXH3-64 of each token's bytes, of a special token's string, or of an id without a token.

    An external tokenizer may have two tokens with the same bytes; these get different hashes.
    """
    special, seen = set(tokenizer.special_tokens.values()), set()

    def digest(i: int, token: bytes) -> int:
        if i in special:
            return xxhash.xxh3_64_intdigest(token, _SPECIAL)
        if not token:
            return xxhash.xxh3_64_intdigest(b"%d" % i, _NO_TOKEN)
        if token in seen:
            return xxhash.xxh3_64_intdigest(b"%d %s" % (i, token), _REPEATED)
        seen.add(token)
        return xxhash.xxh3_64_intdigest(token, _ORDINARY)

    return np.fromiter(map(digest, range(len(tokenizer.vocab)), tokenizer.vocab), np.uint64, len(tokenizer.vocab))


class Shards:
    """A folder of shards, memory-mapped.

    Attributes:
        n_tokens: Tokens of the stream, including one `end_of_text` per document.
        n_bytes: UTF-8 bytes of the original documents.
        vocab_size: Size of the tokenizer's vocabulary.
        document_ends: int64[n_documents], position in the stream just after each document.
        document_bytes: int64[n_documents], UTF-8 bytes of each original document.
        normalized_bytes: int64[n_documents], for a document that decodes to another text, the bytes that its tokens
            stand for, -1 for none; 0 for any other document.
        covered_bytes: uint32[n_tokens], bytes of the document that each token stands for; None where these are always
            its `token_byte_lengths`.
        text_loss: Text that the tokens lack.
        token_byte_lengths: int64[vocab_size], bytes of each token, 0 for special tokens.
        token_hashes: uint64[vocab_size], hash of each token, the same in every vocabulary.
    """

    def __init__(self, folder: Path, verify: Verify = "once") -> None:
        manifest = _read_manifest(folder, verify)
        self.folder = folder
        self.n_tokens: int = manifest["n_tokens"]
        self.n_documents: int = manifest["n_documents"]
        self.n_bytes: int = manifest["n_bytes"]
        self.vocab_size: int = manifest["vocab_size"]
        self.eos_id: int = manifest["eos_id"]
        self.tokenizer_sha256: str = manifest["tokenizer_sha256"]
        # Plain arrays, since slicing a memmap costs microseconds.
        self._files = [np.asarray(np.memmap(folder / s["name"], manifest["dtype"], "r")) for s in manifest["shards"]]
        self._starts = np.cumsum([0] + [len(file) for file in self._files])
        # Stored as uint64 but viewed as int64: NumPy turns uint64 minus int into float.
        self.document_ends: NDArray[np.int64] = np.memmap(folder / "document_ends.bin", "<i8", "r")
        self.document_bytes: NDArray[np.int64] = np.memmap(folder / "document_bytes.bin", "<i8", "r")
        self.normalized_bytes = np.zeros(self.n_documents, np.int64)
        if NORMALIZED in manifest["files"]:
            self.normalized_bytes = np.fromfile(folder / NORMALIZED, "<i8")
        self.covered_bytes: NDArray[np.uint32] | None = None
        if COVERED in manifest["files"]:
            self.covered_bytes = np.asarray(np.memmap(folder / COVERED, "<u4", "r"))
        self.text_loss = TextLoss(
            **manifest.get("text_loss", {"changed_documents": int(np.count_nonzero(self.normalized_bytes))})
        )
        self.token_byte_lengths = np.fromfile(folder / "token_bytes.bin", "<u4").astype(np.int64)
        self.token_hashes = np.fromfile(folder / "token_hashes.bin", "<u8")
        self._check()

    @classmethod
    def open(cls, folder: Path | str, tokenizer: TokenizerLike | None = None, *, verify: Verify = "once") -> Shards:
        """Map the shards in `folder`.

        Args:
            folder: A folder that `lm.data.sharding.write_shards` wrote.
            tokenizer: If given, the tokenizer that must have written the shards.
            verify: When to compare all files with their checksums (a second for a few gigabytes).

        Raises:
            UserError: If files are missing, damaged, or from another tokenizer.
        """
        shards = cls(Path(folder), verify)
        if tokenizer is not None and tokenizer.sha256 != shards.tokenizer_sha256:
            raise UserError(
                f"the shards in {folder} were written by tokenizer {shards.tokenizer_sha256[:12]}, not by "
                f"{tokenizer.sha256[:12]}; write them again with this tokenizer, or load the other one"
            )
        return shards

    def spelled_bytes(self, i: int) -> int:
        """Bytes that the tokens of document `i` stand for: its own, unless the tokenizer changed or dropped text."""
        if self.covered_bytes is not None:
            return int(self.document_token_bytes(i).sum())
        return int(self.normalized_bytes[i] or self.document_bytes[i])

    def document_token_bytes(self, i: int) -> NDArray[np.int64]:
        """Bytes that each token of document `i` stands for, without the leading `end_of_text`."""
        if self.covered_bytes is None:
            return self.token_byte_lengths[self.document(i)]
        return self.covered_bytes[self.span(i)][1:].astype(np.int64)

    def document(self, i: int) -> NDArray[np.int64]:
        """Tokens of document `i`, without the leading `end_of_text`."""
        span = self.span(i)
        return self.tokens(span.start + 1, span.stop)

    def document_hashes(self) -> NDArray[np.uint64]:
        """uint64[n_documents], XXH3-64 of the tokens of each document: equal for equal texts."""
        digests = (xxhash.xxh3_64_intdigest(self.document(i).tobytes()) for i in range(self.n_documents))
        return np.fromiter(digests, np.uint64, self.n_documents)

    def span(self, i: int) -> slice:
        """Positions of document `i` in the stream, with its leading `end_of_text`."""
        return slice(int(self.document_ends[i - 1]) if i else 0, int(self.document_ends[i]))

    def tokens(self, start: int, stop: int) -> NDArray[np.int64]:
        """Copy of the stream from position `start` to `stop`, including `end_of_text`.

        Raises:
            UserError: If an id is outside the vocabulary (the file is damaged).
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
        """Check everything that does not require reading all tokens; `tokens` checks the rest."""
        ends, sizes = self.document_ends, self.document_bytes
        if self._starts[-1] != self.n_tokens:
            raise UserError(self._damage("the token files do not match the manifest"))
        if {len(ends), len(sizes), len(self.normalized_bytes)} != {self.n_documents} or self.n_documents == 0:
            raise UserError(self._damage("the document files do not match the number of documents"))
        if ends[0] < 1 or ends[-1] != self.n_tokens or (np.diff(ends) < 1).any():
            raise UserError(self._damage("the document boundaries are out of order"))
        if self.covered_bytes is not None and len(self.covered_bytes) != self.n_tokens:
            raise UserError(self._damage(f"{COVERED} does not have {self.n_tokens} numbers"))
        if (sizes < 0).any() or int(sizes.sum()) != self.n_bytes:
            raise UserError(self._damage(f"the documents do not add up to {self.n_bytes} bytes"))
        if {len(self.token_byte_lengths), len(self.token_hashes)} != {
            self.vocab_size
        } or not 0 <= self.eos_id < self.vocab_size:
            raise UserError(self._damage(f"the vocabulary does not have {self.vocab_size} tokens"))
        for file in self._files:
            if file[0] != self.eos_id or file[: 1 << 20].max() >= self.vocab_size:
                raise UserError(
                    self._damage("a file does not start with the end of text or holds ids outside the vocabulary")
                )

    def _damage(self, what: str) -> str:
        return f"the shards in {self.folder} are damaged: {what}; delete the folder and write it again"


def _read_manifest(folder: Path, verify: Verify) -> dict[str, Any]:
    """Read `shards.json`, check the files against it, and convert its dtype to NumPy's."""
    remedy = "delete the folder and write it again"
    try:
        _check_version(read_json(folder / MANIFEST))
        manifest = read_sealed(folder / MANIFEST)
        check_files(folder, manifest["files"], verify)
        for name in _FILES:
            manifest["files"][name]  # no file is read whose name and size are not in the manifest
        manifest["dtype"] = DTYPES[manifest["dtype"]]
        _check_lengths(manifest)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing: {folder} is not a complete folder of shards") from error
    except UserError as error:
        raise UserError(f"the shards in {folder} cannot be used: {error}; {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / MANIFEST} is damaged ({shortened(repr(error))}); {remedy}") from error
    return manifest


def _check_lengths(manifest: dict[str, Any]) -> None:
    width = np.dtype(manifest["dtype"]).itemsize
    for shard in manifest["shards"]:
        if manifest["files"][shard["name"]]["bytes"] != width * shard["n_tokens"]:
            raise UserError(f"{shard['name']} does not match its number of tokens in {MANIFEST}")


def _check_version(manifest: dict[str, Any]) -> None:
    version = manifest["format"], manifest["format_version"]
    if version != (FORMAT, FORMAT_VERSION):
        raise UserError(
            f"their format is {shortened(version[0])} version {shortened(version[1])}, but this program reads {FORMAT} "
            f"version {FORMAT_VERSION}"
        )
