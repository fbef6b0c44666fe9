"""The text of phase 2, optionally sampled.

Training reads the text several times, so a text that can be read only once is read into memory first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tokenizer import _native
from tokenizer.corpus import texts
from tokenizer.corpus.seen import Recorder
from tokenizer.corpus.sources import Source, sources_of
from tokenizer.corpus.texts import Text
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

MOST_BYTES = 1 << 32
"""Limit of the text of an iterator."""


def check_not_empty(n_bytes: Mapping[str, int]) -> None:
    """Reject sources without text: a missing language could otherwise go unnoticed.

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
