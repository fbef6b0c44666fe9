"""Source of each document of a corpus: its file, or the value of a field of its record."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.corpus.remote import File

UNKNOWN = "unknown"
"""Source of a document whose record names none."""


def documents_by_origin(corpus: Corpus, split: Split) -> Iterator[tuple[str, str]]:
    """Source and text of every document, in the order of `Corpus.batches(split)`.

    Args:
        corpus: the corpus. The source is its `source_field`, shortened by `origin`, or else the name of the file, or of
            its part of `sources`.
        split: see `Corpus.batches` and `Corpus.files_of`.

    Raises:
        UserError: a record does not have the field.
    """
    config, keep = corpus.config, corpus.filter(split)
    try:
        for file in corpus.files_of(split):
            if config.source_field is None:
                name = str(config.dataset) if file is None else corpus.source(file[0])
                origins: Iterator[str] = repeat(name)
            else:
                origins = map(origin, _field(corpus, file, config.source_field))
            for batch in corpus.unfiltered(file, config.field):
                taken, more = keep.apply(batch)
                yield from _matched(batch, taken, origins)
                if not more:
                    corpus.check_unchanged()
                    return
    finally:
        corpus.report_skipped()


def origin(value: str) -> str:
    """The source that a field's value names: the host of a URL, otherwise the part before the first slash.

    >>> origin("https://Example.org/a/b"), origin("s3/PutObject"), origin("wiki"), origin("")
    ('example.org', 's3', 'wiki', 'unknown')
    """
    if "://" in value:
        try:
            value = urlsplit(value).hostname or ""
        except ValueError:  # not a URL after all
            value = ""
    return value.partition("/")[0].strip() or UNKNOWN


def _field(corpus: Corpus, file: tuple[File, str] | None, name: str) -> Iterator[str]:
    if file is not None and file[1] == "txt":
        raise UserError(
            f"source_field={name}, but {file[0]} is plain text, which has no fields; set it to null to use the "
            "file name as the source"
        )
    try:
        for batch in corpus.unfiltered(file, name):
            yield from map(batch.text, range(len(batch)))
    except UserError as error:
        raise UserError(f"source_field={name}: {error}; set it to null to use the file name") from None


def _matched(batch: Batch, taken: Batch, origins: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The documents kept from a batch, with their origins; advances `origins` past the whole batch.

    The filter decides by text, or by a budget that ends the corpus. So, in order, the first document with the text of a
    kept document is that document.
    """
    wanted = deque(zip(np.diff(taken.offsets).tolist(), map(taken.text, range(len(taken))), strict=True))
    # The origins come last in zip: at the end of a batch, none of the next batch is consumed.
    for i, (size, where) in enumerate(zip(np.diff(batch.offsets).tolist(), origins, strict=False)):
        # Compare sizes first: most documents are not held out, and their texts need not be decoded.
        if wanted and size == wanted[0][0] and batch.text(i) == wanted[0][1]:
            yield where, wanted.popleft()[1]
