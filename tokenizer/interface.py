"""The tokenizer interface that shards, language models and reports need, for our core and for other software."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.codec import Ids, Offsets, Stream
from tokenizer.documents import Texts
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer


class TokenizerLike(Protocol):
    """A tokenizer that models can be trained with: `Tokenizer`, or `tokenizer.pretrained.ExternalTokenizer`."""

    @property
    def vocab(self) -> list[bytes]:
        """Bytes of each token, by id: the string of a special token, b"" for an unused id.

        In an external tokenizer, several tokens may have the same bytes.
        """
        ...

    @property
    def special_tokens(self) -> dict[str, int]:
        """String to id."""
        ...

    @property
    def byte_ids(self) -> Sequence[int]:
        """Ids of the 256 bytes, -1 where there is no token for a byte."""
        ...

    @property
    def vocab_size(self) -> int:
        """Highest id plus 1."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of everything that determines the ids of a text."""
        ...

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        ...

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to a different one: the tokenizer normalizes text or has unknown tokens."""
        ...

    @property
    def unknown_id(self) -> int | None:
        """Id of the token for text that the vocabulary cannot spell; None if there is none."""
        ...

    @property
    def fixed_bytes(self) -> bool:
        """Whether a token always stands for `token_byte_lengths()` bytes of (normalized) text.

        If not, `encode_stream` reports the bytes of the text that each token covers.
        """
        ...

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: length of each token in bytes; 0 for special tokens."""
        ...

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of all tokens except special tokens and unused ids."""
        ...

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids of tokens of two or more words."""
        ...

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text. Special strings are encoded as ordinary text."""
        ...

    def encode_batch(self, texts: Texts, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """Concatenated ids of many texts, and their offsets."""
        ...

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """Encode documents in the layout of shards; see `tokenizer.codec.Codec.encode_stream`."""
        ...

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids spell."""
        ...

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell."""
        ...

    def save(self, folder: Path | str) -> None:
        """Write a folder that `tokenizer.pretrained.load_saved` reads."""
        ...


def byte_level_bpe(tokenizer: TokenizerLike, purpose: str) -> Tokenizer:
    """Return the tokenizer if it is byte-level BPE run by our core.

    Args:
        tokenizer: any tokenizer.
        purpose: start of the message, ending in a verb, such as "byte probabilities need".

    Raises:
        UserError: other software runs the tokenizer.
    """
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    raise UserError(f"{purpose} a byte-level BPE tokenizer, but {tokenizer!r} is not one that our core can run")
