"""Token counts of several tokenizers on the same documents, from one pass over the text."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from lm.data.shards import END_OF_TEXT
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from experiments.fertility.documents import Documents, Text
    from tokenizer._native import Batch
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress


class Tally:
    """Token counts of one tokenizer. Batches may be added from any thread, in any order.

    Attributes:
        tokenizer: The tokenizer. Its special tokens include `<|endoftext|>`.
        tokens: int64[n_documents], tokens of each document.
        lost: int64[n_documents], bytes of each document that no token stands for, or only the unknown token.
        changed: bool[n_documents], whether a document decodes to another text.
        counts: int64[vocab_size], occurrences of each token.
    """

    def __init__(self, tokenizer: TokenizerLike, n_documents: int) -> None:
        self.tokenizer = tokenizer
        self.tokens, self.lost = np.zeros(n_documents, np.int64), np.zeros(n_documents, np.int64)
        self.changed = np.zeros(n_documents, np.bool_)
        self.counts = np.zeros(tokenizer.vocab_size, np.int64)
        self._mark = tokenizer.special_tokens[END_OF_TEXT]
        self._lengths = tokenizer.token_byte_lengths().astype(np.uint32)
        self._lock = threading.Lock()

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
        counts = np.bincount(stream.ids, minlength=len(self.counts))
        counts[self._mark] -= len(lengths)
        with self._lock:
            self.counts += counts


def tally(
    tokenizers: Sequence[TokenizerLike],
    texts: Sequence[Text],
    documents: Documents,
    *,
    threads: int,
    progress: Progress | None = None,
) -> list[Tally]:
    """Count the tokens of the texts with each tokenizer.

    Args:
        tokenizers: The tokenizers, with `<|endoftext|>` among their special tokens.
        texts: The texts.
        documents: Their documents.
        threads: Number of threads.
        progress: Called with the bytes encoded, over all tokenizers.
    """
    tallies = [Tally(tokenizer, len(documents)) for tokenizer in tokenizers]
    tick = Throttle(progress, "bytes encoded", len(tallies) * int(documents.n_bytes.sum()))
    pending: deque[tuple[Future[None], int]] = deque()
    done = first = 0

    def finish() -> None:
        nonlocal done
        future, size = pending.popleft()
        future.result()
        done += size
        tick(done)

    with ThreadPoolExecutor(threads) as pool:
        for text in texts:
            for batch in text.corpus.batches("all"):
                for each in tallies:
                    if len(pending) == 2 * threads:
                        finish()
                    pending.append((pool.submit(each.add, batch, first), batch.n_bytes))
                first += len(batch)
        while pending:
            finish()
    assert first == len(documents), "the text has other documents than the survey found"
    return tallies
