"""Divides a text into three parts: to train tokenizers, to choose among them, and to test models of the finalists."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.fertility.measures import LEAST_DOCUMENTS
from tokenizer import Batch, Corpus, CorpusConfig
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.corpus.overlap import find_overlap, measured_text
from tokenizer.corpus.seen import about
from tokenizer.durable import replacing
from tokenizer.errors import UserError, listed
from tokenizer.files import checksum, digest, read_sealed, write_sealed
from tokenizer.progress import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokenizer.progress import Progress

SELECTION = "selection.jsonl"
COPIES = ("train.jsonl", "heldout.jsonl")
FEWEST_SOURCES, FEWEST_OF_KIND, MOST_COPIED = 10, 3, 2_000_000_000
"""Sources, of the text and of each kind, and most bytes as stored, with which whole sources are held out."""
TEST_SHARE = 0.5
"""Share of the held-out documents that `choose` does not measure, for the comparison by language models."""
HELD_OUT, HELD_OUT_BYTES = 0.2, 10_000_000
"""Share of the documents that is held out, and the most text, as stored."""
NGRAM_WORDS, NEAR = 13, 0.5
"""A held-out document is a near duplicate of training text if this share of its words, or more, is in sequences of so
many words that occur in the training text."""


@dataclass(frozen=True)
class Identity:
    """The settings and the text that a split depends on; they are stored with the tokenizers.

    Attributes:
        text: Places of the text.
        source_field: Field that names the source of a document.
        corpus: Hash of the text and its split.
        heldout_fraction: Share of the documents that is held out.
        test_share: Share of these that is left for the models.
        by_source: Whether whole sources are held out, instead of documents.
    """

    text: Sequence[str]
    source_field: str | None
    corpus: str
    heldout_fraction: float
    test_share: float
    by_source: bool


@dataclass(frozen=True)
class SharedText:
    """Text by which tokenizers are chosen that occurs in the training text.

    Attributes:
        near_duplicates: Number of held-out documents that were left out because they are near duplicates.
        shared: Share of the words of the others that are in sequences of `ngram_words` words of the training text.
        ngram_words: Words of a sequence.
    """

    near_duplicates: int
    shared: float
    ngram_words: int = NGRAM_WORDS


@dataclass(frozen=True)
class TextSplit:
    """A text in three parts.

    Attributes:
        corpus: The text, or copies of its documents if whole sources are held out. Its training split trains
            tokenizers.
        selection: The held-out documents by which tokenizers are chosen. The others are left for the models.
        identity: What the split depends on.
        overlap: What of the selection occurs in the training text.
    """

    corpus: Corpus
    selection: Corpus
    identity: Identity
    overlap: SharedText


def divide(text: Corpus, folder: Path, heldout: float | None = None, progress: Progress | None = None) -> TextSplit:
    """Divide a text, and write the documents to choose by.

    Whole sources are held out if a field names enough of them; otherwise a hash of each document decides. Near
    duplicates of training documents are not among the documents to choose by, unless too few others are left.

    Args:
        text: The text.
        folder: Folder for `selection.jsonl`, which `fertility` can measure too; one of the same split is used again.
        heldout: Share of documents to hold out; None for `HELD_OUT`, and at most `HELD_OUT_BYTES`.
        progress: Called with the bytes of held-out text.

    Raises:
        UserError: Too few documents are held out.
    """
    share = heldout or min(HELD_OUT, float(f"{HELD_OUT_BYTES / max(sum(text.sizes()), 1):.2g}"))
    copies = _copy(text, folder, share, progress)
    path = folder / SELECTION
    corpus = copies or Corpus(replace(text.config, heldout_fraction=share))
    identity = Identity(
        text=about(text)["places"],
        source_field=text.config.source_field,
        corpus=digest(corpus.identity()),
        heldout_fraction=share,
        test_share=TEST_SHARE,
        by_source=copies is not None,
    )
    facts, record = asdict(identity), _record(path)
    if not path.exists() or record != {**facts, **record, "checksum": checksum(path, again=True)}:
        overlap = _write(corpus, path, share, progress)
        write_sealed(path.with_suffix(".json"), {**facts, "overlap": asdict(overlap), "checksum": checksum(path)})
    overlap = SharedText(**_record(path)["overlap"])
    return TextSplit(corpus, Corpus(CorpusConfig(paths=[str(path)], source_field="source")), identity, overlap)


def check_folder(folder: Path, text: Corpus) -> None:
    """Raise a UserError if the folder has documents to choose by of other text."""
    places = _record(folder / SELECTION).get("text", [])
    if places and not set(places) & set(about(text)["places"]):
        raise UserError(
            f"out={folder} has the answer for other text ({listed(places)}); name another folder, or remove it"
        )


def _record(path: Path) -> dict[str, Any]:
    """The record of a file of documents; empty if there is none, or it is damaged."""
    with suppress(OSError, UserError):
        return read_sealed(path.with_suffix(".json"))
    return {}


def _copy(text: Corpus, folder: Path, share: float, progress: Progress | None) -> Corpus | None:
    """Copies of the documents of a text, of which whole sources are held out.

    None if no field names enough sources, or the text is too large to be copied. Sources that the user names, such as
    languages, are all trained on.
    """
    if not text.config.source_field or text.config.sources or sum(text.sizes()) > MOST_COPIED:
        return None
    train, heldout = (folder / name for name in COPIES)
    facts = {"text": digest(text.identity()), "share": share}
    record = _record(train)
    copies = CorpusConfig([str(train)], heldout_paths=[str(heldout)], heldout_fraction=share, source_field="source")
    if train.exists() and heldout.exists():
        sums = {path.name: checksum(path, again=True) for path in (train, heldout)}
        if record == {**facts, **sums}:
            return Corpus(copies)
    sizes: Counter[str] = Counter()
    tick = Throttle(progress, "bytes to divide by source")
    n_bytes = 0
    for source, document in documents_by_origin(text, "all"):
        sizes[source] += len(document.encode())
        n_bytes += len(document)
        tick(n_bytes)
    held_out = held_out_sources(sizes, share)
    if not held_out:
        return None
    with replacing(train) as train_file, replacing(heldout) as heldout_file:
        for source, document in documents_by_origin(text, "all"):
            line = json.dumps({"text": document, "source": source}).encode() + b"\n"
            (heldout_file if source in held_out else train_file).write(line)
    write_sealed(train.with_suffix(".json"), {**facts, **{path.name: checksum(path) for path in (train, heldout)}})
    return Corpus(copies)


def held_out_sources(sizes: Mapping[str, int], share: float) -> set[str]:
    """Sources to hold out, in an order by hash: this share of the bytes of each kind, or a bit more.

    Empty if there are too few sources, or too few of a kind.

    Args:
        sizes: Bytes of each source; the kind is the part of the name before a colon.
        share: Share of the bytes to hold out.
    """
    kinds: dict[str, list[str]] = {}
    for source in sorted(sizes, key=lambda name: hashlib.sha256(name.encode()).digest()):
        kinds.setdefault(source.partition(": ")[0] if ": " in source else "", []).append(source)
    if len(sizes) < FEWEST_SOURCES or min(map(len, kinds.values())) < FEWEST_OF_KIND:
        return set()
    held_out = set()
    for sources in kinds.values():
        missing = share * sum(sizes[source] for source in sources)
        for source in sources[:-1]:
            if missing > 0:
                held_out.add(source)
                missing -= sizes[source]
    return held_out


def _write(corpus: Corpus, path: Path, share: float, progress: Progress | None) -> SharedText:
    test = Corpus(replace(corpus.config, heldout_sample=TEST_SHARE))
    tested = {hashlib.sha256(text.encode()).digest() for _, text in documents_by_origin(test, "heldout")}
    tick = Throttle(progress, "bytes held out")
    n_bytes = 0
    documents = []
    for source, text in documents_by_origin(corpus, "heldout"):
        data = text.encode()
        if hashlib.sha256(data).digest() not in tested:
            documents.append((source, text))
        n_bytes += len(data)
        tick(n_bytes)
    texts = [text for _, text in documents]
    measured = measured_text([Batch.from_texts(texts)] if texts else [], NGRAM_WORDS)
    found = find_overlap(measured, corpus.batches("train", readers=2, in_order=False), progress=progress)
    near = found.shared >= NEAR * np.maximum(found.words, 1)
    if len(set(compress(texts, ~near))) < LEAST_DOCUMENTS:  # the share of repeated words says that they are there
        near[:] = False
    if len(set(texts)) < LEAST_DOCUMENTS:
        raise UserError(
            f"only {len(set(texts))} different documents are held out to choose by, and at least {LEAST_DOCUMENTS} are "
            "required; use more documents (a .txt file is one, unless a separator splits it), or hold out a larger "
            f"share than heldout={share:g}"
        )
    with replacing(path) as file:
        for (source, text), left_out in zip(documents, near, strict=True):
            if not left_out:
                file.write(json.dumps({"text": text, "source": source}).encode() + b"\n")
    shared = found.shared[~near].sum() / max(found.words[~near].sum(), 1)
    return SharedText(int(near.sum()), float(shared))
