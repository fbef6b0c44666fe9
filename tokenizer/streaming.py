"""Streaming: encoding text that arrives in parts, and decoding ids one at a time."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tokenizer import _native, documents
from tokenizer.errors import UserError, check_whole
from tokenizer.special import Forbidden

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PENDING_BYTES = 1 << 24
"""Default limit of buffered text: encoding it takes up to about 30 times as much memory."""


def encode(
    encoder: _native.Encoder,
    parts: Iterable[str],
    max_pending_bytes: int,
    preparation: _native.Preparation | None,
    forbidden: Forbidden | None,
) -> Iterator[npt.NDArray[np.uint32]]:
    """Ids of the concatenated parts; see `Tokenizer.encode_iter`."""
    if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise UserError("encode_iter takes parts of a text, such as an open file; use encode for a whole text")
    check_whole("max_pending_bytes", max_pending_bytes, 1)
    stream = _native.EncodeStream(encoder, min(max_pending_bytes, sys.maxsize), preparation)
    return _encode(stream, parts if forbidden is None else _checked(parts, forbidden))


def _encode(stream: _native.EncodeStream, parts: Iterable[str]) -> Iterator[npt.NDArray[np.uint32]]:
    for number, part in enumerate(parts):
        try:
            ids = stream.push(part)
        except (TypeError, UnicodeEncodeError):
            documents.check_text(part, f"part {number} of the stream")
            raise
        if len(ids):
            yield ids
    if len(ids := stream.push("", last=True)):
        yield ids


def _checked(parts: Iterable[str], forbidden: Forbidden) -> Iterator[str]:
    """The parts, checked for forbidden strings, including strings that span two parts."""
    longest = max(map(len, forbidden.strings))
    before = ""
    for number, part in enumerate(parts):
        documents.check_text(part, f"part {number} of the stream")
        seen = before + part
        forbidden.check(seen, "the stream")
        before = seen[max(len(seen) - longest + 1, 0) :]
        yield part


class StreamDecoder:
    """Decodes ids one at a time; a character is returned once all of its bytes have arrived.

    The results of `push` and `finish`, joined, equal `decode` of all ids.

    >>> from tokenizer import Tokenizer, patterns
    >>> decoder = Tokenizer.from_ranks([], pattern=patterns.resolve("none")).stream_decoder()
    >>> [decoder.push(byte) for byte in "né".encode()], decoder.finish()
    (['n', '', 'é'], '')
    """

    def __init__(self, decode_bytes: Callable[[Iterable[int]], bytes], *, errors: str = "replace") -> None:
        self._decode_bytes = decode_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: int | Iterable[int]) -> str:
        """Add one or several ids and return the text they complete; "" while a character is incomplete.

        Raises:
            UserError: an id is not in the vocabulary; the call then has no effect.
            UnicodeDecodeError: the bytes are malformed and `errors` is "strict".
        """
        return self._decoder.decode(self._decode_bytes(ids if isinstance(ids, Iterable) else [ids]))

    def finish(self) -> str:
        """Return the rest, with an incomplete character handled by `errors`, and reset the decoder."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
