"""The endless stream of documents that training reads, in an order that is the same for every tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.data.shards import Shards

_GROUP_TOKENS = 1 << 20
"""Tokens whose bytes are looked up at a time."""
_EPOCHS = 3
"""Orders that are kept: a block of rows and the one after it may reach into three epochs."""


class _Epoch(NamedTuple):
    """Order of the documents in one epoch.

    Attributes:
        order: int64[n_documents], indices of the documents.
        ends: int64[n_documents], tokens of the epoch up to the end of each document.
    """

    order: NDArray[np.int64]
    ends: NDArray[np.int64]


class DocumentStream:
    """Documents of `shards`, epoch after epoch.

    The order depends on the seed, the epoch and the number of documents, never on the tokenizer, so every tokenizer's
    model reads the same documents.

    Args:
        shards: The encoded corpus.
        seed: Seed of the shuffle.
        shuffle: Draw a new order for every epoch; False reads the shards in order.
    """

    def __init__(self, shards: Shards, *, seed: int, shuffle: bool = True) -> None:
        self._shards, self._seed, self._shuffle = shards, seed, shuffle
        self._lengths: NDArray[np.int64] = np.diff(shards.document_ends, prepend=0)
        self._epochs: dict[int, _Epoch] = {}  # replaced, never changed: rows are found in the background

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Tokens of the stream from position `start` to `stop`; positions continue across epochs."""
        places = self._places(start, stop)
        return np.concatenate([self._shards.tokens(*place) for place in places]) if places else np.empty(0, np.int64)

    def text_bytes(self, start: int, stop: int) -> int:
        """Bytes of text that the tokens from position `start` to `stop` stand for.

        Bytes that no token stands for are shared out among all tokens, so that an epoch has the bytes of its documents.
        """
        n_bytes = self._shards.n_bytes
        covered = int(self._token_bytes(self._places(start, stop)).sum())
        return round(covered * n_bytes / max(1, n_bytes - self._shards.text_loss.unaccounted_bytes))

    def tokens_at(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the tokens that contain these bytes of the stream; at the start of a document, `end_of_text`.

        Where a tokenizer changes a document, or has no token for some of it, its tokens are taken to cover the
        document's own bytes in proportion to those that they stand for.

        Args:
            offsets: int64[n], bytes of text before a byte, in increasing order. They continue across epochs.
        """
        shards = self._shards
        positions = np.empty(len(offsets), np.int64)
        epochs, within = np.divmod(offsets, shards.n_bytes)
        for epoch in np.unique(epochs).tolist():
            order, ends = self._epoch(epoch)
            sizes = shards.document_bytes[order]
            text = np.cumsum(sizes)
            chosen = np.flatnonzero(epochs == epoch)
            places = np.searchsorted(text, within[chosen], side="right")
            read, inverse = np.unique(places, return_inverse=True)
            # Many documents at a time: one by one takes five times as long where they are short.
            groups = np.cumsum(self._lengths[order[read]]) // _GROUP_TOKENS
            for group in np.unique(groups).tolist():
                documents, mine = read[groups == group], (groups == group)[inverse]
                here = chosen[mine]
                place = np.searchsorted(documents, places[mine])
                size, lengths = sizes[documents], self._lengths[order[documents]]
                lasts = shards.document_ends[order[documents]]
                until = np.cumsum(self._token_bytes(list(zip(lasts - lengths, lasts, strict=True))))
                begins = np.cumsum(lengths) - lengths
                before = np.where(begins > 0, until[begins - 1], 0)
                total = until[begins + lengths - 1] - before
                inside = (within[here] - (text[documents] - size)[place]) * total[place] // size[place]
                token = np.searchsorted(until, before[place] + inside, side="right") - begins[place]
                token[inside == 0] = 0  # `end_of_text`
                positions[here] = epoch * shards.n_tokens + (ends[documents] - lengths)[place] + token
        return positions

    def last_documents(self, n_bytes: int, *, in_tokens: bool = False) -> tuple[NDArray[np.int64], int]:
        """Indices of the last documents of the first epoch, of at least `n_bytes`, and the size of the text before."""
        order, ends = self._epoch(0)
        text = np.cumsum(self._shards.document_bytes[order])
        first = int(np.searchsorted(text, text[-1] - n_bytes, side="right"))
        first = first if n_bytes and first else len(order)
        sizes = ends if in_tokens else text
        return order[first:], int(sizes[first - 1])

    def _token_bytes(self, places: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """Bytes of text that each token of these parts of the shards stands for."""
        covered = self._shards.covered_bytes
        parts = [self._shards.tokens(*place) if covered is None else covered[slice(*place)] for place in places]
        values = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
        return self._shards.token_byte_lengths[values] if covered is None else values

    def _places(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Parts of the shards that make up the stream from position `start` to `stop`."""
        places = []
        while start < stop:
            epoch, position = divmod(start, self._shards.n_tokens)
            order, ends = self._epoch(epoch)
            i = int(np.searchsorted(ends, position, side="right"))
            # Position inside the document -> position in the shards.
            shift = int(self._shards.document_ends[order[i]]) - int(ends[i])
            length = min(int(ends[i]) - position, stop - start)
            places.append((position + shift, position + shift + length))
            start += length
        return places

    def _epoch(self, number: int) -> _Epoch:
        if (found := self._epochs.get(number)) is not None:
            return found
        order = np.arange(self._shards.n_documents)
        if self._shuffle:
            order = np.random.default_rng([self._seed, number]).permutation(self._shards.n_documents)
        epoch = _Epoch(order, np.cumsum(self._lengths[order]))
        self._epochs = dict([*self._epochs.items(), (number, epoch)][-_EPOCHS:])
        return epoch
