"""Tokenizers run by other software, with the interface that shards, language models and reports need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import _native, documents
from tokenizer.documents import Texts
from tokenizer.errors import UserError
from tokenizer.external.software import SOFTWARE, Encoded, Software
from tokenizer.files import parse_json, read_bytes
from tokenizer.formats.checks import reading, write_files
from tokenizer.formats.files import EXTERNAL_FILE
from tokenizer.interface import Ids, Offsets, Stream, TokenizerLike
from tokenizer.special import END_OF_TEXT

FILE = EXTERNAL_FILE
FORMAT, FORMAT_VERSION = "superbpe-external-tokenizer", 2
_CHUNK = 1 << 18
"""Characters to encode at a time: an id and its offsets take about 200 bytes as Python objects."""


class ExternalTokenizer(TokenizerLike):
    """A tokenizer run by the software it was made with; see `TokenizerLike`.

    Args:
        software: encodes and decodes.
        special_tokens: strings that must be special tokens. A string that is not one, or that the tokenizer also
            finds in ordinary text, gets a new id after all others.
        end_of_text: special token that ends documents; by default the software's, or `<|endoftext|>` if there is one.
        reason: why our core does not run the tokenizer.
        provenance: JSON about the tokenizer's origin; not part of its identity.
    """

    fixed_bytes = False

    def __init__(
        self,
        software: Software,
        *,
        special_tokens: Sequence[str] = (),
        end_of_text: str | None = None,
        reason: str = "",
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.software = software
        self.reason = reason
        self.provenance = dict(provenance or {})
        self.vocab = list(software.vocab)
        self.special_tokens = dict(software.special_tokens)
        self.byte_ids = software.byte_ids
        self.unknown_id = software.unknown_id
        self.added = []
        for string in special_tokens:
            found = self.special_tokens.get(string)
            if found is None or found in software.encode([string])[0][0]:
                self.special_tokens[string] = len(self.vocab)
                self.vocab.append(string.encode())
                self.added.append(string)
        ours = END_OF_TEXT if END_OF_TEXT in self.special_tokens else None
        self.end_of_text = end_of_text or software.end_of_text or ours

    @cached_property
    def sha256(self) -> str:
        """Hash of the model, the added special tokens, the end of a document, and the software's version."""
        made_by = json.dumps([self.software.version, self.added, self.end_of_text]).encode()
        return hashlib.sha256(made_by + b"\n" + self.software.content).hexdigest()

    @cached_property
    def _names(self) -> list[str | None]:
        return [*self.software.names, *self.added]

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all tokens except special tokens and unused ids."""
        return np.flatnonzero(self.token_byte_lengths()).astype(np.int64)

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""
        documents.check_text(text)
        ids: list[int] = self.software.encode([text])[0][0].tolist()
        return ids

    def encode_batch(self, texts: Texts, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """Ids of many texts. Special strings are encoded as ordinary text.

        Args:
            texts: see `Tokenizer.encode_batch`.
            threads: ignored; the software chooses.

        Returns:
            ids: uint32, concatenated ids of all texts.
            offsets: int64 [len(texts) + 1]; text i has `ids[offsets[i]:offsets[i + 1]]`.
        """
        rows = [ids for _, (ids, _) in self._encode(_strings(texts))]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return np.concatenate([np.empty(0, np.int64), *rows]).astype(np.uint32), ends

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """`TokenizerLike.encode_stream`, with the number of bytes that each token covers, which depend on the text."""
        rows = list(self._encode(_strings(batch)))
        ids = [np.append(mark, row) for _, (row, _) in rows]
        covered = [np.append(0, covered_bytes(spans)) for _, (_, spans) in rows]
        spelled = np.array([cover.sum() for cover in covered], np.int64)
        stream = np.concatenate(ids)
        return Stream(
            ids=stream.astype(np.uint16) if narrow else stream.astype(np.uint32),
            ends=np.cumsum(list(map(len, ids)), dtype=np.int64),
            spelled=spelled,
            marked=next((i for i, (_, (row, _)) in enumerate(rows) if mark in row), None),
            # Text may be dropped, and is never counted twice.
            expected=np.minimum(spelled, [len(text.encode()) for text, _ in rows]),
            changed=np.array([self.decode(row) != text for text, (row, _) in rows], np.bool_),
            covered=np.concatenate(covered).astype(np.uint32),
        )

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids decode to; added special tokens decode to their strings."""
        row = documents.ids(ids, self.vocab_size).tolist()
        if row and max(row) >= self.vocab_size:  # uint32 arrays are not checked
            raise UserError(f"the id {max(row)} is not in the vocabulary: ids are below {self.vocab_size}")
        own = len(self.software.vocab)
        runs = [(added, list(run)) for added, run in groupby(row, lambda token: token >= own)]
        texts = iter(self.software.decode([run for added, run in runs if not added]))
        return "".join(b"".join(self.vocab[i] for i in run).decode() if added else next(texts) for added, run in runs)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._opened, (self._about(), self.software.content)

    def _about(self) -> bytes:
        about = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "software": self.software.kind,
            "software_version": self.software.version,
            "special_tokens": self.added,
            "end_of_text": self.end_of_text,
            "sha256": self.sha256,
            "reason": self.reason,
            "provenance": self.provenance,
        }
        return (json.dumps(about, indent=2) + "\n").encode()

    def save(self, folder: Path | str) -> None:
        """Write a folder that `tokenizer.external.load.load_saved` reads."""
        write_files(Path(folder), {self.software.file: self.software.content, FILE: self._about()})

    @classmethod
    def load(cls, folder: Path | str) -> ExternalTokenizer:
        """Read a folder written by `save`.

        Raises:
            UserError: the folder is missing or damaged, its files were changed, or another version of the software is
                installed.
        """
        path = Path(folder) / FILE
        with reading(path):
            return cls._opened(read_bytes(path), None, path)

    @classmethod
    def _opened(cls, text: bytes, content: bytes | None, path: Path = Path(FILE)) -> ExternalTokenizer:
        """The tokenizer that `_about` describes. `content` is the model file's; None to read it beside `path`."""
        about = parse_json(text, path)
        if (about.get("format"), about.get("format_version")) != (FORMAT, FORMAT_VERSION):
            raise UserError(f"{path} is not an external tokenizer of format version {FORMAT_VERSION}; import it again")
        kind = about["software"]
        if kind not in SOFTWARE:
            raise UserError(f"{path} was written for the unknown software {kind!r}; import it again")
        file = path.with_name(SOFTWARE[kind].file)
        model = read_bytes(file) if content is None else content
        software = SOFTWARE[kind](model, str(file), tried=content is not None)
        if about["software_version"] != software.version:
            raise UserError(
                f"{path} was written with {about['software_version']}, but {software.version} is installed, which may "
                "give other ids; install that version, or import the tokenizer again"
            )
        found = cls(
            software,
            special_tokens=about["special_tokens"],
            end_of_text=about.get("end_of_text"),
            reason=str(about.get("reason", "")),
            provenance=about["provenance"],
        )
        if found.sha256 != about["sha256"]:
            raise UserError(f"{file} was changed after it was written; import the tokenizer again")
        return found

    def _encode(self, texts: Sequence[str]) -> Iterator[tuple[str, Encoded]]:
        start = 0
        while start < len(texts):
            stop, size = start, 0
            while stop < len(texts) and (stop == start or size + len(texts[stop]) <= _CHUNK):
                size += len(texts[stop])
                stop += 1
            yield from zip(texts[start:stop], self.software.encode(texts[start:stop]), strict=True)
            start = stop

    def __repr__(self) -> str:
        return f"<ExternalTokenizer {self.name}: {self.vocab_size} tokens, run by {self.software.version}>"


def covered_bytes(spans: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64 [tokens]: number of bytes of a text that each token covers.

    Bytes inside a token's span count once, all others never. If several tokens share a character, the first covers it.
    """
    starts, ends = spans.T
    before = np.append(0, np.maximum.accumulate(ends))[:-1]
    covered: npt.NDArray[np.int64] = np.maximum(ends - np.maximum(starts, before), 0)
    return covered


def _strings(texts: Texts) -> list[str]:
    given = documents.given(texts)
    if isinstance(given, list):
        for i, text in enumerate(given):
            documents.check_text(text, f"text {i}")
        return given
    return [given.text(i) for i in range(len(given))]
