"""Rows of training batches: pieces of equal bytes from all over the text, in an order that no tokenizer decides."""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.stream import DocumentStream
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lm.data.shards import Shards

_BLOCK_BYTES = 1 << 28
"""Least text of a block, if the corpus has as much."""
_DRAW = 1
"""Tells the random numbers of rows from the documents', which have the same seed."""
_KEPT = 2
"""Blocks of rows that stay in memory: the one that is read, and the one that further rows come from."""


class Rows:
    """Rows of the stream of documents, in the order in which training reads them.

    Row *i* begins at the token that contains byte *i* · `context_bytes` of the stream, and ends where the next row
    begins. Rows are permuted within blocks, by the seed and the number of the block alone; a block is the whole corpus,
    or a large part of it. So a row has the same text with every tokenizer, the rows of a step are from all over a
    block, and any step can be read without those before it.

    Without `tokens_per_step`, a step has `rows_per_step` rows. With it, a step has as many rows as bring its tokens
    nearest to that number: some of the same rows, or all of them and further ones, which are taken from the end of the
    corpus's last block backwards. So the steps of tokenizers with other numbers of rows still share most of their text.

    Args:
        shards: The encoded corpus.
        rows_per_step: Rows of a step.
        context_bytes: Bytes of a row.
        context_tokens: Tokens of a row instead, for contexts that are equal in tokens; None for `context_bytes`.
        tokens_per_step: Tokens of a step; None for `rows_per_step` rows.
        held_back_bytes: Text of the last documents of the first epoch, at least, that no row has (`held_back`).
        seed: Seed of the order of documents and rows.
        shuffle: False reads the documents of the shards, and their rows, in order.

    Raises:
        UserError: If a step is less than one row.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        rows_per_step: int,
        context_bytes: int,
        context_tokens: int | None = None,
        tokens_per_step: float | None = None,
        held_back_bytes: int = 0,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        self.stream = DocumentStream(shards, seed=seed, shuffle=shuffle)
        self.rows_per_step = rows_per_step
        self.in_tokens = context_tokens is not None
        self._size = context_tokens or context_bytes
        self._seed, self._shuffle, self._shards = seed, shuffle, shards
        self._held_back, end = self.stream.last_documents(held_back_bytes, in_tokens=self.in_tokens)
        # The last target of a row is the first token of the next one.
        self._steps_before = (end - bool(held_back_bytes)) // (self._size * rows_per_step)
        epoch = max(1, self._steps_before)
        self._blocks = max(1, min(epoch, shards.n_bytes // _BLOCK_BYTES))  # of the corpus
        self.block_rows = epoch // self._blocks * rows_per_step
        self._fixed = tokens_per_step is None
        self.tokens_per_step: float = rows_per_step * self.mean_tokens if tokens_per_step is None else tokens_per_step
        if self.mean_rows < 1:
            raise UserError(
                f"tokens_per_step={self.tokens_per_step:g} is less than a row of about {self.mean_tokens:.0f} tokens; "
                "use a larger lm.train.bytes_per_step or a smaller lm.train.context_bytes"
            )
        self._steps: dict[int, Future[list[NDArray[np.int64]]]] = {}  # of the block that is read, and the next one
        self._loaded: dict[int, NDArray[np.int64]] = {}  # only the thread uses it
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_steps": {}, "_thread": None}

    @property
    def mean_tokens(self) -> float:
        """Mean number of tokens of a row, over an epoch."""
        return float(self._size) if self.in_tokens else self._size * self._shards.n_tokens / self._shards.n_bytes

    @property
    def mean_rows(self) -> float:
        """Mean number of rows of a step."""
        return self.tokens_per_step / self.mean_tokens

    @property
    def most_tokens(self) -> int:
        """Limit for the tokens of a row. Every token but `end_of_text` and added ones covers at least one byte."""
        return self._size if self.in_tokens else 2 * self._size

    def spans(self, step: int) -> NDArray[np.int64]:
        """int64[rows, 2], positions of the first tokens of each row of a step and of the row after it.

        The first token of the row after it is the last target of a row, but not an input. A row of more tokens than
        `most_tokens` is cut there.
        """
        n_steps = self.block_rows // self.rows_per_step
        block, within = divmod(step, n_steps)
        # The next block is found while the second half of this one is read, so that no step waits for it.
        wanted = [block, block + 1] if 2 * within >= n_steps else [block]
        if self._process != os.getpid():  # a fork has no threads
            self._steps, self._thread, self._process = {}, None, os.getpid()
        for unneeded in self._steps.keys() - wanted:
            self._steps[unneeded].cancel()
        self._steps = {i: self._steps.get(i) or self._start(i) for i in wanted}
        return self._steps[block].result()[within]

    def held_back(self, steps: int) -> NDArray[np.int64]:
        """The documents that are held back, which are the same for every tokenizer.

        Raises:
            UserError: If a run of this many steps needs more than the text before them.
        """
        if steps > self._steps_before or not len(self._held_back):
            raise UserError(
                f"a run of {steps:,} steps does not leave that much of the {self._shards.n_bytes:,} bytes of training "
                "text unread; use a shorter run or fewer bytes"
            )
        return self._held_back

    def _start(self, block: int) -> Future[list[NDArray[np.int64]]]:
        """Find the rows of a block in a thread, which the end of the program does not wait for."""
        found: Future[list[NDArray[np.int64]]] = Future()
        before = self._thread

        def find() -> None:
            if before is not None:
                before.join()
            if not found.set_running_or_notify_cancel():
                return
            try:
                found.set_result(self._steps_of(block))
            except BaseException as error:  # raised where the rows are needed
                found.set_exception(error)

        self._thread = threading.Thread(target=find, name="rows", daemon=True)
        self._thread.start()
        return found

    def _steps_of(self, block: int) -> list[NDArray[np.int64]]:
        """The rows of each step of a block, int64[rows, 2]."""
        spans = self._spans(block).reshape(-1, self.rows_per_step, 2)
        return list(spans) if self._fixed else self._of_equal_tokens(block, spans)

    def _of_equal_tokens(self, block: int, spans: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The rows of each step of a block, int64[rows, 2], by tokens; `spans` has equal numbers of rows."""
        further = self._further(block)
        steps, lacking, following = [], 0.0, None
        for rows, until in zip(spans, np.diff(spans)[..., 0].cumsum(1), strict=True):
            wanted = self.tokens_per_step + lacking  # so that the errors of steps do not add up
            n_rows = int(np.abs(until - wanted).argmin()) + 1
            lacking = wanted - until[n_rows - 1]
            more = []
            while n_rows == len(rows) and lacking > 0:
                following = next(further) if following is None else following
                if 2 * lacking <= (tokens := following[1] - following[0]):
                    break
                more.append(following)
                lacking, following = lacking - tokens, None
            steps.append(np.concatenate([rows[:n_rows], more]) if more else rows[:n_rows])
        return steps

    def _further(self, block: int) -> Iterator[NDArray[np.int64]]:
        """Rows for the steps of a block beyond its own, int64[2] each.

        They begin after those that the blocks before it are expected to take. A step of n rows whose tokens have the
        coefficient of variation c lacks d rows on average, with a standard deviation of c √n, and takes
        E[max(0, N(d, c² n))] ≤ max(0, d) + c √n / √(2π) further rows; rounding to whole rows adds at most half of one.
        0.25 √n is for c = 0.63; rows of 1,024 bytes have c = 0.17 to 0.49 (English, code, other languages, each
        alone and mixed, with a tokenizer of English alone and of all).
        """
        epoch, number = divmod(block, self._blocks)
        steps = self.block_rows // self.rows_per_step
        spare = 0.5 + 0.25 * math.sqrt(self.rows_per_step)
        first = number * math.ceil(steps * (spare + max(0, self.mean_rows - self.rows_per_step)))
        while True:
            back, skipped = divmod(first, self.block_rows)
            rows = self._spans((epoch + 1) * self._blocks - 1 - back % self._blocks)[::-1][skipped:]
            yield from rows
            first += len(rows)

    def _permutation(self, block: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return np.arange(self.block_rows)
        return np.random.default_rng([self._seed, block, _DRAW]).permutation(self.block_rows)

    def _spans(self, block: int) -> NDArray[np.int64]:
        """The rows of a block in their order, int64[block_rows, 2]."""
        if block not in self._loaded:
            bounds = self._size * np.arange(block * self.block_rows, (block + 1) * self.block_rows + 1, dtype=np.int64)
            bounds = bounds if self.in_tokens else self.stream.tokens_at(bounds)
            spans = np.stack([bounds[:-1], np.minimum(bounds[1:], bounds[:-1] + self.most_tokens)], axis=1)
            while len(self._loaded) >= _KEPT:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[block] = spans[self._permutation(block)]
        return self._loaded[block]
