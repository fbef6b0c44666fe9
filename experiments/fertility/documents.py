"""The measured documents: size, words, source and script of each. They do not depend on the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenizer.errors import UserError, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lm.data.survey import Survey
    from tokenizer.corpus.corpus import Corpus

ALL, SOURCE, SCRIPT = "all", "source", "script"
"""How documents are grouped."""


class Text(NamedTuple):
    """Files to measure, and the source of their documents; None if each document has its own."""

    name: str | None
    corpus: Corpus


class Group(NamedTuple):
    """Documents with the same source or script, or all of them.

    Attributes:
        by: `ALL`, `SOURCE` or `SCRIPT`.
        name: The source or script.
        documents: int64[n], indices of the documents.
        cells: bool[n_cells], the cells that the group consists of (see `Documents`).
    """

    by: str
    name: str
    documents: NDArray[np.int64]
    cells: NDArray[np.bool_]


@dataclass(frozen=True)
class Documents:
    """The measured documents, in the order of the texts.

    A cell is a pair of source and script. Tokens are counted by cell, and every group is a union of cells.

    Attributes:
        n_bytes: int64[n_documents], bytes of UTF-8.
        n_words: int64[n_documents], whitespace-separated words.
        cell: int64[n_documents], index into `cells`.
        cells: Source and script of each cell.
    """

    n_bytes: NDArray[np.int64]
    n_words: NDArray[np.int64]
    cell: NDArray[np.int64]
    cells: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return len(self.n_bytes)

    @cached_property
    def groups(self) -> list[Group]:
        """All documents, then sources, then scripts; the largest first."""
        found = [Group(ALL, "all text", np.arange(len(self)), np.ones(len(self.cells), np.bool_))]
        for by, part in ((SOURCE, 0), (SCRIPT, 1)):
            rows = []
            for name in dict.fromkeys(cell[part] for cell in self.cells):
                cells = np.array([cell[part] == name for cell in self.cells])
                rows.append(Group(by, name, np.flatnonzero(cells[self.cell]), cells))
            found += sorted(rows, key=lambda group: -int(self.n_bytes[group.documents].sum()))
        return found

    def part(self, start: int, stop: int) -> tuple[Documents, NDArray[np.int64]]:
        """Some of the documents with only their cells, and the indices of these cells."""
        at = slice(start, stop)
        present, cell = np.unique(self.cell[at], return_inverse=True)
        cells = tuple(self.cells[i] for i in present.tolist())
        return Documents(self.n_bytes[at], self.n_words[at], cell, cells), present


def documents_of(surveyed: Iterable[tuple[Text, Sequence[Survey]]], most_sources: int) -> Documents:
    """The documents of all texts.

    Args:
        surveyed: Each text with the surveys of its parts, in order.
        most_sources: The largest sources are kept apart; all others are one source.

    Raises:
        UserError: If a text has no documents.
    """
    cells: dict[tuple[str, str], int] = {}
    found = []
    for text, parts in surveyed:
        if not any(map(len, parts)):
            raise UserError(f"{listed(path for path, _ in text.corpus.files)} contains no text")
        found += [(part.n_bytes, part.n_words, _cells(text.name, part, cells)) for part in parts]
    n_bytes, n_words, cell = map(np.concatenate, zip(*found, strict=True))
    return _largest(Documents(n_bytes, n_words, cell, tuple(cells)), most_sources)


def _cells(name: str | None, part: Survey, cells: dict[tuple[str, str], int]) -> NDArray[np.int64]:
    """Cell of each document of a part; new ones are added in the order of their first document."""
    pairs = part.source.astype(np.int64) * len(part.scripts) + part.script
    distinct, first, of_document = np.unique(pairs, return_index=True, return_inverse=True)
    places = np.empty(len(distinct), np.int64)
    for i in np.argsort(first).tolist():
        source, script = divmod(int(distinct[i]), len(part.scripts))
        places[i] = cells.setdefault((name or part.sources[source], part.scripts[script]), len(cells))
    return places[of_document]


def _largest(documents: Documents, most_sources: int) -> Documents:
    """Join all but the largest sources to one."""
    numbers: dict[str, int] = {}
    source = np.array([numbers.setdefault(name, len(numbers)) for name, _ in documents.cells])
    if len(numbers) <= most_sources:
        return documents
    n_bytes = np.bincount(source[documents.cell], documents.n_bytes)
    sources = list(numbers)
    kept = {sources[i] for i in np.argsort(-n_bytes, kind="stable")[: most_sources - 1]}
    rest = f"{len(sources) - len(kept)} other sources"
    renamed = [(source if source in kept else rest, script) for source, script in documents.cells]
    cells = {each: i for i, each in enumerate(dict.fromkeys(renamed))}
    place = np.array([cells[each] for each in renamed])
    return Documents(documents.n_bytes, documents.n_words, place[documents.cell], tuple(cells))
