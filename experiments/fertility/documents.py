"""The measured documents: size, words, source and script of each. They do not depend on the tokenizer."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.data.scripts import script
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.errors import UserError, listed
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

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
    """The measured documents, in the order of `batches`.

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


def survey(texts: Sequence[Text], most_sources: int, progress: Progress | None = None) -> Documents:
    """Read the documents.

    Args:
        texts: The files.
        most_sources: The largest sources are kept apart; all others are one source.
        progress: Called with the number of bytes read.

    Raises:
        UserError: If a text has no documents.
    """
    sizes, words, cell = array("q"), array("q"), array("q")
    cells: dict[tuple[str, str], int] = {}
    tick, done = Throttle(progress, "bytes read"), 0
    for text in texts:
        before = len(sizes)
        for origin, document in documents_by_origin(text.corpus, "all"):
            data = document.encode()
            sizes.append(len(data))
            words.append(len(document.split()))
            cell.append(cells.setdefault((text.name or origin, script(document)), len(cells)))
            done += len(data)
            tick(done)
        if len(sizes) == before:
            raise UserError(f"{listed(path for path, _ in text.corpus.files)} contains no text")
    found = Documents(np.array(sizes), np.array(words), np.array(cell), tuple(cells))
    return _largest(found, most_sources)


def batches(texts: Sequence[Text]) -> Iterator[Batch]:
    """The documents in batches, in the order of `survey`."""
    for text in texts:
        yield from text.corpus.batches("all")


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
