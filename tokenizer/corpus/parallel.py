"""Parallel text: documents of several sources that are translations of each other."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tokenizer._native import Batch
from tokenizer.corpus.corpus import Corpus, Split
from tokenizer.corpus.reading import records_of
from tokenizer.corpus.rows import lookup, text_of
from tokenizer.errors import DataError, UserError, counted, quoted


def parallel_documents(corpus: Corpus, field: str, split: Split) -> dict[str, Iterator[tuple[str, str]]]:
    """Translations: of each source, values of a field that all sources have, each with the text of a document.

    Values that occur more often in one source than in another are left out, with a warning. Documents of plain text,
    which has no fields, have their place among those of their source as the value.

    Args:
        corpus: named sources.
        field: field (dotted) of strings or whole numbers; records without it are not parallel text.
        split: side of the held-out split.

    Raises:
        UserError: no value is in all sources, or sources have different numbers of documents of plain text.
    """
    sources = {name: part for name, part, _ in corpus.by_source()}
    _check_plain_text(sources, field)
    values = {name: Counter(value for value, _ in _documents(part, field, split)) for name, part in sources.items()}
    first, *others = values.values()
    shared = {value for value in first if all(value in other for other in others)}
    common = {value for value in shared if all(first[value] == other[value] for other in others)}
    if uneven := len(shared) - len(common):
        warnings.warn(
            f"{counted(uneven, 'value')} of the field {field} occur more often in one source than in another, such as "
            f"{quoted(min(shared - common))}: these documents are not taken as parallel text",
            stacklevel=2,
        )
    if not common:
        found = ", ".join(f"{name}: {len(known):,}" for name, known in values.items())
        raise UserError(
            f"no text is parallel: no value of the field {field} is equally often in all sources (different values: "
            f"{found}); name the field of strings or whole numbers that is equal in translations"
        )

    def documents(part: Corpus) -> Iterator[tuple[str, str]]:
        return (document for document in _documents(part, field, split) if document[0] in common)

    return {name: documents(part) for name, part in sources.items()}


def _documents(corpus: Corpus, field: str, split: Split) -> Iterator[tuple[str, str]]:
    """Value of the field and text of the documents that have both."""
    keep = corpus.filter(split)
    for value, text in _valued(corpus, field):
        if value and text and len(keep.apply(Batch.from_texts([text]))[0]):
            yield value, text


def _valued(corpus: Corpus, field: str) -> Iterator[tuple[str, str]]:
    """Value and text of every document; empty if it has none, which counting has reported."""
    for place, text in enumerate(_plain_texts(corpus), 1):
        yield f"document {place}", text
    for file in corpus.files:
        for number, record in enumerate(records_of(file, corpus.config) if file[1] != "txt" else ()):
            value: Any = None
            text = ""
            with suppress(DataError):
                text = text_of(record, number, corpus.config) or ""
                value = lookup(record, field, number, "") if isinstance(record, dict) else None
            if isinstance(value, float) and value.is_integer():  # a column of whole numbers with missing ones
                value = int(value)
            yield str(value) if isinstance(value, str | int) and not isinstance(value, bool) else "", text


def _plain_texts(corpus: Corpus) -> Iterator[str]:
    """Documents of files of plain text, empty ones included."""
    for file in corpus.files:
        if file[1] == "txt":
            for batch in corpus.unfiltered(file, corpus.config.field):
                yield from map(batch.text, range(len(batch)))


def _check_plain_text(sources: dict[str, Corpus], field: str) -> None:
    """Raise a UserError if places in plain text cannot tell which documents are translations."""
    lengths = {}
    for name, part in sources.items():
        lengths[name] = max((place for place, text in enumerate(_plain_texts(part), 1) if text), default=0)
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length:,}" for name, length in lengths.items())
        raise UserError(
            f"plain text has no field {field}, so it is parallel if each source has equally many documents in the same "
            f"order (documents: {found}; separator=STRING divides it); give such files, or records with the field"
        )
