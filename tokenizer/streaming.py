"""Text and ids that come in parts."""

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
"""How much text of a stream may wait by default: encoding it needs about 30 times as much memory at worst."""


def encode(
    encoder: _native.Encoder,
    parts: Iterable[str],
    max_pending_bytes: int,
    preparation: _native.Preparation | None,
    forbidden: Forbidden | None,
) -> Iterator[npt.NDArray[np.uint32]]:
    """Ids of the text that the parts make together; see `Tokenizer.encode_iter`."""
    if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise UserError("encode_iter takes parts of a text, as an open file gives; use encode for a whole one")
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
    """The parts, after a look for strings in them and over their seams."""
    longest = max(map(len, forbidden.strings))
    before = ""
    for number, part in enumerate(parts):
        documents.check_text(part, f"part {number} of the stream")
        seen = before + part
        forbidden.check(seen, "the stream")
        before = seen[max(len(seen) - longest + 1, 0) :]
        yield part


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
