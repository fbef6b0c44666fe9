"""Text of any kind as batches of documents: what counting and training accept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

from tokenizer import _native
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.counted import is_counts
from tokenizer.corpus.rows import batch_column, batch_records
from tokenizer.corpus.skipped import Skipped
from tokenizer.documents import not_files
from tokenizer.errors import UserError, listed, quoted
from tokenizer.files import is_remote, shown

Text: TypeAlias = "Corpus | Path | Iterable[Any] | Callable[[], Any]"
"""A text that can be counted:

- a `Corpus`, whose training split is read, or `pathlib.Path` of a file, a folder or a glob, or a list of them;
- strings: a list, a generator or any other iterable, each of whose strings is a document;
- a column: an Arrow array, a pandas or polars Series, a column of a dataset;
- rows with a field that holds the text: a `datasets.Dataset` or `IterableDataset`, an Arrow table, a data frame, or an
  iterable of dictionaries;
- a function without arguments that returns one of these from the start on each call.

Missing and empty strings in columns and rows are not documents. A warning says how many were missing.
"""

_Read: TypeAlias = Callable[[Corpus], Iterator[_native.Batch]]


def batches(text: Any, *, field: str = "text", read: _Read = Corpus.batches) -> Iterator[_native.Batch]:
    """The documents of a text in batches. Iterators are consumed; at most a few batches are in memory.

    Args:
        text: see `Text`.
        field: field (dotted) that holds the text of rows and of records in files.
        read: reads a corpus, or a corpus of the named files.

    Raises:
        UserError: the text is not of a kind that can be read.
    """
    if not isinstance(field, str):
        raise UserError(f"field={quoted(field)} is not the name of a field")
    config, skipped = CorpusConfig(field=field), Skipped()
    if isinstance(text, Corpus):
        return read(text)
    if isinstance(text, os.PathLike):
        return read(Corpus(replace(config, paths=[str(text)])))
    if isinstance(text, _native.Batch):
        return iter([text])
    if isinstance(text, str):
        file = "Corpus(CorpusConfig(paths=[URL]))" if is_remote(text) else f"pathlib.Path({quoted(text)})"
        raise UserError(
            f"the text {quoted(shown(text))} is one string: write {file} to read the file of this name, or put the "
            "string in a list to train on itself"
        )
    if isinstance(text, Mapping):
        if is_counts(text):
            raise UserError("the text is counts, which phase 1 alone can be trained on: pass the text itself")
        raise UserError(
            f"the text is a {type(text).__name__}: pass one of its entries ({listed(text)}), or for phase 1 the "
            "number of times that each text occurs"
        )
    if _is_arrow(text) and not isinstance(text, Iterator):
        return _not_empty(batch_column(text, config, skipped), skipped)
    if callable(text) and not hasattr(text, "encode_batch"):
        return batches(text(), field=field, read=read)
    if isinstance(text, bytes | bytearray) or not isinstance(text, Iterable):
        raise UserError(
            f"the text is {type(text).__name__}, not text: pass a list or an iterator of strings, a column "
            "(table['text'], df['text']), a datasets.Dataset, a Corpus, or pathlib.Path of a file"
        )
    root = field.split(".")[0]
    table = cast(Any, text)
    if root in (getattr(table, "column_names", None) or ()):
        table = table.select_columns([root])  # the other columns of a dataset are not decoded
    rows = not_files(table, "write [pathlib.Path(name) for name in names] to read the files")
    first = next(rows, None)
    rows = chain(() if first is None else (first,), rows)
    if isinstance(first, _native.Batch):
        return map(_checked, rows)
    if isinstance(first, os.PathLike):
        return read(Corpus(replace(config, paths=[str(path) for path in rows])))
    if _is_arrow(first):
        parts = (batch_column(part, config, skipped, f"part {i}: ") for i, part in enumerate(rows))
        return _not_empty(chain.from_iterable(parts), skipped)
    return _not_empty(batch_records(rows, config, skipped), skipped)


def _is_arrow(text: object) -> bool:
    """Whether a column or a table can be exported to Arrow (its PyCapsule interface), as in pandas and polars."""
    return hasattr(text, "__arrow_c_array__") or hasattr(text, "__arrow_c_stream__")


def _not_empty(batches: Iterator[_native.Batch], skipped: Skipped) -> Iterator[_native.Batch]:
    keep = _native.DocumentFilter()
    try:
        for batch in batches:
            taken, _ = keep.apply(batch)
            if len(taken):
                yield taken
    finally:
        skipped.report()


def _checked(batch: object) -> _native.Batch:
    if not isinstance(batch, _native.Batch):
        raise UserError(f"the text contains {type(batch).__name__} after a Batch; pass batches only")
    return batch
