"""Rows of training batches: pieces of equal bytes, drawn from all over the text in an order that no tokenizer decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.data.stream import DocumentStream

_STEPS_PER_BLOCK = 64
_DOCUMENTS_PER_BLOCK = 10
"""A block has at least this many steps, and the text of this many documents of the longest size."""
_DRAW = 1
"""Tells the random numbers of rows from those of documents, which have the same seed."""


class Rows:
    """Rows of the stream of documents, in the order in which training reads them.

    Row *i* is the stream's text from byte *i* · `context_bytes` on, up to where the next row begins, both rounded down to
    a token. Rows are permuted within blocks, by the seed and the number of the block alone. So a row has the same text
    with every tokenizer, the rows of a step are not neighbours, and any step can be read without those before it.

    A run reads whole blocks, and a part of the last one.

    Args:
        stream: The documents.
        rows_per_step: Rows of a step.
        context_bytes: Bytes of a row; or
        context_tokens: tokens of a row, for contexts that are equal in tokens.
        seed: Seed of the permutations; None to keep the rows in order.
    """

    def __init__(
        self,
        stream: DocumentStream,
        *,
        rows_per_step: int,
        context_bytes: int,
        context_tokens: int | None = None,
        seed: int | None,
    ) -> None:
        self._stream, self._seed = stream, seed
        self.rows_per_step = rows_per_step
        self._size, self._in_tokens = (context_bytes, False) if context_tokens is None else (context_tokens, True)
        longest = stream.longest_document(in_tokens=self._in_tokens)
        steps = max(_STEPS_PER_BLOCK, math.ceil(_DOCUMENTS_PER_BLOCK * longest / (self._size * rows_per_step)))
        self.block_rows = steps * rows_per_step
        self._block = -1
        self._bounds: NDArray[np.int64] = np.empty(0, np.int64)
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def spans(self, step: int) -> NDArray[np.int64]:
        """int64[rows_per_step, 2], first and last token of each row of a step, as positions of the stream.

        The last token of a row is the first one of the next: it is a target, but not an input.
        """
        first = step * self.rows_per_step
        self._load(first // self.block_rows)
        rows = self._order[first % self.block_rows :][: self.rows_per_step]
        return np.stack([self._bounds[rows], self._bounds[rows + 1]], axis=1)

    def end_of(self, steps: int) -> int:
        """End of the last block that a run of this many steps reads, in bytes (or tokens) of the stream."""
        return -(-steps * self.rows_per_step // self.block_rows) * self.block_rows * self._size

    def _load(self, block: int) -> None:
        if block == self._block:
            return
        ends = self._size * np.arange(block * self.block_rows, (block + 1) * self.block_rows + 1, dtype=np.int64)
        self._bounds = ends if self._in_tokens else self._stream.tokens_at(ends)
        self._order = np.arange(self.block_rows)
        if self._seed is not None:
            self._order = np.random.default_rng([self._seed, block, _DRAW]).permutation(self.block_rows)
        self._block = block
