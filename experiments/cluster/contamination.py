"""Look for held-out text in training text by tasks: each searches a part of the corpus."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cluster.tasks import Task
from tokenizer._native import Batch
from tokenizer.corpus.overlap import Overlap, measured_text, scan
from tokenizer.durable import replacing
from tokenizer.files import read_arrays
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Cluster
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

_REMEDY = "delete it and the .json file of the same name, then run the same command again"


def find_overlap(
    cluster: Cluster, corpus: Corpus, folder: Path, ngram_words: int, progress: Progress | None = None
) -> Overlap:
    """Look for the held-out documents of a corpus in its training documents.

    Args:
        cluster: where the tasks run.
        corpus: the corpus.
        folder: folder for the results of the parts, which all machines see: the held-out documents, and for each part
            a bit per n-gram of them.
        ngram_words: words of an n-gram; 0 to compare whole documents only.
        progress: called with the bytes of files searched.

    Returns:
        What `tokenizer.corpus.overlap.find_overlap` returns.

    Raises:
        UserError: there are no held-out documents, or no training documents.
    """
    tasks = [
        Task(f"heldout-{i:05}", part.part_identity(), partial(_collect, part))
        for i, part in enumerate(corpus.parts("heldout", cluster.part_bytes))
    ]
    heldout = [result.data for result in cluster.run(tasks, None, folder) if result.value["documents"]]
    tick = Throttle(progress, "bytes of files searched")
    tasks = [
        Task(f"overlap-{i:05}", [ngram_words, part.part_identity()], partial(_search, part), part.stored_bytes)
        for i, part in enumerate(corpus.parts("train", cluster.part_bytes))
    ]
    found, n_bytes = measured_text(_batches(heldout), ngram_words), 0
    for result in cluster.run(tasks, (heldout, ngram_words, cluster.threads), folder, tick):
        n_bytes += result.value["bytes"]
        found.mark(read_arrays(result.data, _REMEDY)["marks"])
    corpus.check_unchanged()
    if not heldout or not n_bytes:
        for _ in corpus.batches("train" if heldout else "heldout"):  # explains why there are no documents
            pass
    return Overlap(*found.found(), n_bytes)


def _collect(part: Corpus, _: None, path: Path) -> dict[str, Any]:
    """Write the held-out documents of a part."""
    batches = list(part.batches("heldout"))
    with replacing(path) as file:
        np.savez(file, **{f"{i}-{name}": getattr(batch, name) for i, batch in enumerate(batches) for name in _BUFFERS})
    return {"documents": sum(map(len, batches))}


def _search(part: Corpus, shared: tuple[Sequence[Path], int, int], path: Path) -> dict[str, Any]:
    heldout, ngram_words, threads = shared
    found = measured_text(_batches(heldout), ngram_words)
    n_bytes = scan(found, part.batches("train", readers=2, in_order=False), threads=threads)
    with replacing(path) as file:
        np.savez(file, marks=found.marks())
    return {"bytes": n_bytes}


_BUFFERS = ("data", "offsets")


def _batches(paths: Sequence[Path]) -> Iterator[Batch]:
    for path in paths:
        arrays = read_arrays(path, _REMEDY)
        for i in range(len(arrays) // len(_BUFFERS)):
            yield Batch.from_buffers(*(arrays[f"{i}-{name}"] for name in _BUFFERS))
