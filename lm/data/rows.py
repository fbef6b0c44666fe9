"""Rows of training batches: pieces of equal bytes from all over the text, in an order that no tokenizer decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lm.data.stream import DocumentStream
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.data.shards import Shards

_STEPS_PER_BLOCK, _DOCUMENTS_PER_BLOCK = 64, 10
"""A block has at least this many steps, and this many times the text of the longest document."""
_DRAW = 1
"""Tells the random numbers of rows from those of documents, which have the same seed."""


class Rows:
    """Rows of the stream of documents, in the order in which training reads them.

    Row *i* begins at the token that contains byte *i* · `context_bytes` of the stream, and ends where the next row
    begins. Rows are permuted within blocks, by the seed and the number of the block alone. A block is not longer than
    the corpus. So a row has the same text with every tokenizer, the rows of a step are not neighbours, and any step can
    be read without those before it. A run reads whole blocks, and a part of the last one.

    Args:
        shards: The encoded corpus.
        rows_per_step: Rows of a step.
        context_bytes: Bytes of a row.
        context_tokens: Tokens of a row instead, for contexts that are equal in tokens; None for `context_bytes`.
        seed: Seed of the order of documents and rows.
        shuffle: False reads the documents of the shards, and their rows, in order.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        rows_per_step: int,
        context_bytes: int,
        context_tokens: int | None = None,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        self.stream = DocumentStream(shards, seed=seed, shuffle=shuffle)
        self.rows_per_step = rows_per_step
        self.in_tokens = context_tokens is not None
        self._size = context_tokens or context_bytes
        self._seed, self._shuffle, self._shards = seed, shuffle, shards
        step = self._size * rows_per_step
        longest = math.ceil(_DOCUMENTS_PER_BLOCK * self.stream.longest_document(in_tokens=self.in_tokens) / step)
        epoch = (shards.n_tokens if self.in_tokens else shards.n_bytes) // step
        self.block_rows = max(1, min(epoch, max(_STEPS_PER_BLOCK, longest))) * rows_per_step
        self._block = -1
        self._bounds = self._order = np.empty(0, np.int64)

    @property
    def mean_tokens(self) -> float:
        """Mean number of tokens of a row, over an epoch."""
        return float(self._size) if self.in_tokens else self._size * self._shards.n_tokens / self._shards.n_bytes

    @property
    def most_tokens(self) -> int:
        """Limit for the tokens of a row. A token has a byte, except for `end_of_text` and what a tokenizer adds."""
        return self._size if self.in_tokens else 2 * self._size

    def spans(self, step: int) -> NDArray[np.int64]:
        """int64[rows_per_step, 2], positions of the first tokens of each row of a step and of the row after it.

        The first token of the row after it is the last target of a row, but not an input. A row of more tokens than
        `most_tokens` is cut there.
        """
        first = step * self.rows_per_step
        self._load(first // self.block_rows)
        rows = self._order[first % self.block_rows :][: self.rows_per_step]
        starts = self._bounds[rows]
        return np.stack([starts, np.minimum(self._bounds[rows + 1], starts + self.most_tokens)], axis=1)

    def step_tokens(self, steps: int) -> NDArray[np.int64]:
        """int64[steps], tokens of each of the first steps."""
        return np.array([np.diff(self.spans(step)).sum() for step in range(steps)], dtype=np.int64)

    def unread(self, steps: int, n_bytes: int) -> NDArray[np.int64]:
        """The last documents of the first epoch that a run of this many steps does not read.

        With contexts in bytes they are the same for every tokenizer.

        Args:
            steps: Steps of the run.
            n_bytes: Bytes of text that the documents have at least.

        Raises:
            UserError: If less text is left.
        """
        order, ends = self.stream.first_epoch(in_tokens=self.in_tokens)
        blocks, part = divmod(steps * self.rows_per_step, self.block_rows)
        read = np.zeros(max(int(ends[-1]) // self._size + 1, (blocks + 1) * self.block_rows), bool)
        read[: blocks * self.block_rows] = True
        read[blocks * self.block_rows + self._permutation(blocks)[:part]] = True
        until = np.concatenate([[0], np.cumsum(read)])
        # The last target of a row is the first token of the next one.
        first = np.maximum(0, -(-np.concatenate([[0], ends[:-1]]) // self._size) - 1)
        unread = order[until[(ends - 1) // self._size + 1] == until[first]][::-1]
        size = np.cumsum(self._shards.document_bytes[unread])
        if not len(size) or size[-1] < n_bytes:
            raise UserError(
                f"a run of {steps:,} steps does not leave {n_bytes:,} of the {self._shards.n_bytes:,} bytes of "
                "training text unread; use a shorter run or fewer bytes"
            )
        chosen: NDArray[np.int64] = unread[: np.searchsorted(size, n_bytes) + 1][::-1]
        return chosen

    def _permutation(self, block: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self.block_rows)
        return np.random.default_rng([self._seed, block, _DRAW]).permutation(self.block_rows)

    def _load(self, block: int) -> None:
        if block == self._block:
            return
        bounds = self._size * np.arange(block * self.block_rows, (block + 1) * self.block_rows + 1, dtype=np.int64)
        self._bounds = bounds if self.in_tokens else self.stream.tokens_at(bounds)
        self._order = self._permutation(block)
        self._block = block
