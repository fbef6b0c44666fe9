"""The record of the text that trained a tokenizer, and whether documents are in that text.

Training records where its text was, how it was cut into documents, and hashes of these, which are found under any name.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer._native import Batch
from tokenizer.corpus import text_files, texts
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError, listed
from tokenizer.files import is_remote, read_bytes, shown

Hashes = npt.NDArray[np.uint64]

KEY, FILE = "read", "training-documents.npy"
"""Key of the record in a tokenizer's provenance, and the file of its hashes."""
MOST = 2_000_000
"""Number of hashes that are kept. Of more documents, those whose hash begins with enough zero bits are kept."""
LEAST = 20
"""Fewest documents to look up for the answer that training did not see them, if not all hashes were kept."""
MOST_SEEN = 0.01
"""Share of the documents above which they are no fair test. Some documents are in most texts."""


class Read(dict[str, Any]):
    """The record, as JSON, and the hashes (uint64, sorted and distinct; None if they were left out).

    Entries: `texts`, a list of `{places, settings, documents}`; `complete`, whether this is all the text that training
    read; `zero_bits`, with which the kept hashes begin; `sha256` of the hashes.
    """

    hashes: Hashes | None = None

    @classmethod
    def load(cls, record: Mapping[str, Any], path: Path | None) -> Read:
        """The record that a file has, with the hashes of another file; None or a missing file for none.

        Hashes that do not match the record are left out, with a warning.

        Raises:
            KeyError, TypeError, ValueError: the record is damaged.
        """
        entries = ("places", list), ("settings", dict), ("documents", list)
        of_texts = [{name: kind(text[name]) for name, kind in entries} for text in record["texts"]]
        read = cls(record, texts=of_texts, complete=bool(record["complete"]), zero_bits=range(65)[record["zero_bits"]])
        if path is not None and path.exists():
            data = read_bytes(path)
            if hashlib.sha256(data).hexdigest() == record["sha256"]:
                read.hashes = np.load(io.BytesIO(data), allow_pickle=False)
            else:
                warnings.warn(f"{path} is not the file that was written with its record; it is not used", stacklevel=2)
        return read

    def data(self) -> bytes:
        """Content of the file of hashes."""
        file = io.BytesIO()
        np.save(file, np.empty(0, np.uint64) if self.hashes is None else self.hashes)
        return file.getvalue()


class Recorder:
    """Records text while it is read. The result does not depend on order, parts and repetitions."""

    def __init__(self, reads: Sequence[Any] = ()) -> None:
        """Begin with other records: one that is missing, or has no hashes, makes the result incomplete."""
        self._texts: list[dict[str, Any]] = []
        self._parts, self._n, self._zero_bits, self._complete = [np.empty(0, np.uint64)], 0, 0, True
        for read in reads:
            known = isinstance(read, Read) and read.hashes is not None
            self._complete = self._complete and known and read["complete"]
            if known:
                self._texts += read["texts"]
                self._parts.append(read.hashes)
                self._zero_bits = max(self._zero_bits, read["zero_bits"])

    def batches(self, text: Any, *, field: str = "text", **reading: Any) -> Iterator[Batch]:
        """`tokenizer.corpus.texts.batches`, recorded; `reading` are arguments of `Corpus.batches`."""

        def read(corpus: Corpus) -> Iterator[Batch]:
            self._texts.append(about(corpus))
            return corpus.batches(**reading)

        return map(self.add, texts.batches(text, field=field, read=read))

    def add(self, batch: Batch) -> Batch:
        """Record the documents of a batch, and return it."""
        hashes = batch.hashes()
        self._parts.append(hashes[_begin(hashes, self._zero_bits)] if self._zero_bits else hashes)
        self._n += len(self._parts[-1])
        if self._n > MOST:
            self._thin()
        return batch

    def _thin(self) -> None:
        hashes, self._n = np.concatenate(self._parts), 0
        hashes = np.sort(hashes[_begin(hashes, self._zero_bits)])  # `np.unique` of uint64 takes ten times as long
        hashes = hashes[np.diff(hashes, prepend=~hashes[:1]) != 0]
        while len(hashes) > MOST:
            self._zero_bits += 1
            hashes = hashes[_begin(hashes, self._zero_bits)]
        self._parts = [hashes]

    def read(self) -> Read:
        """The record of all text so far."""
        self._thin()
        distinct = {json.dumps(text, sort_keys=True): text for text in self._texts}
        read = Read(texts=list(distinct.values()), complete=self._complete, zero_bits=self._zero_bits)
        read.hashes = self._parts[0]
        read["sha256"] = hashlib.sha256(read.data()).hexdigest()
        return read


def public(provenance: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer's provenance for other people: without hashes of the training text, and its folders."""
    provenance, read, chosen = dict(provenance), provenance.get(KEY), provenance.get("choose")
    if isinstance(read, Read):
        named = []
        for text in read["texts"]:
            settings = dict(text["settings"])
            if "dataset" in settings and Path(settings["dataset"]).exists():
                settings["dataset"] = Path(settings["dataset"]).name
            named.append({**text, "places": _names(text["places"]), "settings": settings})
        provenance[KEY] = Read(read, texts=named)
    if isinstance(chosen, dict) and isinstance(chosen.get("text"), list):
        provenance["choose"] = {**chosen, "text": _names(chosen["text"])}
    return provenance


def _names(places: Sequence[str]) -> list[str]:
    return [Path(place).name for place in places]


def about(corpus: Corpus) -> dict[str, Any]:
    """Absolute places of a corpus, its settings that differ from the defaults, and what its documents are."""
    config = corpus.config
    usual = vars(CorpusConfig())
    places = [shown(path) if is_remote(path) else str(Path(path).resolve()) for path in map(str, config.all_paths)]
    left_out = ("paths", "sources", "heldout_paths", "batch_bytes", "source_field", "kind_field", "kinds", "cache")
    settings = {key: value for key, value in vars(config).items() if value != usual[key] and key not in left_out}
    return {"places": places, "settings": settings, "documents": _documents(corpus)}


class Answer(NamedTuple):
    """Whether training saw documents.

    Attributes:
        seen: bool[n_documents], whether a document was found in the training text.
        looked_up: Number of documents that could be looked up.
        files: Files that training cut into other documents, which cannot be looked up.
        unknown: Why it cannot be told whether training saw more than that; empty if it did not.
    """

    seen: npt.NDArray[np.bool_]
    looked_up: int
    files: Sequence[str]
    unknown: str

    @property
    def saw(self) -> str:
        """The part that training saw, such as "3 of the 100 documents"; empty if nothing was found."""
        if self.files:
            return f"{listed(self.files)} (cut into other documents)"
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


def saw(tokenizer: Any, hashes: Hashes, corpus: Corpus | None, *, read: Read | None = None) -> Answer:
    """Whether the training of a tokenizer saw documents.

    Args:
        tokenizer: a tokenizer of any kind.
        hashes: uint64[n_documents], `Batch.hashes` of the documents.
        corpus: the text that they are from; None for records that are not in files.
        read: the record of the training text; None for the tokenizer's own.
    """
    read = read or getattr(tokenizer, "provenance", {}).get(KEY)
    if not isinstance(read, Read):
        return Answer(np.zeros(len(hashes), np.bool_), 0, (), "it has no record of its training text")
    here = ["records"] if corpus is None else _documents(corpus)
    others = [text for text in read["texts"] if not {*text["documents"]} <= {*here}]
    known = _begin(hashes, read["zero_bits"])
    unknown = ""
    if read.hashes is None:
        known = np.zeros(len(hashes), np.bool_)
        unknown = "the hashes of its training documents were left out"
    elif not read["complete"]:
        unknown = "only a part of its training has a record"
    elif read["zero_bits"] and (n := len(np.unique(hashes[known]))) < LEAST:
        unknown = f"its record has some of the hashes only, by which {n} of these documents can be looked up"
    elif others:
        kinds = {kind for text in others for kind in text["documents"]}
        unlike = kinds - {*here}
        only = "some of" if unlike < kinds else ""
        unknown = f"{only} its documents were {listed(sorted(unlike))}, and these are {listed(here)}".strip()
    seen = known & np.isin(hashes, [] if read.hashes is None else read.hashes)
    files = [] if corpus is None else _cut_otherwise(read["texts"], corpus)
    return Answer(seen, int(known.sum()), files, "" if seen.all() else unknown)


def _cut_otherwise(trained: Sequence[Mapping[str, Any]], corpus: Corpus) -> list[str]:
    """Files of the corpus that training cut into other documents."""
    cuts: dict[str, set[str]] = {}
    for text in trained:
        settings = text["settings"]
        for place in text["places"]:
            found: Sequence[tuple[Any, str]] = ()
            # Moved or deleted: only the hashes can tell. Training warned of the files that it left out.
            with suppress(OSError, UserError), warnings.catch_warnings(action="ignore"):
                found = [] if is_remote(place) else text_files.find([place], settings.get("format"))
            of_files = {str(file.resolve()): {_unit(form, settings.get("separator"))} for file, form in found}
            for file, units in ({place: {*text["documents"]}} | of_files).items():
                cuts.setdefault(file, set()).update(units)
    files = [(file, form, cuts.get(str(file.resolve()))) for file, form in corpus.heldout_files or corpus.files]
    return [str(file) for file, form, units in files if units and _unit(form, corpus.config.separator) not in units]


def _documents(corpus: Corpus) -> list[str]:
    """The units that are the documents of a corpus."""
    files = [*corpus.files, *corpus.heldout_files]
    return sorted({_unit(form, corpus.config.separator) for _, form in files}) or ["records"]


def _unit(form: str, separator: str | None) -> str:
    """The unit that is a document of a file of this format."""
    whole = "whole files" if separator is None else f"text between {separator!r}"
    return whole if form == "txt" else "records"


def _begin(hashes: Hashes, zero_bits: int) -> npt.NDArray[np.bool_]:
    """Whether each hash begins with this many zero bits."""
    return hashes <= np.uint64((1 << (64 - zero_bits)) - 1)
