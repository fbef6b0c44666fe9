"""What shards, language models and reports need of a tokenizer, whether our core or other software runs it."""

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
        """Bytes of each token, by id. A special token's are its string, an unused id's are b"".

        Of an external tokenizer several tokens may have the same bytes.
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
        """One more than the highest id."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of everything that decides which ids a text gets."""
        ...

    @property
    def name(self) -> str:
        """A short name for folders and tables."""
        ...

    @property
    def changes_text(self) -> bool:
        """Whether a text may decode to another one, since the tokenizer normalises it or has unknown tokens."""
        ...

    @property
    def unknown_id(self) -> int | None:
        """Id of the token for what the vocabulary cannot spell; None if there is none."""
        ...

    @property
    def fixed_bytes(self) -> bool:
        """Whether a token stands for `token_byte_lengths()` bytes of (normalised) text wherever it occurs.

        If not, `encode_stream` reports the bytes of the text that each token covers.
        """
        ...

    def token_byte_lengths(self) -> npt.NDArray[np.int32]:
        """int32 [vocab_size]: bytes of each token, 0 for special tokens."""
        ...

    def ordinary_ids(self) -> npt.NDArray[np.int64]:
        """Ids of the tokens that are text."""
        ...

    def superword_ids(self) -> npt.NDArray[np.int64]:
        """Ids of the tokens that span at least two words."""
        ...

    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text in which special strings are ordinary text."""
        ...

    def encode_batch(self, texts: Texts, *, threads: int | None = None) -> tuple[Ids, Offsets]:
        """Ids of many texts, and where each text starts and ends in them."""
        ...

    def encode_stream(
        self, batch: _native.Batch, mark: int, token_bytes: npt.NDArray[np.uint32], *, narrow: bool
    ) -> Stream:
        """Documents as shards hold them; see `tokenizer.codec.Codec.encode_stream`."""
        ...

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer], *, errors: str = "replace") -> str:
        """The text that ids spell."""
        ...

    def decode_bytes(self, ids: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
        """The bytes that ids spell."""
        ...

    def save(self, folder: Path | str) -> None:
        """Write the folder that `tokenizer.pretrained.load_saved` reads."""
        ...


def byte_level_bpe(tokenizer: TokenizerLike, purpose: str) -> Tokenizer:
    """The tokenizer, if it is byte-level BPE and run by our core.

    Args:
        tokenizer: Any tokenizer.
        purpose: What needs it, for the message: a clause that ends in a verb, as "byte probabilities need".

    Raises:
        UserError: Other software runs the tokenizer.
    """
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    raise UserError(f"{purpose} a byte-level BPE tokenizer, and {tokenizer!r} is not one that our core can run")


def multiword_ids(vocab: Sequence[bytes]) -> list[int]:
    """Ids of tokens that span at least two words: non-empty parts between white space.

    >>> multiword_ids([b" the", b" of the", b". "])
    [1]
    """
    return [i for i, token in enumerate(vocab) if len(token.decode("utf-8", "replace").split()) > 1]
