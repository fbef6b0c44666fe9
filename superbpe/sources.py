"""The text of phase 2: one or several weighted sources, optionally sampled.

Training reads the text several times, so a text that can be read only once is read into memory first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tokenizer import _native
from tokenizer.corpus import texts
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.seen import Recorder
from tokenizer.corpus.texts import Text
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

MOST_BYTES = 1 << 32
"""Limit of the text of an iterator."""
MAX_WEIGHT = _native.SuperwordTrainer.MAX_WEIGHT


@dataclass(frozen=True)
class Source:
    """Text of one kind, for a mixture.

    Attributes:
        batches: the text: a corpus, strings, a column, rows, files, or a function that returns one of these from the
            start on each call; see `tokenizer.corpus.texts.Text`. An iterator is read into memory.
        weight: number of times each document counts, 1 to `MAX_WEIGHT`.
        name: name of the source in messages.
    """

    batches: Text
    weight: int = 1
    name: str = "the corpus"

    def __post_init__(self) -> None:
        """Reject a weight that would otherwise be an error in the middle of a pass.

        Raises:
            UserError: the weight is out of range.
        """
        if self.weight != int(self.weight) or not 1 <= self.weight <= MAX_WEIGHT:
            raise UserError(f"{self.name} has the weight {self.weight}; use a whole number from 1 to {MAX_WEIGHT}")


def check_not_empty(n_bytes: Mapping[str, int]) -> None:
    """Reject sources without text: a missing language could otherwise go unnoticed.

    Args:
        n_bytes: bytes of text by the names of the sources.

    Raises:
        UserError: a source is empty.
    """
    for name, n in n_bytes.items():
        if n == 0:
            raise UserError(
                f"{name} is empty, and superwords cannot be trained without text (sampling may have dropped all of its "
                "documents: raise the rules' sample or choose another sample_salt; a function must return the text "
                "from the start on each call)"
            )


@dataclass(frozen=True)
class Selection:
    """The documents that the passes read.

    Attributes:
        normalizer: the tokenizer that normalizes the text, because superwords consist of normalized text; None if
            there is nothing to normalize.
        share: fraction of the documents of each source, chosen by a hash of their text.
        salt: changes which documents are chosen.
    """

    normalizer: Tokenizer | None = None
    share: float = 1.0
    salt: str = ""

    def of(self, sources: Sequence[Source]) -> Sequence[Source]:
        """The sources with the selected documents."""
        if self.normalizer is None and self.share >= 1.0:
            return sources
        return [replace(source, batches=partial(self._batches, source.batches)) for source in sources]

    def _batches(self, text: Text) -> Iterator[_native.Batch]:
        keep = _native.DocumentFilter(sample_fraction=self.share, sample_salt=self.salt)
        for batch in texts.batches(text):
            normalized = batch if self.normalizer is None else self.normalizer.normalized(batch)
            yield normalized if self.share >= 1.0 else keep.apply(normalized)[0]


def opened(text: Text | Source | Sequence[Source], recorder: Recorder, *, field: str = "text") -> Sequence[Source]:
    """The sources for `train_superbpe`, whose `batches` are functions that return batches from the start on each call.

    Args:
        text: one text, or sources.
        recorder: records what is read.
        field: field that holds the text of rows and of records in files.
    """
    return [replace(source, batches=_rereadable(source.batches, recorder, field)) for source in sources_of(text)]


def _rereadable(text: Text, recorder: Recorder, field: str) -> Callable[[], Iterator[_native.Batch]]:
    """A function that returns the batches of a text from the start on each call. An iterator is read into memory."""
    if not isinstance(text, Iterator):
        return partial(recorder.batches, text, field=field)
    batches, n_bytes = [], 0
    for batch in recorder.batches(text, field=field):
        batches.append(batch)
        n_bytes += batch.n_bytes
        if n_bytes > MOST_BYTES:
            raise UserError(
                f"the text is an iterator, which is kept in memory, and has more than {MOST_BYTES >> 30} GiB: pass a "
                "function that returns it from the start on each call, or a Corpus of files"
            )
    return partial(texts.batches, batches)


def sources_of(text: Text | Source | Sequence[Source]) -> Sequence[Source]:
    """The sources for `train_superbpe`; a single source may be a text or a `Source`."""
    if isinstance(text, Source):
        return [text]
    if not isinstance(text, list | tuple):
        return [Source(text)]
    if not text:
        raise UserError("no sources given: name at least one text to train superwords on")
    if not (isinstance(text[0], Source | Corpus) or callable(text[0])):
        return [Source(text)]
    for source in text:
        if not isinstance(source, Source):
            raise UserError(f"a list of texts must contain sources: write Source(...) around {source!r:.80}")
    return text
