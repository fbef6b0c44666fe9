"""Measure the tokens of a text by tasks: each reads a part of it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from experiments.cluster.contamination import find_overlap
from experiments.cluster.surveying import surveys_of
from experiments.cluster.tasks import REMEDY, Task
from experiments.fertility.counting import Tally
from experiments.fertility.documents import documents_of
from experiments.fertility.reading import run
from tokenizer import storage
from tokenizer.durable import replacing
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.cluster.tasks import Cluster, Result
    from experiments.fertility.documents import Documents, Text
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress


class ClusterReading:
    """Reads text by tasks, see `experiments.fertility.reading.Reading`.

    Args:
        cluster: where the tasks run.
        texts: the text.
        folder: folder for the results of the tasks, which all machines see.
        progress: called with the bytes of files read.
    """

    def __init__(self, cluster: Cluster, texts: Sequence[Text], folder: Path, progress: Progress | None = None) -> None:
        self._cluster, self._texts, self._folder, self._progress = cluster, texts, folder, progress
        self._parts: list[Corpus] = []
        self._ends = np.zeros(0, np.int64)

    def documents(self, most_sources: int) -> Documents:
        """See `Reading`."""
        corpora = [text.corpus for text in self._texts]
        found = surveys_of(self._cluster, corpora, "all", self._folder, self._progress)
        self._parts = [part for parts in found for part, _ in parts]
        self._ends = np.cumsum([0, *(len(each) for parts in found for _, each in parts)])
        surveyed = [(text, [each for _, each in parts]) for text, parts in zip(self._texts, found, strict=True)]
        return documents_of(surveyed, most_sources)

    def overlap(self, training: Sequence[Corpus]) -> NDArray[np.bool_]:
        """See `Reading`."""
        measured = [text.corpus for text in self._texts]
        return find_overlap(self._cluster, measured, "all", training, self._folder, 0, self._progress).whole

    def count(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """See `Reading`."""
        own = [each.tokenizer for each in tallies]
        identity = [tokenizer.sha256 for tokenizer in own]
        for at, cells, result in self._run("tokens", _count, identity, own, tallies, report):
            for whole, part in zip(tallies, _arrays(result), strict=True):
                for name in _PER_DOCUMENT:
                    getattr(whole, name)[at] = part[name]
                whole.counts[cells] += part["counts"]

    def weigh(self, tallies: Sequence[Tally], report: Callable[[int], None]) -> None:
        """See `Reading`."""
        digest = xxhash.xxh3_128()
        for each in tallies:
            digest.update(each.weights.data)
        identity = [[each.tokenizer.sha256 for each in tallies], digest.hexdigest()]
        path = self._folder / f"weights-{digest.hexdigest()}.npy"
        with replacing(path) as file:
            np.save(file, np.concatenate([each.weights.reshape(-1) for each in tallies]))
        own = (path, [(each.tokenizer, each.rows) for each in tallies])
        for at, _, result in self._run("weights", _weigh, identity, own, tallies, report):
            for whole, part in zip(tallies, _arrays(result), strict=True):
                for by, values in part.items():
                    whole.gradients[by][at] = values

    def _run(
        self,
        name: str,
        function: Callable[..., Any],
        identity: Any,
        shared: Any,
        tallies: Sequence[Tally],
        report: Callable[[int], None],
    ) -> Iterator[tuple[slice, NDArray[np.int64], Result]]:
        """Run a task per part; yields its documents, their cells and its result."""
        documents = tallies[0].documents
        tasks, places = [], []
        for i, (part, (start, stop)) in enumerate(zip(self._parts, pairwise(self._ends.tolist()), strict=True)):
            own, cells = documents.part(start, stop)
            places.append((slice(start, stop), cells))
            of_cells = [xxhash.xxh3_128_hexdigest(own.cell.data), cells.tolist()]
            call = partial(function, part, own, cells.tolist())
            size = len(tallies) * int(own.n_bytes.sum())
            tasks.append(Task(f"{name}-{i:05}", [part.part_identity(), of_cells, identity], call, size))
        results = self._cluster.run(tasks, (shared, self._cluster.threads), self._folder, report)
        for (at, cells), result in zip(places, results, strict=True):
            yield at, cells, result


_PER_DOCUMENT = ("tokens", "lost", "changed")


def _count(
    part: Corpus, documents: Documents, _: Sequence[int], shared: tuple[Sequence[TokenizerLike], int], path: Path
) -> dict[str, Any]:
    tokenizers, threads = shared
    tallies = [Tally(tokenizer, documents) for tokenizer in tokenizers]
    run([each.add for each in tallies], part.batches("all"), threads)
    with replacing(path) as file:
        arrays = {f"{i}-{name}": getattr(each, name) for i, each in enumerate(tallies) for name in _STORED}
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return {"tokenizers": len(tallies)}


_STORED = (*_PER_DOCUMENT, "counts")


def _weigh(
    part: Corpus,
    documents: Documents,
    cells: Sequence[int],
    shared: tuple[tuple[Path, Sequence[tuple[TokenizerLike, list[dict[str, int]]]]], int],
    path: Path,
) -> dict[str, Any]:
    (stored, own), threads = shared
    with storage.disk.borrowed(stored) as local:
        weights, first = np.load(local, mmap_mode="r"), 0
    tallies = []
    for tokenizer, rows in own:
        each = Tally(tokenizer, documents)
        n = 1 + max((row for cell in rows for row in cell.values()), default=-1)
        each.weights = weights[first : first + n * tokenizer.vocab_size].reshape(n, tokenizer.vocab_size)
        each.rows = [rows[cell] for cell in cells]
        first += each.weights.size
        tallies.append(each)
    run([each.weigh for each in tallies], part.batches("all"), threads)
    with replacing(path) as file:
        arrays = {f"{i}-{by}": found for i, each in enumerate(tallies) for by, found in each.gradients.items()}
        np.savez(file, allow_pickle=False, **arrays)
    return {"tokenizers": len(tallies)}


def _arrays(result: Result) -> list[dict[str, NDArray[Any]]]:
    """The arrays of each tokenizer."""
    found: list[dict[str, NDArray[Any]]] = [{} for _ in range(result.value["tokenizers"])]
    for name, array in read_arrays(result.data, REMEDY).items():
        number, _, own = name.partition("-")
        found[int(number)][own] = array
    return found
