"""Base of all tokenizers, whichever software runs them: identity, names of tokens, calls as in `tokenizers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizer.documents import Texts


def n_words(token: bytes) -> int:
    r"""Number of whitespace-separated words in a token.

    >>> [n_words(token) for token in (b" of the", b" ", b".\n", b".\nThe")]
    [2, 0, 1, 2]
    """
    return len(token.decode(errors="replace").split())


class BaseTokenizer(ABC):
    """What `Tokenizer` and `tokenizer.pretrained.ExternalTokenizer` have in common.

    Tokenizers are equal if they give the same ids: if their `sha256` is the same. The names of methods are those of
    `tokenizers`.
    """

    vocab: list[bytes]
    special_tokens: dict[str, int]

    @cached_property
    @abstractmethod
    def sha256(self) -> str:
        """Hash of everything that determines the ids of a text; identifies the tokenizer."""

    @cached_property
    @abstractmethod
    def _names(self) -> list[str | None]:
        """Name of each token, by id, as in the vocabulary of `tokenizers`; None for an unused id."""

    @property
    @abstractmethod
    def _added_ids(self) -> set[int]:
        """Ids of special and other added tokens."""

    @abstractmethod
    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""

    @abstractmethod
    def encode_batch(
        self, texts: Texts, *, threads: int | None = None
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Concatenated ids of many texts, and their offsets."""

    @property
    def vocab_size(self) -> int:
        """Highest id plus 1. Includes unused ids between tokens, but no padding."""
        return len(self.vocab)

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        return self.sha256[:12]

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: length of each token in bytes; 0 for special tokens, which are not text.

        If `fixed_bytes` is False, a token may cover another number of bytes in a text: see `encode_stream`.
        """
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

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Name to id of every token, optionally without special and other added tokens."""
        added: set[int] = set() if with_added_tokens else self._added_ids
        return {name: i for name, i in self._ids.items() if i not in added}

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Number of tokens that `get_vocab` returns; unlike `vocab_size`, unused ids do not count."""
        return len(self.get_vocab(with_added_tokens))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._names) if name is not None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BaseTokenizer):
            return NotImplemented
        return self is other or self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)
