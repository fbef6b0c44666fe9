"""Overlap of the held-out documents with the training text, by n-grams of words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from experiments.cluster.tasks import as_progress
from experiments.numbers import percent, si
from experiments.results import Contamination
from experiments.stages import heldout
from tokenizer.corpus.overlap import Overlap, find_overlap, measured_text
from tokenizer.durable import replacing
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.cluster.tasks import Beat, Blocks, Cluster
    from experiments.results import HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

KIND = "contamination"
_ARRAYS = "contamination.npz"
# Increased when the rules for words or n-grams change.
_VERSION = 1


def clean_documents(artifact: Artifact[Contamination]) -> NDArray[np.bool_]:
    """bool[n_documents], whether a held-out document shares no n-gram with the training text."""
    arrays = read_arrays(artifact.path / _ARRAYS, "delete its folder and run again")
    clean: NDArray[np.bool_] = arrays["shared_words"] == 0
    return clean


def sentence(totals: Contamination) -> str:
    """Describe how much held-out text occurs in the training text."""
    return (
        f"{percent(totals.shared_words / max(totals.n_words, 1))} of the held-out words, in "
        f"{totals.n_documents - totals.clean_documents:,} of {totals.n_documents:,} documents, occur in the training "
        f"text in sequences of {totals.ngram_words} words or more, or as whole documents."
    )


def measure(
    context: Context, text: Text, n_words: int | None, documents: Artifact[HeldoutDocuments]
) -> Artifact[Contamination] | None:
    """Look for the n-grams of the held-out documents in all training text.

    Args:
        context: Context of the run.
        text: The corpus.
        n_words: Words of an n-gram (`eval.contamination`); None or 0 for no measurement.
        documents: The held-out documents.
    """
    if not n_words:
        return None
    corpus, cluster, progress = text.corpus, context.cluster, context.reporter.progress

    def find(folder: Path) -> Overlap:
        if cluster is not None:
            with cluster.results(folder / "parts") as results:
                return search(cluster, corpus, heldout.reread(documents), results, n_words, progress)
        training = corpus.batches("train", readers=2, in_order=False)
        threads = context.runner.threads
        measured = measured_text(heldout.reread(documents).batches("heldout"), n_words)
        return find_overlap(measured, training, threads=threads, progress=progress)

    def build(folder: Path) -> Contamination:
        overlap = find(folder)
        with replacing(folder / _ARRAYS) as file:
            np.savez_compressed(file, allow_pickle=False, shared_words=overlap.shared)
        return Contamination(
            corpus=text.hash,
            ngram_words=n_words,
            n_documents=len(overlap.words),
            clean_documents=int((overlap.shared == 0).sum()),
            whole_documents=int(overlap.whole.sum()),
            n_words=int(overlap.words.sum()),
            shared_words=int(overlap.shared.sum()),
            training_bytes=overlap.training_bytes,
        )

    return context.make(
        KIND,
        Contamination,
        KIND,
        config={"ngram_words": n_words, "version": _VERSION, **text.heldout_identity()},
        inputs={"corpus": text.hash},
        build=build,
        describe=lambda totals: f"{sentence(totals).removesuffix('.')}, of {si(totals.training_bytes)}B",
        row=Contamination.save,
        resumable=cluster is not None,
    )


def search(
    cluster: Cluster, corpus: Corpus, measured: Corpus, folder: Path, n_words: int, progress: Progress | None = None
) -> Overlap:
    """Look for held-out documents in the training documents of a corpus, as `find_overlap` does, by tasks.

    Args:
        cluster: Where the tasks run.
        corpus: The corpus.
        measured: Its held-out documents, which all machines see.
        folder: Folder for results, which all machines see.
        n_words: Words of an n-gram; 0 to compare whole documents only.
        progress: Called with the bytes of files read.
    """
    overlap, n_bytes = measured_text(measured.batches("heldout"), n_words), 0
    # Each task reads all measured text, so it searches at least as much.
    size = max(measured.stored_bytes, cluster.part_bytes)
    work = partial(_search, measured, n_words, cluster.threads)
    for result in cluster.map_parts("overlap", work, corpus, "train", folder, progress, part_bytes=size):
        overlap.mark(next(result.blocks())["marks"])
        n_bytes += result.value["n_bytes"]
    return Overlap(*overlap.found(), n_bytes)


def _search(measured: Corpus, n_words: int, threads: int, part: Corpus, beat: Beat) -> Blocks:
    overlap = measured_text(measured.batches("heldout"), n_words)
    batches = part.batches("train", readers=2, in_order=False)
    n_bytes = find_overlap(overlap, batches, threads=threads, progress=as_progress(beat)).training_bytes
    yield {"marks": np.asarray(overlap.marks())}
    return {"n_bytes": n_bytes, "skipped": part.skipped.so_far()}
