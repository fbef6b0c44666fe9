"""Parallel text: documents of several sources that are translations of each other."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from tokenizer._native import Batch
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.reading import records_of
from tokenizer.corpus.rows import lookup, text_of
from tokenizer.errors import DataError, UserError, counted, quoted


def parallel_texts(corpus: Corpus, field: str) -> dict[str, Callable[[], Iterator[str]]]:
    """Translations: the training documents of each source with a value of a field that all sources have.

    Values that occur more often in one source than in another are left out, with a warning.

    Args:
        corpus: records in named sources; those without the field are not parallel text.
        field: field (dotted) of strings or whole numbers.

    Raises:
        UserError: no value is in all sources.
    """
    sources = {name: part for name, part, _ in corpus.by_source()}
    values = {name: Counter(value for value, _ in _documents(part, field)) for name, part in sources.items()}
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
            f"{found}); name the field that is equal in translations"
        )

    def texts(part: Corpus) -> Iterator[str]:
        return (text for value, text in _documents(part, field) if value in common)

    return {name: partial(texts, part) for name, part in sources.items()}


def _documents(corpus: Corpus, field: str) -> Iterator[tuple[str, str]]:
    """Value of the field and text of the training documents that have both."""
    keep = corpus.filter("train")
    for path, form in corpus.files:
        if form == "txt":
            raise UserError(f"{path} is plain text, which has no field {field}; parallel text needs records")
        for number, record in enumerate(records_of((path, form), corpus.config)):
            value: Any = None
            text = None
            with suppress(DataError):  # it has no such field, or no text, which counting has reported
                text = text_of(record, number, corpus.config)
                value = lookup(record, field, number, "") if isinstance(record, dict) else None
            if text and isinstance(value, str | int) and len(keep.apply(Batch.from_texts([text]))[0]):
                yield str(value), text
