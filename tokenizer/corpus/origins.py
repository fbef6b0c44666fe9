"""Source of each document of a corpus: its file, or the value of a field of its record."""

from __future__ import annotations

import fnmatch
from collections import deque
from itertools import repeat
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from tokenizer.errors import UserError, listed
from tokenizer.files import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokenizer._native import Batch
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.corpus.remote import File

UNKNOWN, OTHER = "unknown", "other"
"""Source of a document whose record names none, and kind of a file that `CorpusConfig.kinds` does not name."""


def documents_by_origin(
    corpus: Corpus, split: Split, *, name: str = "", train: Callable[[Batch], object] | None = None
) -> Iterator[tuple[str, str]]:
    """Source and text of every document, in the order of `Corpus.batches(split)`.

    Args:
        corpus: the corpus. The source is its `source_field`, shortened by `origin`, or else the name of the file, or of
            its part of `sources`. With `kinds` or `kind_field`, it begins with the kind: `code: numpy`.
        split: see `Corpus.batches` and `Corpus.files_of`.
        name: source of all files, if the corpus is one of the `sources` of another.
        train: called with the training documents of the same files.

    Raises:
        UserError: a record does not have the field.
    """
    keep, rest = corpus.filter(split), corpus.filter("train")
    try:
        for file in corpus.files_of(split):
            origins = _origins(corpus, file, name)
            for batch in corpus.unfiltered(file, corpus.config.field):
                taken, more = keep.apply(batch)
                if train is not None:
                    train(rest.apply(batch)[0])
                yield from _matched(batch, taken, origins)
                if not more:
                    break
            else:
                continue
            break
        corpus.check_unchanged(split)
    finally:
        corpus.report_skipped()


def _origins(corpus: Corpus, file: tuple[File, str] | None, name: str) -> Iterator[str]:
    """Kind and source of every document of a file, in order; endless if the file itself is the source."""
    config = corpus.config
    sources: Iterator[str] = repeat(name or (str(config.dataset) if file is None else corpus.source(file[0])))
    if config.source_field is not None:
        sources = map(origin, _field(corpus, file, config.source_field, "source_field"))
    if config.kind_field is not None:
        kinds: Iterator[str] = map(origin, _field(corpus, file, config.kind_field, "kind_field"))
    elif config.kinds:
        kinds = repeat(OTHER if file is None else kind_of(file[0], config.kinds))
    else:
        return sources
    return (f"{kind}: {source}" for kind, source in zip(kinds, sources, strict=False))


def kind_of(file: File, kinds: Mapping[str, str]) -> str:
    """The first kind whose path is the file, a folder around it, or a glob that matches it; otherwise `OTHER`.

    >>> kind_of(PurePath("src/a/b.jsonl"), {"code": "src", "English": "*.txt"})
    'code'
    """
    name = shown(file.as_posix() if isinstance(file, PurePath) else str(file))
    for kind, path in ((kind, shown(path)) for kind, path in kinds.items()):
        if name == path or name.startswith(path.rstrip("/") + "/") or fnmatch.fnmatchcase(name, path):
            return kind
    return OTHER


def check_kinds(corpus: Corpus) -> None:
    """Raise a UserError if `kinds` names a path of which the corpus has no file, or only files of earlier kinds."""
    files = [file for file, _ in [*corpus.files, *corpus.heldout_files]]
    found = {kind_of(file, corpus.config.kinds) for file in files}
    for kind, path in corpus.config.kinds.items():
        if kind not in found:
            taken = [file for file in files if kind_of(file, {kind: path}) == kind]
            if taken:
                first = kind_of(taken[0], corpus.config.kinds)
                raise UserError(
                    f"kinds: {kind} and {first} both name {shown(str(taken[0]))}, and a file has one kind; remove one"
                )
            raise UserError(
                f"kinds: {kind}={path} is the path of no file of the text ({listed(corpus.config.places)}); write it "
                "as in paths"
            )


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


def _field(corpus: Corpus, file: tuple[File, str] | None, name: str, setting: str) -> Iterator[str]:
    if file is not None and file[1] == "txt":
        raise UserError(
            f"{setting}={name}, but {file[0]} is plain text, which has no fields; set it to null to use the "
            "file name as the source"
        )
    try:
        for batch in corpus.unfiltered(file, name):
            yield from map(batch.text, range(len(batch)))
    except UserError as error:
        raise UserError(f"{setting}={name}: {error}; set it to null to use the file name") from None


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
