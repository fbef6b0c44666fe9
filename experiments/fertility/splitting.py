"""Divides a text into three parts: to train tokenizers, to choose among them, and to test models of the finalists."""

from __future__ import annotations

import hashlib
import json
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
    from collections.abc import Sequence
    from pathlib import Path

    from tokenizer.progress import Progress

SELECTION = "selection.jsonl"
TEST_SHARE = 0.5
"""Share of the held-out documents that `choose` does not measure, for the comparison by language models."""
HELD_OUT, HELD_OUT_BYTES = 0.2, 10_000_000
"""Share of the documents that is held out, and the most text, as stored."""
NGRAM_WORDS, NEAR = 13, 0.5
"""A held-out document is a near duplicate of training text if this share of its words, or more, is in sequences of so
many words that occur in the training text."""


@dataclass(frozen=True)
class Identity:
    """What the split depends on; it is stored with the tokenizers.

    Attributes:
        text: Places of the text.
        source_field: Field that names the source of a document.
        corpus: Hash of the text and its split.
        heldout_fraction: Share of the documents that is held out.
        test_share: Share of these that is left for the models.
    """

    text: Sequence[str]
    source_field: str | None
    corpus: str
    heldout_fraction: float
    test_share: float


@dataclass(frozen=True)
class Overlap:
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
class Division:
    """A text in three parts.

    Attributes:
        corpus: The text; its training split trains tokenizers.
        selection: The held-out documents by which tokenizers are chosen. The others are left for the models.
        identity: What the split depends on.
        overlap: What of the selection occurs in the training text.
    """

    corpus: Corpus
    selection: Corpus
    identity: Identity
    overlap: Overlap


def divide(text: Corpus, folder: Path, heldout: float | None = None, progress: Progress | None = None) -> Division:
    """Divide a text by a hash of each document, and write the documents to choose by.

    Near duplicates of training documents are not among these, unless too few others are left.

    Args:
        text: The text.
        folder: Folder for `selection.jsonl`, which `fertility` can measure too; one of the same split is used again.
        heldout: Share of documents to hold out; None for `HELD_OUT`, and at most `HELD_OUT_BYTES`.
        progress: Called with the bytes of held-out text.

    Raises:
        UserError: Too few documents are held out.
    """
    share = heldout or min(HELD_OUT, float(f"{HELD_OUT_BYTES / max(sum(text.sizes()), 1):.2g}"))
    corpus, path = Corpus(replace(text.config, heldout_fraction=share)), folder / SELECTION
    hashed = digest(corpus.identity())
    identity = Identity(about(corpus)["places"], corpus.config.source_field, hashed, share, TEST_SHARE)
    facts, record = asdict(identity), _record(path)
    if not path.exists() or record != {**facts, **record, "checksum": checksum(path, again=True)}:
        overlap = _write(corpus, path, progress)
        write_sealed(path.with_suffix(".json"), {**facts, "overlap": asdict(overlap), "checksum": checksum(path)})
    overlap = Overlap(**_record(path)["overlap"])
    return Division(corpus, Corpus(CorpusConfig(paths=[str(path)], source_field="source")), identity, overlap)


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


def _write(corpus: Corpus, path: Path, progress: Progress | None) -> Overlap:
    test = Corpus(replace(corpus.config, heldout_sample=TEST_SHARE))
    tested = {hashlib.sha256(text.encode()).digest() for _, text in documents_by_origin(test, "heldout")}
    tick, n_bytes = Throttle(progress, "bytes held out"), 0
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
            f"share than heldout={corpus.config.heldout_fraction:g}"
        )
    with replacing(path) as file:
        for (source, text), left_out in zip(documents, near, strict=True):
            if not left_out:
                file.write(json.dumps({"text": text, "source": source}).encode() + b"\n")
    shared = found.shared[~near].sum() / max(found.words[~near].sum(), 1)
    return Overlap(int(near.sum()), float(shared))
