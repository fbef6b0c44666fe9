"""Size, words, source and script of each document of a corpus. They do not depend on a tokenizer."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from lm.data.scripts import script
from tokenizer.corpus.origins import documents_by_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from tokenizer.corpus.corpus import Corpus, Split


@dataclass(frozen=True)
class Survey:
    """The documents of a corpus, in its order.

    Attributes:
        sources: Names of the sources, in order of first appearance.
        scripts: Names of the scripts, in order of first appearance.
        n_bytes: int64[n_documents], bytes of UTF-8.
        n_words: int64[n_documents], whitespace-separated words.
        source: int32[n_documents], index into `sources`.
        script: int32[n_documents], index into `scripts`.
        hashes: uint64[n_documents], `Batch.hashes`: equal for equal texts.
    """

    sources: list[str]
    scripts: list[str]
    n_bytes: NDArray[np.int64]
    n_words: NDArray[np.int64]
    source: NDArray[np.int32]
    script: NDArray[np.int32]
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.n_bytes)


def survey(
    corpus: Corpus,
    split: Split,
    *,
    done: Callable[[int], object] = lambda _: None,
    take: Callable[[str], object] = lambda _: None,
    **origins: Any,
) -> Survey:
    """Read the documents of a corpus, or of one of its parts.

    Args:
        corpus: The corpus.
        split: The documents to read, as for `documents_by_origin`.
        done: Called after each document, with the bytes read.
        take: Called with each document.
        origins: Further arguments of `documents_by_origin`.

    Raises:
        UserError: A record does not have the field that names its source.
    """
    sizes, words, source, writing = array("q"), array("q"), array("i"), array("i")
    hashes = array("Q")
    n_bytes = 0
    sources: dict[str, int] = {}
    scripts: dict[str, int] = {}
    for origin, document in documents_by_origin(corpus, split, **origins):
        data = document.encode()
        sizes.append(len(data))
        words.append(len(document.split()))
        source.append(sources.setdefault(origin, len(sources)))
        writing.append(scripts.setdefault(script(document), len(scripts)))
        hashes.append(xxhash.xxh3_64_intdigest(data))
        take(document)
        n_bytes += len(data)
        done(n_bytes)
    columns = map(np.array, (sizes, words, source, writing, hashes))
    return Survey(list(sources), list(scripts), *columns)


def joined(surveys: Iterable[Survey]) -> Survey:
    """The survey of a corpus, given the surveys of its parts, of which there is at least one."""
    sources: dict[str, int] = {}
    scripts: dict[str, int] = {}
    columns: list[tuple[NDArray[Any], ...]] = []
    for part in surveys:
        source, writing = _places(part.sources, sources), _places(part.scripts, scripts)
        columns.append((part.n_bytes, part.n_words, source[part.source], writing[part.script], part.hashes))
    return Survey(list(sources), list(scripts), *map(np.concatenate, zip(*columns, strict=True)))


def _places(names: Iterable[str], among: dict[str, int]) -> NDArray[np.int32]:
    """Index of each name among all names, to which new ones are added."""
    return np.array([among.setdefault(name, len(among)) for name in names], np.int32)
