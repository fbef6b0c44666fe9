"""Hash of the held-out documents, and source and script of each. They do not depend on the tokenizer."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.results import HeldoutDocuments
from lm.data.scripts import script
from lm.evaluate.bits_per_byte import Grouping
from tokenizer.corpus.origins import documents_by_origin
from tokenizer.durable import replacing
from tokenizer.errors import UserError
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.store.artifacts import Artifact

_ARRAYS = "documents.npz"
# Increased when the rules for grouping documents change.
_VERSION = 1


def describe(context: Context, text: Text) -> Artifact[HeldoutDocuments]:
    """Find the source and the script of every held-out document, and hash the documents.

    Raises:
        UserError: If the records do not have the field that `corpus.source_field` names.
    """
    config = text.corpus.config

    def build(folder: Path) -> HeldoutDocuments:
        sources: list[str] = []
        scripts: list[str] = []
        sizes: list[int] = []
        found = hashlib.sha256()
        for source, document in documents_by_origin(text.corpus, "heldout"):
            sources.append(source)
            scripts.append(script(document))
            data = document.encode()
            sizes.append(len(data))
            found.update(sizes[-1].to_bytes(8, "little") + data)
        names: dict[str, list[str]] = {}
        arrays: dict[str, Any] = {"bytes": np.array(sizes, np.int64)}
        for key, values in (("source", sources), ("script", scripts)):
            names[key], arrays[key] = _indexed(values)
        with replacing(folder / _ARRAYS) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        return HeldoutDocuments(
            corpus=text.hash, split="heldout", n_documents=len(sizes), names=names, sha256=found.hexdigest()
        )

    with context.reporter.stage("documents"):
        artifact = context.store.make(
            HeldoutDocuments,
            "documents",
            config={"source_field": config.source_field, "version": _VERSION, **text.heldout_identity()},
            inputs={"corpus": text.hash},
            build=build,
        )
    found = artifact.contents.names
    what = f"heldout: {artifact.contents.n_documents:,} documents of {len(found['source']):,} sources, scripts: "
    context.done("documents", artifact, what + ", ".join(found["script"]))
    return artifact


def groupings(artifact: Artifact[HeldoutDocuments], document_bytes: NDArray[np.int64]) -> Mapping[str, Grouping]:
    """Load the groupings that `describe` found.

    Args:
        artifact: Artifact returned by `describe`.
        document_bytes: int64[n_documents], sizes of the documents in the held-out shards.

    Raises:
        UserError: If the shards hold other documents.
    """
    arrays = read_arrays(artifact.path / _ARRAYS, "delete its folder and run again")
    if not np.array_equal(arrays["bytes"], document_bytes):
        raise UserError(
            f"{artifact.path} describes other documents than the held-out shards hold; delete both and run again"
        )
    return {key: Grouping(tuple(names), arrays[key]) for key, names in artifact.contents.names.items()}


def _indexed(values: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Distinct values in order of first appearance, and the index of each value among them."""
    places = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return list(places), np.array([places[value] for value in values], np.int32)
