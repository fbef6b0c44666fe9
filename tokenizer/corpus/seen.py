"""The record of the text that trained a tokenizer, and whether documents are in that text.

Training records where the text was, how it was read, and hashes of its documents, which are found under any name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer._native import Batch
from tokenizer.corpus import text_files
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.remote import File
from tokenizer.errors import UserError, listed
from tokenizer.files import is_remote, shown, weighted

Hashes = npt.NDArray[np.uint64]

KEY = "read"
"""Key of the record in a tokenizer's provenance."""
MOST = 2_000_000
"""Number of hashes that are kept. Of more documents, those whose hash begins with enough zero bits are kept."""
LEAST = 20
"""Fewest documents that must be looked up to say that training did not see them, if not all hashes were kept."""
MOST_SEEN = 0.01
"""Share of the documents above which they are no fair test; some documents are in most texts."""
_HOW = (
    *("format", "field", "separator", "dataset", "dataset_config", "dataset_split", "on_invalid_utf8", "on_error"),
    *("max_bytes", "sample", "heldout_fraction", "heldout_salt", "heldout_near_duplicates"),
)
"""Settings that are recorded where they differ from the defaults."""


class Read(dict[str, Any]):
    """The record, as JSON, with the hashes beside it.

    Entries: `texts`, a list of `{places, how, units}`; `complete`, whether this is all the text that was read;
    `zero_bits`, with which the kept hashes begin; `documents`, the number of these; and their `sha256`.

    Attributes:
        hashes: uint64, sorted and distinct; None if they were left out.
    """

    hashes: Hashes | None = None

    @classmethod
    def of(cls, texts: Sequence[Any], hashes: Hashes, zero_bits: int = 0, *, complete: bool = True) -> Read:
        """Build a record of at most `MOST` hashes. The result does not depend on the order of hashes and parts."""
        kept, zero_bits = _thinned(hashes, zero_bits)
        read = cls(texts=[text for i, text in enumerate(texts) if text not in texts[:i]], complete=complete)
        read |= {"zero_bits": zero_bits, "documents": len(kept), "sha256": hashlib.sha256(kept.data).hexdigest()}
        read.hashes = kept
        return read

    @classmethod
    def load(cls, record: Mapping[str, Any], hashes: Hashes | None) -> Read:
        """The record that a file has, and its hashes. A record without an entry, or with a wrong one, is damaged."""
        entries = ("places", list), ("how", dict), ("units", list)
        texts = [{name: kind(text[name]) for name, kind in entries} for text in record["texts"]]
        if type(record["zero_bits"]) is not int or not 0 <= record["zero_bits"] <= 64:
            raise ValueError(f"zero_bits={record['zero_bits']!r}")
        read = cls(record, texts=texts)
        read.hashes = hashes
        return read

    def public(self) -> Read:
        """The record without hashes and folders, for other people."""
        texts = [{**text, "places": [Path(place).name for place in text["places"]]} for text in self["texts"]]
        return Read(self, texts=texts)


def joined(reads: Sequence[Any]) -> Read:
    """The record of several texts; incomplete if one of the records is missing or lacks its hashes."""
    known = [read for read in reads if isinstance(read, Read) and read.hashes is not None]
    return Read.of(
        [text for read in known for text in read["texts"]],
        np.concatenate([np.empty(0, np.uint64), *(read.hashes for read in known if read.hashes is not None)]),
        max((read["zero_bits"] for read in known), default=0),
        complete=len(known) == len(reads) and all(read["complete"] for read in known),
    )


class Recorder:
    """Records a text while it is read."""

    def __init__(self) -> None:
        self.texts: list[dict[str, Any]] = []
        self._parts: list[Hashes] = []
        self._n = self._zero_bits = 0

    def opened(self, corpus: Corpus) -> None:
        """Record where a corpus is and how it is read."""
        self.texts.append(about(corpus))

    def add(self, batch: Batch) -> Batch:
        """Record documents, and return them."""
        hashes = batch.hashes()
        self._parts.append(hashes[_begins(hashes, self._zero_bits)])
        self._n += len(self._parts[-1])
        if self._n > 2 * MOST:
            kept, self._zero_bits = _thinned(np.concatenate(self._parts), self._zero_bits)
            self._parts, self._n = [kept], len(kept)
        return batch

    def read(self) -> Read:
        """The record of what was added."""
        return Read.of(self.texts, np.concatenate([np.empty(0, np.uint64), *self._parts]), self._zero_bits)


def about(corpus: Corpus) -> dict[str, Any]:
    """Places of a corpus, how it is read, and the units that are its documents."""
    config, usual = corpus.config, CorpusConfig()
    paths = config.paths or [weighted(entry, name)[0] for name, entry in config.sources.items()]
    how = {name: value for name in _HOW if (value := getattr(config, name)) != getattr(usual, name)}
    places = [shown(path) if is_remote(path) else str(Path(path).resolve()) for path in map(str, paths)]
    return {"places": places, "how": how, "units": sorted(_units(corpus))}


class Answer(NamedTuple):
    """Whether training saw documents.

    Attributes:
        seen: bool[n_documents], whether a document was found among those of the training text.
        looked_up: Number of documents that could be looked up.
        files: Files that training read in another way, so that it saw their text in other documents.
        unknown: Why it cannot be told whether training saw more than that; empty if it did not.
    """

    seen: npt.NDArray[np.bool_]
    looked_up: int
    files: Sequence[str]
    unknown: str

    @property
    def saw(self) -> str:
        """What training saw, such as "3 of the 100 documents"; empty if nothing was found."""
        if self.files:
            return f"{listed(self.files)}, which it read in another way"
        return f"{self.seen.sum():,} of the {self.looked_up:,} documents" if self.seen.any() else ""

    @property
    def saw_much(self) -> bool:
        """Whether training saw so much that the documents are no fair test."""
        return bool(self.files) or self.seen.sum() > MOST_SEEN * self.looked_up

    def sentence(self, name: str) -> str:
        """One of the three answers about the tokenizer of this name."""
        if self.saw:
            return f"{name} was trained on {self.saw}"
        if self.unknown:
            return f"cannot tell whether {name} was trained on this text: {self.unknown}"
        return f"{name} was not trained on this text"


def saw(read: Any, hashes: Hashes, corpus: Corpus | None = None) -> Answer:
    """Whether the training of a tokenizer saw documents.

    Args:
        read: the record of its training text, the entry `KEY` of its provenance; None if there is none.
        hashes: uint64[n_documents], `Batch.hashes` of the documents.
        corpus: where the documents come from, to recognize files that training read in another way; None if they
            cannot be compared.
    """
    nothing = np.zeros(len(hashes), np.bool_)
    if not isinstance(read, Read):
        return Answer(nothing, 0, (), "it has no record of its training text")
    units, again = set[str](), list[str]()
    if corpus is not None:
        units = _units(corpus)
        again = _read_otherwise(read["texts"], corpus.heldout_files or corpus.files, corpus.config)
    if read.hashes is None:
        return Answer(nothing, 0, again, "the hashes of its training documents were left out")
    known = _begins(hashes, read["zero_bits"])
    seen, n, unknown = known & np.isin(hashes, read.hashes), len(np.unique(hashes[known])), ""
    others = sorted({unit for text in read["texts"] for unit in text["units"]} - units)
    if not read["complete"]:
        unknown = "only a part of its training has a record"
    elif read["zero_bits"] and n < LEAST:
        unknown = f"of so much training text, only some hashes are kept, by which {n} of its documents can be looked up"
    elif others and units:
        unknown = f"it was trained on {listed(others)}, and this text is {listed(sorted(units))}"
    return Answer(seen, int(known.sum()), again, unknown)


def _read_otherwise(texts: Sequence[Any], files: Sequence[tuple[File, str]], config: CorpusConfig) -> list[str]:
    """Those of the files that training read with other documents: of another format, field or separator."""
    here = {str(file.resolve()): (str(file), _cut(form, config)) for file, form in files}
    found = []
    for text in texts:
        how = {name: text["how"][name] for name in ("format", "field", "separator") if name in text["how"]}
        trained = CorpusConfig(**how)
        there: list[tuple[File, str]] = [
            (file, trained.format or form) for file, form in files if str(file) in text["places"]
        ]
        for place in text["places"]:
            with suppress(OSError, UserError):  # moved or deleted: hashes find its documents
                there += [] if is_remote(place) else text_files.find([place], trained.format)
        for file, form in there:
            name, cut = here.get(str(file.resolve()), ("", None))
            if name and cut != _cut(form, trained):
                found.append(name)
    return list(dict.fromkeys(found))


def _cut(form: str, config: CorpusConfig) -> tuple[str, str]:
    """What the documents of a file are, and the field of their text."""
    if form != "txt":
        return "records", config.field
    return ("whole files" if config.separator is None else f"text between {config.separator!r}"), ""


def _units(corpus: Corpus) -> set[str]:
    """What the documents of a corpus are."""
    files = [*corpus.files, *corpus.heldout_files]
    return {_cut(form, corpus.config)[0] for _, form in files} | ({"records"} if corpus.config.dataset else set())


def _thinned(hashes: Hashes, zero_bits: int) -> tuple[Hashes, int]:
    """Sorted, distinct hashes, at most `MOST`, and the zero bits with which they begin."""
    hashes = np.unique(hashes[_begins(hashes, zero_bits)])
    while len(hashes) > MOST:
        zero_bits += 1
        hashes = hashes[: np.searchsorted(hashes, np.uint64(1 << (64 - zero_bits)))]
    return hashes, zero_bits


def _begins(hashes: Hashes, zero_bits: int) -> npt.NDArray[np.bool_]:
    """Whether each hash begins with this many zero bits."""
    return hashes <= np.uint64((1 << (64 - zero_bits)) - 1)
