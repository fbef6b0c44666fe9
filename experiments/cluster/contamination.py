"""Look for measured text in training text by tasks: each searches a part of the corpus."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cluster.tasks import REMEDY, Task
from tokenizer._native import Batch
from tokenizer.corpus.overlap import Overlap, measured_text, scan
from tokenizer.durable import replacing
from tokenizer.files import read_arrays
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Cluster
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.progress import Progress


def find_overlap(
    cluster: Cluster,
    measured: Sequence[Corpus],
    split: Split,
    training: Sequence[Corpus],
    folder: Path,
    ngram_words: int,
    progress: Progress | None = None,
) -> Overlap:
    """Look for the documents of some corpora in the training documents of others.

    Args:
        cluster: where the tasks run.
        measured: corpora whose documents are looked for.
        split: which of their documents.
        training: corpora whose training documents are searched.
        folder: folder for the results of the parts, which all machines see: the measured documents, and for each part
            a bit per n-gram of them.
        ngram_words: words of an n-gram; 0 to compare whole documents only.
        progress: called with the bytes of files searched.

    Returns:
        What `tokenizer.corpus.overlap.find_overlap` returns.

    Raises:
        UserError: there are no measured documents, or no training documents.
    """
    tasks = [
        Task(f"measured-{i:05}", [split, part.part_identity()], partial(_collect, part, split))
        for i, part in enumerate(_parts(measured, split, cluster.part_bytes))
    ]
    results = [result for result in cluster.run(tasks, None, folder) if result.value["documents"]]
    collected = [result.data for result in results]
    # Each task reads all measured text, so it searches at least as much.
    searched_bytes = max(cluster.part_bytes, sum(result.value["bytes"] for result in results))
    tasks = [
        Task(f"overlap-{i:05}", [ngram_words, part.part_identity()], partial(_search, part), part.stored_bytes)
        for i, part in enumerate(_parts(training, "train", searched_bytes))
    ]
    tick = Throttle(progress, "bytes of files searched", sum(task.size for task in tasks))
    found, n_bytes = measured_text(_batches(collected), ngram_words), 0
    for result in cluster.run(tasks, (collected, ngram_words, cluster.threads), folder, tick):
        n_bytes += result.value["bytes"]
        found.mark(read_arrays(result.data, REMEDY)["marks"])
    for corpus in (*measured, *training):
        corpus.check_unchanged()
    if not collected or not n_bytes:
        for corpus in training if collected else measured:
            for _ in corpus.batches("train" if collected else split):  # explains why there are no documents
                pass
    return Overlap(*found.found(), n_bytes)


def _parts(corpora: Sequence[Corpus], split: Split, part_bytes: int) -> Iterator[Corpus]:
    return chain.from_iterable(corpus.parts(split, part_bytes) for corpus in corpora)


def _collect(part: Corpus, split: Split, _: None, path: Path) -> dict[str, Any]:
    """Write the measured documents of a part."""
    batches = list(part.batches(split))
    with replacing(path) as file:
        np.savez(file, **{f"{i}-{name}": getattr(batch, name) for i, batch in enumerate(batches) for name in _BUFFERS})
    return {"documents": sum(map(len, batches)), "bytes": sum(batch.n_bytes for batch in batches)}


def _search(part: Corpus, shared: tuple[Sequence[Path], int, int], path: Path) -> dict[str, Any]:
    collected, ngram_words, threads = shared
    found = measured_text(_batches(collected), ngram_words)
    n_bytes = scan(found, part.batches("train", readers=2, in_order=False), threads=threads)
    with replacing(path) as file:
        np.savez(file, marks=found.marks())
    return {"bytes": n_bytes}


_BUFFERS = ("data", "offsets")


def _batches(paths: Sequence[Path]) -> Iterator[Batch]:
    for path in paths:
        arrays = read_arrays(path, REMEDY)
        for i in range(len(arrays) // len(_BUFFERS)):
            yield Batch.from_buffers(*(arrays[f"{i}-{name}"] for name in _BUFFERS))
