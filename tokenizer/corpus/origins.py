"""Where each document of a corpus comes from: its file, or what a field of its record says."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus, Split

UNKNOWN = "unknown"
"""Source of a document whose record does not say."""


def documents_by_origin(corpus: Corpus, split: Split) -> Iterator[tuple[str, str]]:
    """Source and text of every document, in the order of `Corpus.batches(split)`.

    Args:
        corpus: If its configuration names a `source_field`, that decides, shortened by `origin`; else the file.
        split: As for `batches`; with `heldout_paths`, `all` means the corpus and then its held-out files.

    Raises:
        UserError: If a record does not have the field.
    """
    config = corpus.config
    files: list[tuple[Path, str] | None] = [None] if config.dataset else list(corpus.files)
    if config.heldout_paths and split != "train":
        files = [*(files if split == "all" else []), *corpus.heldout_files]
    keep = corpus.filter(split)
    for file in files:
        if config.source_field is None:
            name = str(config.dataset) if file is None else file[0].name
            origins: Iterator[str] = repeat(name)
        else:
            origins = map(origin, _field(corpus, file, config.source_field))
        for batch in corpus.unfiltered(file, config.field):
            taken, more = keep.apply(batch)
            yield from _matched(batch, taken, origins)
            if not more:
                corpus.check_unchanged()
                return


def origin(value: str) -> str:
    """The source that a record's field names: the host of a URL, else what stands before the first slash.

    >>> origin("https://Example.org/a/b"), origin("s3/PutObject"), origin("wiki"), origin("")
    ('example.org', 's3', 'wiki', 'unknown')
    """
    if "://" in value:
        try:
            value = urlsplit(value).hostname or ""
        except ValueError:  # not a URL after all
            value = ""
    return value.partition("/")[0].strip() or UNKNOWN


def _field(corpus: Corpus, file: tuple[Path, str] | None, name: str) -> Iterator[str]:
    if file is not None and file[1] == "txt":
        raise UserError(
            f"corpus.source_field={name}, but {file[0]} is plain text, which has no fields; set it to null to tell "
            "sources by their files"
        )
    try:
        yield from chain.from_iterable(map(_texts, corpus.unfiltered(file, name)))
    except UserError as error:
        raise UserError(f"corpus.source_field={name}: {error}; it may be null, for the name of the file") from None


def _texts(batch: Batch) -> Iterable[str]:
    return (batch.text(i) for i in range(len(batch)))


def _matched(batch: Batch, taken: Batch, origins: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The documents taken out of a batch, with their origins; moves `origins` past the whole batch.

    Which documents are taken is decided by their text, or by a budget that ends the corpus: in order, the first
    document with the text of a taken one is that one.
    """
    wanted = list(_texts(taken))
    sizes, wanted_sizes = (np.diff(each.offsets).tolist() for each in (batch, taken))
    following = 0
    # The size first: at the end of a batch, no origin may be taken that belongs to the next.
    for i, (size, where) in enumerate(zip(sizes, origins, strict=False)):
        if following == len(wanted):
            continue
        # Most documents of a corpus are not held out: their texts are not even looked at.
        if size == wanted_sizes[following] and batch.text(i) == wanted[following]:
            yield where, wanted[following]
            following += 1
    assert following == len(wanted), "a document was taken that is not in its batch"
