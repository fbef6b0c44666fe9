"""The measured documents: size, words, source and script of each. They do not depend on the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.data.survey import survey
from tokenizer.errors import UserError, listed
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

ALL, KIND, SOURCE, SCRIPT = "all", "kind", "source", "script"
"""How documents are grouped. The kind of text is the part of a source's name before a colon: `code: python`."""
MOST_SOURCES = 50
"""Sources that are told apart: the largest ones. All others are one source."""


class Text(NamedTuple):
    """Files to measure, and the source of their documents; None if each document has its own."""

    name: str | None
    corpus: Corpus


class Group(NamedTuple):
    """Documents of the same kind, source or script, or all of them.

    Attributes:
        by: `ALL`, `KIND`, `SOURCE` or `SCRIPT`.
        name: The kind, source or script.
        documents: int64[n], indices of the documents.
    """

    by: str
    name: str
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class Documents:
    """The measured documents, in the order of the texts.

    Attributes:
        n_bytes: int64[n_documents], bytes of UTF-8.
        n_words: int64[n_documents], whitespace-separated words.
        groups: All documents, then kinds (if sources name them), sources and scripts; the largest first.
    """

    n_bytes: NDArray[np.int64]
    n_words: NDArray[np.int64]
    groups: list[Group]

    def __len__(self) -> int:
        return len(self.n_bytes)


def read(texts: Sequence[Text], progress: Progress | None = None, most_sources: int = MOST_SOURCES) -> Documents:
    """Read the documents of all texts.

    Args:
        texts: The texts.
        progress: Called with the bytes read.
        most_sources: Sources to tell apart.

    Raises:
        UserError: If a text has no documents.
    """
    tick, before = Throttle(progress, "bytes read"), 0
    sources: dict[str, int] = {}
    scripts: dict[str, int] = {}
    columns = []
    for text in texts:
        part = survey(text.corpus, "all", done=lambda done: tick(before + done))  # noqa: B023
        if not len(part):
            raise UserError(f"{listed(path for path, _ in text.corpus.files)} contains no text")
        before += int(part.n_bytes.sum())
        names = part.sources if text.name is None else [text.name] * len(part.sources)
        of_source = np.array([sources.setdefault(name, len(sources)) for name in names])
        of_script = np.array([scripts.setdefault(name, len(scripts)) for name in part.scripts])
        columns.append((part.n_bytes, part.n_words, of_source[part.source], of_script[part.script]))
    n_bytes, n_words, source, script = map(np.concatenate, zip(*columns, strict=True))
    everything = Group(ALL, "all text", np.arange(len(n_bytes)))
    kinds: dict[str, int] = {}
    of_source = np.array([kinds.setdefault(name.partition(": ")[0], len(kinds)) for name in sources])
    by_kind = _groups(KIND, list(kinds), of_source[source], n_bytes) if len(kinds) < len(sources) else []
    by_source = _largest(_groups(SOURCE, list(sources), source, n_bytes), most_sources)
    by_script = _groups(SCRIPT, list(scripts), script, n_bytes)
    return Documents(n_bytes, n_words, [everything, *by_kind, *by_source, *by_script])


def _groups(by: str, names: Sequence[str], of_document: NDArray[np.int64], n_bytes: NDArray[np.int64]) -> list[Group]:
    """Documents by name, the largest group first."""
    order = np.argsort(-np.bincount(of_document, n_bytes, len(names)), kind="stable")
    documents = np.argsort(of_document, kind="stable")
    ends = np.cumsum(np.bincount(of_document, minlength=len(names)))
    return [Group(by, names[i], documents[ends[i - 1] if i else 0 : ends[i]]) for i in order.tolist()]


def _largest(groups: list[Group], most: int) -> list[Group]:
    """Join all but the largest groups to one."""
    if len(groups) <= most:
        return groups
    rest = groups[most - 1 :]
    joined = Group(rest[0].by, f"{len(rest)} other sources", np.sort(np.concatenate([each.documents for each in rest])))
    return [*groups[: most - 1], joined]
