"""One or several weighted sources of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizer.corpus.config import MAX_WEIGHT
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError


@dataclass(frozen=True)
class Source:
    """Text of one kind, for a mixture.

    Attributes:
        batches: the text: a corpus, strings, a column, rows, files, or a function that returns one of these from the
            start on each call; see `tokenizer.corpus.texts.Text`. An iterator is read into memory.
        weight: number of times each document counts, 1 to `MAX_WEIGHT`.
        name: name of the source in messages.
    """

    batches: Any
    weight: int = 1
    name: str = "the corpus"

    def __post_init__(self) -> None:
        """Reject a weight that would otherwise be an error in the middle of a pass.

        Raises:
            UserError: the weight is out of range.
        """
        if self.weight != int(self.weight) or not 1 <= self.weight <= MAX_WEIGHT:
            raise UserError(f"{self.name} has the weight {self.weight}; use a whole number from 1 to {MAX_WEIGHT}")


def sources_of(text: Any) -> Sequence[Source]:
    """The sources of a text of any kind, of a `Source`, a list of these, or a corpus that has sources."""
    if isinstance(text, Source):
        return [text]
    if isinstance(text, Corpus) and text.config.sources and not text.is_part:
        return [Source(part, weight, f"the source {name}") for name, part, weight in text.by_source()]
    if not isinstance(text, list | tuple) or not (text and (isinstance(text[0], Source | Corpus) or callable(text[0]))):
        return [Source(text)]
    for source in text:
        if not isinstance(source, Source):
            raise UserError(f"a list of texts must contain sources: write Source(...) around {source!r:.80}")
    return text
