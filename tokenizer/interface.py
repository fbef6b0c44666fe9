"""The tokenizer interface that shards, language models and reports need, for our core and for other software."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tokenizer import _native, patterns
from tokenizer.documents import Texts
from tokenizer.errors import UserError, listed, quoted
from tokenizer.special import END_OF_TEXT

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class Stream(NamedTuple):
    """Concatenated documents, each preceded by the separator id.

    Attributes:
        ids: uint16 or uint32 [n].
        ends: int64 [documents]: end of each document in `ids`.
        spelled: int64 [documents]: number of bytes that the tokens of each document spell.
        marked: first document that contains the separator id itself; None if there is none.
        expected: int64 [documents]: number of bytes that the tokens should spell. None if it is the size of each
            document; it differs where the tokenizer normalizes text or does not account for all of it.
        changed: bool [documents]: whether each document decodes to a different text; None if none can.
        covered: uint32 [n]: bytes of the document that each token stands for, 0 for the separator; None if a token
            always stands for the same bytes.
    """

    ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    spelled: npt.NDArray[np.int64]
    marked: int | None
    expected: npt.NDArray[np.int64] | None = None
    changed: npt.NDArray[np.bool_] | None = None
    covered: npt.NDArray[np.uint32] | None = None


def n_words(token: bytes) -> int:
    r"""Number of whitespace-separated words in a token.

    >>> [n_words(token) for token in (b" of the", b" ", b".\n", b".\nThe")]
    [2, 0, 1, 2]
    """
    return len(token.decode(errors="replace").split())


def is_text(token: bytes) -> bool:
    """Whether a token is valid UTF-8, without parts of characters."""
    return token.isascii() or token.decode(errors="ignore").encode() == token


class TokenizerLike(ABC):
    """A tokenizer that models can be trained with: `Tokenizer`, or `tokenizer.external.tokenizer.ExternalTokenizer`.

    Tokenizers are equal if they give the same ids: if their `sha256` is the same. Methods with an implementation here
    have the names and results of HF `tokenizers`.

    Attributes:
        vocab: bytes of each token, by id: the string of a special token, b"" for an unused id. In an external
            tokenizer, several tokens may have the same bytes.
        special_tokens: string to id.
        end_of_text: the special token that ends a document; None if the tokenizer does not name one.
        byte_ids: ids of the 256 bytes, -1 where there is no token for a byte.
        unknown_id: id of the token for text that the vocabulary cannot spell; None if there is none.
        fixed_bytes: whether a token always stands for `token_byte_lengths()` bytes of (normalized) text. If not,
            `encode_stream` reports the bytes of the text that each token covers.
    """

    vocab: list[bytes]
    special_tokens: dict[str, int]
    end_of_text: str | None
    byte_ids: Sequence[int]
    unknown_id: int | None
    fixed_bytes: bool

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to a different one: the tokenizer normalizes text or has unknown tokens."""
        return True

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Hash of everything that determines the ids of a text; identifies the tokenizer."""

    @property
    @abstractmethod
    def _names(self) -> list[str | None]:
        """Name of each token, by id, as in the vocabulary of `tokenizers`; None for an unused id."""

    @abstractmethod
    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all tokens except special tokens and unused ids."""

    def text_ids(self) -> npt.NDArray[np.int64]:
        """Ids of the tokens of text: of ordinary tokens, and of added tokens that are found in any text.

        Text becomes no other id, because only callers write special tokens. Exceptions are `unknown_id`, and special
        strings that other software finds in text. Some of these ids may never occur (`Tokenizer.unreachable_ids`).
        """
        return self.ordinary_ids()

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids of tokens of two or more words."""
        ids = np.array([i for i in self.ordinary_ids().tolist() if n_words(self.vocab[i]) > 1], np.int64)
        cut = patterns.is_cut([self.vocab[i] for i in ids.tolist()], patterns.resolve(patterns.YARDSTICK))
        return ids[cut]

    @abstractmethod
    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""

    @abstractmethod
    def encode_batch(self, texts: Texts, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """Concatenated ids of many texts, and their offsets."""

    @abstractmethod
    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """Encode documents in the layout of token files, in one pass on the calling thread.

        Args:
            batch: the documents.
            mark: separator id, written before each document.
            token_bytes: uint32 [vocab_size], length of each token in bytes; used if `fixed_bytes`.
            narrow: return uint16 ids, which must fit the vocabulary, rather than uint32.
        """

    @abstractmethod
    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids spell."""

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell."""
        return self.decode(ids).encode()

    @abstractmethod
    def save(self, folder: Path | str) -> None:
        """Write a folder that `tokenizer.external.load.load_saved` reads."""

    @property
    def vocab_size(self) -> int:
        """Highest id plus 1. Includes unused ids between tokens, but no padding."""
        return len(self.vocab)

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        return self.sha256[:12]

    @property
    def end_id(self) -> int:
        """Id of `end_of_text`.

        Raises:
            UserError: the tokenizer does not name one.
        """
        if self.end_of_text is None:
            raise UserError(
                f"{self!r} does not say which token ends a document (its special tokens: "
                f"{listed(map(quoted, self.special_tokens)) or 'none'}); name one or a new one with "
                f"end_of_text=STRING, or train with special_tokens=['{END_OF_TEXT}']"
            )
        return self.special_tokens[self.end_of_text]

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: length of each token in bytes; 0 for special tokens, which are not text."""
        lengths = np.fromiter(map(len, self.vocab), dtype=np.int32, count=self.vocab_size)
        lengths[list(self.special_tokens.values())] = 0
        return lengths

    @overload
    def __call__(self, text: str) -> dict[str, list[int]]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, text: Texts) -> dict[str, list[list[int]]]: ...
    def __call__(self, text: str | Texts) -> dict[str, Any]:
        """`{"input_ids": ids}`, as calls of `transformers` tokenizers return, which suits `datasets.map`.

        Special strings are ordinary text, and no special tokens are added. For padding, truncation and tensors use
        `tokenizer.hf`.

        Args:
            text: one text, for a list of ids, or several, as in `encode_batch`, for a list of such lists.
        """
        if isinstance(text, str):
            return {"input_ids": self.encode_ordinary(text)}
        ids, offsets = self.encode_batch(text)
        return {"input_ids": [row.tolist() for row in np.split(ids, offsets[1:-1])] if len(offsets) > 1 else []}

    def __len__(self) -> int:
        return self.vocab_size

    def tokenize(self, text: str) -> list[str]:
        """Names of the tokens of a text. Special strings are ordinary text.

        Byte-level tokens are named as in `tokenizers`: a space is `Ġ`, a line feed `Ċ`.
        """
        return [str(self._names[i]) for i in self.encode_ordinary(text)]

    def token_to_id(self, token: str) -> int | None:
        """Id of the token with this name; None if there is none."""
        return self._ids.get(token)

    def id_to_token(self, id: int) -> str | None:  # noqa: A002 (the name in `tokenizers`)
        """Name of a token; None if no token has this id."""
        return self._names[id] if 0 <= id < len(self._names) else None

    def get_vocab(self) -> dict[str, int]:
        """Name to id of every token, special and other added tokens included."""
        return dict(self._ids)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._names) if name is not None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self is other or self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)
