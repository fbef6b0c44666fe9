"""Overlap of the held-out documents with the training text, by n-grams of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.cli.console import percent, si
from experiments.cluster import connect, contamination
from experiments.results import Contamination
from tokenizer.corpus.overlap import find_overlap
from tokenizer.durable import replacing

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.overlap import Overlap

KIND = "contamination"
_ARRAYS = "contamination.npz"
# Increased when the rules for words or n-grams change.
_VERSION = 1


@dataclass(frozen=True)
class HeldoutOverlap:
    """Overlap of the held-out documents with the training text.

    Attributes:
        hash: Hash of the artifact.
        contents: Totals.
        clean: bool[n_documents], whether a document shares no n-gram with the training text.
    """

    hash: str
    contents: Contamination
    clean: NDArray[np.bool_]

    @classmethod
    def load(cls, artifact: Artifact[Contamination]) -> HeldoutOverlap:
        """Load the result of `measure`."""
        with np.load(artifact.path / _ARRAYS, allow_pickle=False) as file:
            return cls(artifact.hash, artifact.contents, file["shared_words"] == 0)

    def sentence(self) -> str:
        """The totals as a sentence."""
        found = self.contents
        return (
            f"{percent(found.shared_words / max(found.n_words, 1))} of the held-out words, in "
            f"{found.n_documents - found.clean_documents:,} of {found.n_documents:,} documents, occur in the training "
            f"text in sequences of {found.ngram_words} words or more, or as whole documents."
        )


def measure(context: Context, text: Text) -> HeldoutOverlap | None:
    """Look for the n-grams of the held-out documents in all training text; None if `eval.contamination` is off."""
    n_words = context.config.eval.contamination
    if not n_words:
        return None
    runner, corpus, progress = context.config.runner, text.corpus, context.reporter.progress
    cluster = connect(runner)

    def find(folder: Path) -> Overlap:
        if cluster is not None:
            with cluster.results(folder) as parts:
                return contamination.find_overlap(cluster, [corpus], "heldout", [corpus], parts, n_words, progress)
        training = corpus.batches("train", readers=2, in_order=False)
        return find_overlap(corpus.batches("heldout"), training, n_words, threads=runner.threads, progress=progress)

    def build(folder: Path) -> Contamination:
        found = find(folder)
        with replacing(folder / _ARRAYS) as file:
            np.savez_compressed(file, allow_pickle=False, words=found.words, shared_words=found.shared)
        return Contamination(
            corpus=text.hash,
            ngram_words=n_words,
            n_documents=len(found.words),
            clean_documents=int((found.shared == 0).sum()),
            whole_documents=int(found.whole.sum()),
            n_words=int(found.words.sum()),
            shared_words=int(found.shared.sum()),
            training_bytes=found.training_bytes,
        )

    with context.reporter.stage(KIND):
        artifact = context.store.make(
            Contamination,
            KIND,
            config={"ngram_words": n_words, "version": _VERSION, **text.heldout_identity()},
            inputs={"corpus": text.hash},
            build=build,
            resumable=cluster is not None,
        )
    overlap = HeldoutOverlap.load(artifact)
    what = f"{overlap.sentence().removesuffix('.')}, of {si(artifact.contents.training_bytes)}B"
    context.done(KIND, artifact, what, artifact.contents.save())
    return overlap
