"""Passes over the measured text."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from experiments.fertility.documents import documents_of
from lm.data.survey import survey
from tokenizer.corpus.overlap import find_overlap
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    from experiments.fertility.counting import Tally
    from experiments.fertility.documents import Documents, Text
    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress


class Reading(Protocol):
    """Reads the measured text, on this machine or on a cluster."""

    def documents(self, most_sources: int) -> Documents:
        """The documents; only the largest sources are told apart.

        Raises:
            UserError: A text has no documents.
        """

    def overlap(self, training: Sequence[Corpus]) -> NDArray[np.bool_]:
        """bool[n_documents], whether a document also is in the training split of one of these corpora."""

    def count(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """Add all documents to each tally; `report` is called with the bytes done, over all tallies."""

    def weigh(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """Weigh all documents by each tally; `report` is called as for `count`."""


class LocalReading:
    """Reads text on this machine.

    Args:
        texts: The text.
        threads: Number of threads.
        progress: Called with the bytes read.
    """

    def __init__(self, texts: Sequence[Text], threads: int, progress: Progress | None = None) -> None:
        self._texts, self._threads, self._progress = texts, threads, progress

    def documents(self, most_sources: int) -> Documents:
        """See `Reading`."""
        tick, before = Throttle(self._progress, "bytes read"), 0
        found = []
        for text in self._texts:
            part = survey(text.corpus, "all", done=lambda done: tick(before + done))  # noqa: B023
            before += int(part.n_bytes.sum())
            found.append((text, [part]))
        return documents_of(found, most_sources)

    def overlap(self, training: Sequence[Corpus]) -> NDArray[np.bool_]:
        """See `Reading`."""
        read = chain.from_iterable(corpus.batches("train", readers=2, in_order=False) for corpus in training)
        return find_overlap(self._batches(), read, threads=self._threads, progress=self._progress).whole

    def count(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """See `Reading`."""
        self._run([each.add for each in tallies], tallies[0], report)

    def weigh(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """See `Reading`."""
        self._run([each.weigh for each in tallies], tallies[0], report)

    def _run(self, jobs: Sequence[Callable[[Batch, int], None]], tally: Tally, report: Callable[[int], None]) -> None:
        n_documents = run(jobs, self._batches(), self._threads, report)
        assert n_documents == len(tally.documents), "the text has other documents than the survey found"

    def _batches(self) -> Iterable[Batch]:
        return chain.from_iterable(text.corpus.batches("all") for text in self._texts)


def run(
    jobs: Sequence[Callable[[Batch, int], None]],
    batches: Iterable[Batch],
    threads: int,
    report: Callable[[int], None] | None = None,
) -> int:
    """Call every job with every batch and the index of its first document; `report` with the bytes done by all jobs.

    Returns:
        The number of documents.
    """
    pending: deque[tuple[Future[None], int]] = deque()
    done = first = 0

    def finish() -> None:
        nonlocal done
        future, n_bytes = pending.popleft()
        future.result()
        done += n_bytes
        if report is not None:
            report(done)

    with ThreadPoolExecutor(threads) as pool:
        for batch in batches:
            for job in jobs:
                if len(pending) == 2 * threads:
                    finish()
                pending.append((pool.submit(job, batch, first), batch.n_bytes))
            first += len(batch)
        while pending:
            finish()
    return first
