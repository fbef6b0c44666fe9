"""Overlap of measured text with training text: documents that occur in it, and n-grams of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokenizer._native import TextOverlap
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress


class Overlap(NamedTuple):
    """Parts of each measured document that occur in the training text.

    Attributes:
        words: int64[n_documents], words of each document.
        shared: int64[n_documents], words inside an n-gram that occurs in the training text; all words of a document
            that occurs there.
        whole: bool[n_documents], whether the document is a document of the training text.
        training_bytes: Bytes of the training text.
    """

    words: NDArray[np.int64]
    shared: NDArray[np.int64]
    whole: NDArray[np.bool_]
    training_bytes: int


class Search(NamedTuple):
    """Documents to look for in training text.

    Attributes:
        documents: The held-out documents of this corpus.
        ngram_words: Words of an n-gram; 0 to compare whole documents only.
    """

    documents: Corpus
    ngram_words: int

    def opened(self) -> TextOverlap:
        """Read the documents."""
        return measured_text(self.documents.batches("heldout"), self.ngram_words)


def measured_text(measured: Iterable[Batch], ngram_words: int = 0) -> TextOverlap:
    """The measured documents, ready for `find_overlap`.

    Args:
        measured: The measured documents.
        ngram_words: Words of an n-gram; 0 to compare whole documents only.
    """
    text = TextOverlap(ngram_words)
    for batch in measured:
        text.add(batch)
    return text


def find_overlap(
    measured: TextOverlap, training: Iterable[Batch], *, threads: int | None = None, progress: Progress | None = None
) -> Overlap:
    """Look for measured documents and their n-grams in training text, which is read once.

    A word is a run of letters and digits in lower case; what is between words is ignored. In scripts that do not
    separate words (Han, kana, Thai, Lao, Khmer, Burmese), every letter is a word. Hashes of 64 bits are compared.
    Memory is about five times the size of the measured text, whatever the size of the training text.

    Args:
        measured: Result of `measured_text`.
        training: The training documents.
        threads: Threads that scan; None for all cores.
        progress: Called with ("bytes of training text", bytes scanned, None).
    """
    n_threads = thread_count(threads)
    tick = Throttle(progress, "bytes of training text")
    done = 0
    for batch in training:
        measured.scan(batch, n_threads)
        done += batch.n_bytes
        tick(done)
    return Overlap(*measured.found(), done)
