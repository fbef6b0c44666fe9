"""Token counts of several tokenizers on the same documents, from one pass over the text for many of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from lm.data.shards import END_OF_TEXT
from superbpe.inspection.measures import renyi_gradient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from experiments.fertility.documents import Documents
    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike

_BYTES_PER_DOCUMENT = 64


class Tally:
    """Token counts of one tokenizer. Batches may be added from any thread, in any order.

    Attributes:
        tokenizer: The tokenizer. Its special tokens include `<|endoftext|>`.
        documents: The documents.
        tokens: int64[n_documents], tokens of each document.
        lost: int64[n_documents], bytes of each document that no token stands for, or only the unknown token.
        changed: bool[n_documents], whether a document decodes to another text.
        counts: int64[n_cells, vocab_size], occurrences of each token in each cell.
        weights: float64[n_groups, vocab_size], the derivative of a group's Rényi entropy by each token's probability;
            while documents are weighed.
        rows: For each cell, the row of `weights` by kind of group.
        gradients: float64[n_documents] by kind of group: the weights of its tokens, summed over each document.
    """

    def __init__(self, tokenizer: TokenizerLike, documents: Documents) -> None:
        n = len(documents)
        self.tokenizer, self.documents = tokenizer, documents
        self.tokens, self.lost, self.changed = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        self.counts = np.zeros((len(documents.cells), tokenizer.vocab_size), np.int64)
        self.gradients = {group.by: np.zeros(n) for group in documents.groups}
        self.weights = np.empty((0, tokenizer.vocab_size))
        self.rows: list[dict[str, int]] = []
        self._mark = tokenizer.special_tokens[END_OF_TEXT]
        self._lengths = tokenizer.token_byte_lengths().astype(np.uint32)
        self._lock = threading.Lock()

    @staticmethod
    def memory(tokenizer: TokenizerLike, documents: Documents) -> int:
        """Bytes that the counts and gradients of a tokenizer take."""
        rows = len(documents.cells) + len(documents.groups)
        return 8 * rows * tokenizer.vocab_size + _BYTES_PER_DOCUMENT * len(documents)

    def add(self, batch: Batch, first: int) -> None:
        """Count the tokens of a batch whose first document has index `first`."""
        stream = self.tokenizer.encode_stream(batch, self._mark, self._lengths, narrow=False)
        lengths = np.diff(stream.ends, prepend=0)
        at = slice(first, first + len(lengths))
        self.tokens[at] = lengths - 1
        if stream.changed is not None:
            self.changed[at] = stream.changed
        if stream.covered is not None:
            unknown = -1 if self.tokenizer.unknown_id is None else self.tokenizer.unknown_id
            replaced = np.where(stream.ids == unknown, stream.covered.astype(np.int64), 0)
            self.lost[at] = np.diff(batch.offsets) - stream.spelled + np.add.reduceat(replaced, stream.ends - lengths)
        for cell, chosen in self._cells(at):
            found = np.bincount(stream.ids[np.repeat(chosen, lengths)], minlength=self.counts.shape[1])
            found[self._mark] -= np.count_nonzero(chosen)
            with self._lock:
                self.counts[cell] += found

    def counted(self, alpha: float) -> None:
        """Compute the derivatives of the Rényi entropies once all batches are counted; then `weigh` may be called."""
        self.rows = [{} for _ in self.documents.cells]
        weights: list[NDArray[np.float64]] = []
        for group in self.documents.groups:
            counts = self.counts[group.cells].sum(axis=0)
            if counts.any():
                for cell in np.flatnonzero(group.cells).tolist():
                    self.rows[cell][group.by] = len(weights)
                weights.append(renyi_gradient(counts, alpha))
        self.weights = np.array(weights).reshape(-1, self.counts.shape[1])

    def weigh(self, batch: Batch, first: int) -> None:
        """Sum the derivatives over the tokens of a batch."""
        ids, offsets = self.tokenizer.encode_batch(batch, threads=1)
        at = slice(first, first + len(batch))
        lengths = np.diff(offsets)
        for cell, chosen in self._cells(at):
            own, n_tokens = ids[np.repeat(chosen, lengths)], lengths[chosen]
            starts = np.cumsum(n_tokens) - n_tokens
            values = np.zeros(len(own) + 1)  # a document without tokens may start at the end
            for by, row in self.rows[cell].items():
                np.take(self.weights[row], own, out=values[:-1], mode="clip")  # other modes make a copy
                self.gradients[by][at][chosen] = np.where(n_tokens > 0, np.add.reduceat(values, starts), 0)

    def weighed(self) -> None:
        """Free the derivatives once all batches are weighed."""
        self.weights, self.rows = self.weights[:0], []

    def _cells(self, at: slice) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Each cell of the documents, and which of them are in it."""
        cells = self.documents.cell[at]
        for cell in np.unique(cells).tolist():
            yield cell, cells == cell
