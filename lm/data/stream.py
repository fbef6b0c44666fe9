"""The endless stream of documents that training reads, in an order that is the same for every tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lm.data.shards import Shards

_CHUNK = 1 << 20
"""Tokens to read at a time."""


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
        self._shards = shards
        self._seed = seed
        self._shuffle = shuffle
        self._lengths = np.diff(shards.document_ends, prepend=0)
        self._load(0)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Tokens of the stream from position `start` to `stop`; positions continue across epochs."""
        return self._gather(self._shards.tokens, start, stop)

    def covered_bytes(self, start: int, stop: int) -> int | None:
        """Bytes of text that the tokens from position `start` to `stop` cover, without a share of the others.

        None for shards without `covered_bytes`.
        """
        covered = self._shards.covered_bytes
        if covered is None:
            return None
        return int(self._gather(lambda first, last: covered[first:last].astype(np.int64), start, stop).sum())

    def with_unaccounted(self, covered: int) -> int:
        """Add to a number of covered bytes its share of those that no token stands for: an epoch has all bytes."""
        n_bytes = self._shards.n_bytes
        return round(covered * n_bytes / max(1, n_bytes - self._shards.text_loss.unaccounted_bytes))

    def run_bytes(self, steps: int, tokens_per_step: int) -> int:
        """Bytes of text of the tokens that a run predicts: those from position 1 to its last, as training counts them.

        Takes time in proportion to the number of documents, or to the length of the run with `covered_bytes`.
        """
        n_tokens, shards = steps * tokens_per_step, self._shards
        if shards.covered_bytes is not None:
            starts = range(1, n_tokens + 1, tokens_per_step)
            return sum(self.with_unaccounted(self.covered_bytes(i, i + tokens_per_step) or 0) for i in starts)
        spelled = np.where(shards.normalized_bytes, shards.normalized_bytes, shards.document_bytes).clip(0)
        epochs, stop = divmod(n_tokens + 1, shards.n_tokens)  # position 0 is <|endoftext|>, which has no bytes
        self._load(epochs)
        whole = int(np.searchsorted(self._ends, stop, side="right"))
        total = epochs * int(spelled.sum()) + int(spelled[self._order[:whole]].sum())
        first, last = epochs * shards.n_tokens, n_tokens + 1
        first += int(self._ends[whole - 1]) if whole else 0
        for start in range(first, last, _CHUNK):  # the beginning of one more document
            total += int(shards.token_byte_lengths[self.read(start, min(start + _CHUNK, last))].sum())
        return total

    def _gather(self, source: Callable[[int, int], NDArray[np.int64]], start: int, stop: int) -> NDArray[np.int64]:
        """What `source` has of the stream from position `start` to `stop`."""
        parts: list[NDArray[np.int64]] = []
        while start < stop:
            epoch, position = divmod(start, self._shards.n_tokens)
            if epoch != self._epoch:
                self._load(epoch)
            i = int(np.searchsorted(self._ends, position, side="right"))
            # Position inside the document -> position in the shards.
            shift = int(self._shards.document_ends[self._order[i]]) - int(self._ends[i])
            length = min(int(self._ends[i]) - position, stop - start)
            parts.append(source(position + shift, position + shift + length))
            start += length
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def bytes_per_token(self, n_bytes: int) -> float:
        """Text bytes per token, EOS included, of the documents with the first `n_bytes` of the stream."""
        epochs, rest = divmod(n_bytes, self._shards.n_bytes)
        self._load(epochs)
        text = np.cumsum(self._shards.document_bytes[self._order])
        last = int(np.searchsorted(text, rest)) if rest else -1
        last_bytes, last_tokens = (int(text[last]), int(self._ends[last])) if rest else (0, 0)
        total_bytes = epochs * self._shards.n_bytes + last_bytes
        return total_bytes / (epochs * self._shards.n_tokens + last_tokens)

    def unread(self, n_tokens: int, n_bytes: int) -> NDArray[np.int64]:
        """The last documents of the first epoch, with at least `n_bytes` of text, which a run does not read.

        They depend on the seed and the documents, not on the tokenizer.

        Args:
            n_tokens: Tokens that the run predicts.
            n_bytes: Text of the documents.

        Raises:
            UserError: If the run reads one of them.
        """
        self._load(0)
        text = np.cumsum(self._shards.document_bytes[self._order][::-1])
        first = len(text) - int(np.searchsorted(text, n_bytes)) - 1
        if first < 0 or n_tokens + 1 > (int(self._ends[first - 1]) if first else 0):
            raise UserError(
                f"a run over {n_tokens:,} tokens does not leave {n_bytes:,} bytes of the {self._shards.n_tokens:,} "
                f"tokens and {self._shards.n_bytes:,} bytes of training text unread; use a shorter run or fewer bytes"
            )
        return np.asarray(self._order[first:], np.int64)

    def context_tokens(self, context_bytes: int, train_bytes: int) -> int:
        """Tokens that correspond to `context_bytes` of text in a run over `train_bytes`."""
        return max(1, round(context_bytes / self.bytes_per_token(train_bytes)))

    def _load(self, epoch: int) -> None:
        self._epoch = epoch
        self._order: NDArray[Any] = np.arange(self._shards.n_documents)
        if self._shuffle:
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self._shards.n_documents)
        self._ends = np.cumsum(self._lengths[self._order])
