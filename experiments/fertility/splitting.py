"""Divides a text into three parts: to train tokenizers, to choose among them, and to test models of the finalists."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from experiments.fertility.measures import LEAST_DOCUMENTS
from tokenizer import Corpus, CorpusConfig
from tokenizer.corpus.origins import documents_by_origin
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
class Division:
    """A text in three parts.

    Attributes:
        corpus: The text; its training split trains tokenizers.
        selection: The held-out documents by which tokenizers are chosen. The others are left for the models.
        identity: What the split depends on.
    """

    corpus: Corpus
    selection: Corpus
    identity: Identity


def divide(text: Corpus, folder: Path, heldout: float | None = None, progress: Progress | None = None) -> Division:
    """Divide a text by a hash of each document, and write the documents to choose by.

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
    if not path.exists() or _record(path) != {**asdict(identity), "checksum": checksum(path, again=True)}:
        _write(corpus, path, progress)
        write_sealed(path.with_suffix(".json"), {**asdict(identity), "checksum": checksum(path)})
    return Division(corpus, Corpus(CorpusConfig(paths=[str(path)], source_field="source")), identity)


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


def _write(corpus: Corpus, path: Path, progress: Progress | None) -> None:
    test = Corpus(replace(corpus.config, heldout_sample=TEST_SHARE))
    tested = {hashlib.sha256(text.encode()).digest() for _, text in documents_by_origin(test, "heldout")}
    tick, n_bytes, kept = Throttle(progress, "bytes held out"), 0, set[bytes]()
    with replacing(path) as file:
        for source, text in documents_by_origin(corpus, "heldout"):
            data = text.encode()
            hashed = hashlib.sha256(data).digest()
            if hashed not in tested:
                file.write(json.dumps({"text": text, "source": source}).encode() + b"\n")
                kept.add(hashed)
            n_bytes += len(data)
            tick(n_bytes)
    if len(kept) < LEAST_DOCUMENTS:
        raise UserError(
            f"only {len(kept)} different documents are held out to choose by, and at least {LEAST_DOCUMENTS} are "
            "required; use more documents (a .txt file is one, unless a separator splits it), or hold out a larger "
            f"share than heldout={corpus.config.heldout_fraction:g}"
        )
