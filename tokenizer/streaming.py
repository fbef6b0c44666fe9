"""Text and ids that come in parts."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tokenizer import _native
from tokenizer.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PENDING_BYTES = 1 << 24
"""How much text of a stream may wait by default: encoding it needs about 30 times as much memory at worst."""


def encode(encoder: _native.Encoder, parts: Iterable[str], max_pending_bytes: int) -> Iterator[npt.NDArray[np.uint32]]:
    """Ids of the text that the parts make together; see `Tokenizer.encode_iter`."""
    if isinstance(parts, str):
        raise UserError("encode_iter takes parts of a text, as an open file gives; use encode for a whole one")
    if max_pending_bytes < 1:
        raise UserError(f"max_pending_bytes={max_pending_bytes} is not possible; use 1 or more")
    return _encode(_native.EncodeStream(encoder, max_pending_bytes), parts)


def _encode(stream: _native.EncodeStream, parts: Iterable[str]) -> Iterator[npt.NDArray[np.uint32]]:
    for part in parts:
        if len(ids := stream.push(part)):
            yield ids
    if len(ids := stream.finish()):
        yield ids


class StreamDecoder:
    """Decodes ids one after the other; a character is given out when all of its bytes are there.

    What `push` and at last `finish` gave, joined, is what `decode` gives for all ids at once.

    >>> from tokenizer import Tokenizer, patterns
    >>> decoder = Tokenizer.from_ranks([], pattern=patterns.resolve("none")).stream_decoder()
    >>> [decoder.push(byte) for byte in "né".encode()], decoder.finish()
    (['n', '', 'é'], '')
    """

    def __init__(self, decode_bytes: Callable[[Iterable[int]], bytes], *, errors: str = "replace") -> None:
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Iterable[int]) -> str:
        """The text that one more id, or several, make certain; "" while a character is incomplete.

        Raises:
            UserError: an id is not in the vocabulary; nothing of the call is taken then.
            UnicodeDecodeError: the bytes are malformed and `errors` is "strict".
        """
        return self._decoder.decode(self._decode_bytes(ids if isinstance(ids, Iterable) else [ids]))

    def finish(self) -> str:
        """The rest: an incomplete character by `errors`. The decoder is as new then."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
