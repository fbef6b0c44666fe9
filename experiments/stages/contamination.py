"""Overlap of the held-out documents with the training text, by n-grams of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.numbers import percent, si
from experiments.results import Contamination
from experiments.store.artifacts import Wanted
from tokenizer.durable import replacing
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from tokenizer.corpus.overlap import Overlap

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


def wanted(text: Text, n_words: int) -> Wanted:
    """The artifact of the search for the n-grams of the held-out documents in all training text."""
    config = {"ngram_words": n_words, "version": _VERSION, **text.heldout_identity()}
    return Wanted(Contamination, KIND, config, {"corpus": text.hash})


def save(found: Overlap, n_words: int, text: Text, folder: Path) -> Contamination:
    """Write what was found."""
    with replacing(folder / _ARRAYS) as file:
        np.savez_compressed(file, allow_pickle=False, shared_words=found.shared)
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


def show(context: Context, overlap: Artifact[Contamination]) -> None:
    """Report what was found."""
    totals = overlap.contents
    what = f"{sentence(totals).removesuffix('.')}, of {si(totals.training_bytes)}B"
    context.done(KIND, overlap, what, totals.save())
