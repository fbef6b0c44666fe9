"""The measured documents: size, words, source and script of each. They do not depend on the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.cli.arguments import named, open_text
from lm.data.survey import survey
from tokenizer.errors import UserError, listed
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokenizer.corpus.corpus import Corpus
    from tokenizer.progress import Progress

ALL, KIND, SOURCE, SCRIPT = "all", "kind", "source", "script"
"""How documents are grouped. The kind of text is the part of a source's name before a colon: `code: python`."""
MOST_SOURCES = 50
"""Sources that are told apart: the largest ones."""


class Group(NamedTuple):
    """Indices of the documents of a kind, source or script, or of all, int64[n]; `by` says which, `name` its name."""

    by: str
    name: str
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class Documents:
    """The measured documents, in the order of the text.

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


def text_of(arguments: argparse.Namespace, entries: Sequence[str], **settings: Any) -> Corpus:
    """The text of entries PATH or NAME=PATH, of which NAME is the source.

    Args:
        arguments: Those of `add_text_settings`, and `source_field`.
        entries: The entries.
        settings: Further settings of `CorpusConfig`.

    Raises:
        UserError: Two texts have the same name, or a path names no text.
    """
    sources: dict[str, str] = {}
    for name, path in map(named, entries):
        if sources.setdefault(name or Path(path).name, path) != path and name:
            raise UserError(f"two texts are called {name!r}; write another NAME={path}")
    settings["source_field"] = arguments.source_field
    if not any(name for name, _ in map(named, entries)):
        return open_text(arguments, entries, **settings)
    return open_text(arguments, [], sources=sources, **settings)


def read(text: Corpus, progress: Progress | None = None, most_sources: int = MOST_SOURCES) -> Documents:
    """Read the documents of a text.

    Args:
        text: The text.
        progress: Called with the bytes read.
        most_sources: Sources to tell apart.

    Raises:
        UserError: If the text has no documents.
    """
    found = survey(text, "all", done=Throttle(progress, "bytes read"))
    if not len(found):
        raise UserError(f"{listed(path for path, _ in text.files)} contains no text")
    kinds = list(dict.fromkeys(name.partition(": ")[0] for name in found.sources))
    kind = np.array([kinds.index(name.partition(": ")[0]) for name in found.sources])[found.source]

    def groups(by: str, names: Sequence[str], of_document: NDArray[np.integer[Any]]) -> list[Group]:
        order = np.argsort(-np.bincount(of_document, found.n_bytes, len(names)), kind="stable")
        return [Group(by, names[i], np.flatnonzero(of_document == i)) for i in order[:most_sources].tolist()]

    every = [Group(ALL, "all text", np.arange(len(found)))]
    every += groups(KIND, kinds, kind) if len(kinds) < len(found.sources) else []
    every += groups(SOURCE, found.sources, found.source) + groups(SCRIPT, found.scripts, found.script)
    return Documents(found.n_bytes, found.n_words, every)
