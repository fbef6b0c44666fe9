"""Passes over the measured text, on this machine or on a cluster."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from experiments.cluster.results import Task
from experiments.fertility.counting import Tally
from experiments.fertility.documents import documents_of
from experiments.stages.contamination import search
from experiments.stages.documents import survey_parts
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from experiments.cluster.machines import Machines
    from experiments.cluster.results import Beat, Blocks, Work
    from experiments.fertility.documents import Documents, Text
    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress

_PER_DOCUMENT = ("tokens", "lost", "changed")


class Reading:
    """Reads the measured text.

    Args:
        machines: Where it is read.
        texts: The text.
        folder: Folder for results of tasks, from `machines.results`.
        progress: Called with the bytes of files read.
    """

    def __init__(
        self, machines: Machines, texts: Sequence[Text], folder: Path | None, progress: Progress | None = None
    ) -> None:
        self._machines, self._folder, self._progress = machines, folder, progress
        self._texts, self._corpora = texts, [text.corpus for text in texts]
        self._parts: list[Corpus] = []
        self._ends = [0]

    def documents(self, most_sources: int) -> Documents:
        """The documents; only the largest sources are told apart.

        Raises:
            UserError: If a text has no documents.
        """
        found = list(survey_parts(self._machines, self._corpora, "all", self._folder, self._progress))
        self._parts = [part for _, part, _ in found]
        self._ends = np.cumsum([0, *(len(survey) for _, _, survey in found)]).tolist()
        surveyed = [(text, [survey for corpus, _, survey in found if corpus is text.corpus]) for text in self._texts]
        return documents_of(surveyed, most_sources)

    def overlap(self, training: Sequence[Corpus]) -> NDArray[np.bool_]:
        """bool[n_documents], whether a document also is in the training split of one of these corpora."""
        return search(self._machines, self._corpora, "all", training, self._folder, 0, self._progress).whole

    def count(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """Add all documents to each tally; `report` is called with the bytes done, over all tallies."""
        tokenizers = [tally.tokenizer for tally in tallies]
        for at, cells, blocks in self._run("tokens", partial(_count, tokenizers), None, tallies, report):
            for tally, block in zip(tallies, blocks, strict=True):
                for name in _PER_DOCUMENT:
                    getattr(tally, name)[at] = block[name]
                tally.counts[cells] += block["counts"]

    def weigh(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """Weigh all documents by each tally; `report` is called as for `count`."""
        weights = [(tally.tokenizer, tally.weights, tally.rows) for tally in tallies]
        digest = xxhash.xxh3_128(b"".join(tally.weights.data for tally in tallies)).hexdigest()
        for at, _, blocks in self._run("weights", partial(_weigh, weights), digest, tallies, report):
            for tally, block in zip(tallies, blocks, strict=True):
                for by, values in block.items():
                    tally.gradients[by][at] = values

    def _run(
        self, name: str, work: Work, identity: Any, tallies: Sequence[Tally], report: Callable[[int], None]
    ) -> Iterator[tuple[slice, NDArray[np.int64], Iterator[dict[str, NDArray[Any]]]]]:
        """Work on each part; yields its documents, their cells and the results of each tally."""
        shas = [tally.tokenizer.sha256 for tally in tallies]
        tasks, places = [], []
        for i, (part, (start, stop)) in enumerate(zip(self._parts, pairwise(self._ends), strict=True)):
            documents, cells = tallies[0].documents.part(start, stop)
            places.append((slice(start, stop), cells))
            of_cells = [xxhash.xxh3_128_hexdigest(documents.cell.data), cells.tolist()]
            size = len(tallies) * int(documents.n_bytes.sum())
            argument = part, documents, cells.tolist(), self._machines.threads
            tasks.append(Task(f"{name}-{i:05}", [part.part_identity(), of_cells, shas, identity], argument, size))
        results = self._machines.run(work, tasks, self._folder, report)
        for (at, cells), result in zip(places, results, strict=True):
            yield at, cells, result.blocks()


def _count(
    tokenizers: Sequence[TokenizerLike], argument: tuple[Corpus, Documents, list[int], int], beat: Beat
) -> Blocks:
    part, documents, _, threads = argument
    tallies = [Tally(tokenizer, documents) for tokenizer in tokenizers]
    _run_jobs([tally.add for tally in tallies], part, documents, threads, beat)
    for tally in tallies:
        yield {name: getattr(tally, name) for name in (*_PER_DOCUMENT, "counts")}


def _weigh(
    weights: Sequence[tuple[TokenizerLike, NDArray[np.float64], list[dict[str, int]]]],
    argument: tuple[Corpus, Documents, list[int], int],
    beat: Beat,
) -> Blocks:
    part, documents, cells, threads = argument
    tallies = []
    for tokenizer, by_token, rows in weights:
        tally = Tally(tokenizer, documents)
        tally.weights, tally.rows = by_token, [rows[cell] for cell in cells]
        tallies.append(tally)
    _run_jobs([tally.weigh for tally in tallies], part, documents, threads, beat)
    for tally in tallies:
        yield tally.gradients


def _run_jobs(
    jobs: Sequence[Callable[[Batch, int], None]], part: Corpus, documents: Documents, threads: int, beat: Beat
) -> None:
    """Call every job with every batch and the index of its first document; `beat` with the bytes done by all jobs."""
    pending: deque[tuple[Future[None], int]] = deque()
    done = first = 0

    def finish() -> None:
        nonlocal done
        future, n_bytes = pending.popleft()
        future.result()
        done += n_bytes
        beat(done)

    with ThreadPoolExecutor(threads) as pool:
        for batch in part.batches("all"):
            for job in jobs:
                if len(pending) == 2 * threads:
                    finish()
                pending.append((pool.submit(job, batch, first), batch.n_bytes))
            first += len(batch)
        while pending:
            finish()
    assert first == len(documents), "the text has other documents than the survey found"


def tally(
    reading: Reading,
    tokenizers: Sequence[TokenizerLike],
    documents: Documents,
    *,
    alpha: float,
    memory_bytes: int,
    progress: Progress | None = None,
) -> Iterator[Tally]:
    """Count the tokens of the documents with each tokenizer.

    The text is read twice for as many tokenizers as fit into the memory: once to count, and once for the variance of
    the Rényi entropy, whose derivatives depend on all counts.

    Args:
        reading: Reads the text.
        tokenizers: The tokenizers, with `<|endoftext|>` among their special tokens.
        documents: The documents of the text.
        alpha: Order of the Rényi entropy.
        memory_bytes: Limit for the counts of tokenizers that are measured together; at least one is.
        progress: Called with the bytes encoded, over all tokenizers.

    Yields:
        The counts of each tokenizer, in order.
    """
    n_bytes = int(documents.n_bytes.sum())
    tick, before = Throttle(progress, "bytes encoded", 2 * len(tokenizers) * n_bytes), 0
    for together in _together(tokenizers, documents, memory_bytes):
        found = [Tally(tokenizer, documents) for tokenizer in together]
        reading.count(found, lambda done: tick(before + done))  # noqa: B023
        before += len(found) * n_bytes
        for each in found:
            each.counted(alpha)
        reading.weigh(found, lambda done: tick(before + done))  # noqa: B023
        before += len(found) * n_bytes
        for each in found:
            each.weighed()
        yield from found


def _together(
    tokenizers: Sequence[TokenizerLike], documents: Documents, memory_bytes: int
) -> Iterator[Sequence[TokenizerLike]]:
    """Split tokenizers into runs whose counts fit into the memory."""
    taken: list[TokenizerLike] = []
    size = 0
    for tokenizer in tokenizers:
        needed = Tally.memory(tokenizer, documents)
        if taken and size + needed > memory_bytes:
            yield taken
            taken, size = [], 0
        taken.append(tokenizer)
        size += needed
    yield taken
