"""Texts with the number of times that each occurs: a mapping, or files with the columns `text` and `count`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.reading import records_of
from tokenizer.corpus.remote import File
from tokenizer.corpus.rows import lookup, text_of
from tokenizer.documents import check_text
from tokenizer.errors import DataError, UserError, check_whole, quoted

COUNT = "count"
"""Field of a record with the number of times that its text occurs."""
_MOST = 2**63 - 1
_ROWS = 1 << 16


class CountedTexts(NamedTuple):
    """Distinct or repeated texts, none of them empty, with their counts.

    Attributes:
        texts: Arrow column of large strings.
        counts: uint64 [n_texts], each from 1 to 2^63 - 1.
    """

    texts: Any
    counts: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, mapping: Mapping[Any, Any]) -> CountedTexts:
        """Texts (strings, or their UTF-8) and counts of a mapping.

        Raises:
            UserError: a text or a count is of another type or out of range, or nothing is counted.
        """
        return cls._gather(_checked(text, count) for text, count in mapping.items())

    @classmethod
    def read(cls, corpus: Corpus, files: Iterable[tuple[File, str]]) -> CountedTexts:
        """Read files of a corpus whose records have its `field` and a `count`: Parquet, CSV, JSON and JSON lines."""
        return cls._gather(pair for file in files for pair in _pairs(file, corpus))

    @classmethod
    def _gather(cls, pairs: Iterator[tuple[str, int]]) -> CountedTexts:
        """Leave out pairs without effect."""
        import pyarrow as pa

        texts, counts = list[Any](), list[Any]()
        rest = filter(all, pairs)
        while rows := list(islice(rest, _ROWS)):
            try:
                texts.append(pa.array([text for text, _ in rows], pa.large_string()))
            except UnicodeEncodeError:
                for text, _ in rows:
                    check_text(text, f"the text {quoted(text)} of counts")
            counts.append(np.array([count for _, count in rows], np.uint64))
        if not texts:
            raise UserError("the counts are empty: no text has a count above 0")
        return cls(pa.chunked_array(texts), np.concatenate(counts))


def is_counts(mapping: Mapping[Any, Any]) -> bool:
    """Whether a mapping that was given as a text has numbers as values, which are counts."""
    return bool(mapping) and all(isinstance(value, Number) for value in mapping.values())


def _pairs(file: tuple[File, str], corpus: Corpus) -> Iterator[tuple[str, int]]:
    path, form = file
    config = corpus.config
    if form == "txt":
        raise UserError(f"{path} is plain text, not counts; write a table with the columns {config.field} and {COUNT}")
    for number, record in enumerate(records_of(file, config)):
        try:
            text, count = _fields(record, number, config)
            if form == "csv" and count.strip().isdecimal() and len(count) < 100:
                count = int(count)
            yield _checked(text, count)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None


def _fields(record: Any, number: int, config: CorpusConfig) -> tuple[str | None, Any]:
    remedy = f"counts have the fields {config.field} (field=NAME) and {COUNT}"
    if isinstance(record, DataError):
        raise record
    if not isinstance(record, dict):
        raise UserError(f"record {number} is not an object but {type(record).__name__}; {remedy}")
    for name in (config.field, COUNT):
        count = lookup(record, name, number, remedy)
    return text_of(record, number, config), count


def _checked(text: Any, count: Any) -> tuple[str, int]:
    if type(text) is str and type(count) is int and 0 <= count <= _MOST:
        return text, count  # the common case, without messages
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise UserError(f"the text {quoted(text)} of counts is not UTF-8") from None
    if not isinstance(text, str):
        raise UserError(f"counts are of texts, but {quoted(text)} is {type(text).__name__}")
    check_whole(f"text {quoted(text)}: {COUNT}", count, 0, _MOST)
    return text, count
