"""The held-out documents: their text, and size, hash, source and script of each. They do not depend on the tokenizer.

They are looked for once, while the corpus is counted. Later stages read the copy that is written here.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from experiments.results import HeldoutDocuments
from experiments.store.artifacts import Wanted
from lm.data.survey import Survey, joined
from lm.evaluate.bits_per_byte import KIND, SOURCE, Grouping, sampling_units
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.durable import replacing
from tokenizer.errors import UserError, did_you_mean, quoted
from tokenizer.files import read_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact

_ARRAYS, _TEXT = "documents.npz", "documents.jsonl.zst"
# More are titles rather than kinds.
_MOST_KINDS = 100
# Increased when the rules for grouping documents change, or the files.
_VERSION = 4


class Copy:
    """A copy of the held-out documents, and facts about each, which parts of the corpus are added to in order."""

    def __init__(self, folder: Path, target: pa.NativeFile) -> None:
        self._folder, self._target = folder, target
        self._surveys: list[Survey] = []

    def add(self, texts: BinaryIO, facts: Survey) -> None:
        """Add documents, as JSON lines."""
        shutil.copyfileobj(texts, self._target)
        self._surveys.append(facts)

    def save(self, text: Text) -> HeldoutDocuments:
        """Write the facts, after all documents."""
        documents = joined(self._surveys)
        if not len(documents):
            next(text.corpus.batches("heldout"))  # explains why there are none
        with replacing(self._folder / _ARRAYS) as file:
            np.savez_compressed(
                file, allow_pickle=False, bytes=documents.n_bytes, source=documents.source, script=documents.script,
                hash=documents.hashes,
            )  # fmt: skip
        return HeldoutDocuments(
            corpus=text.hash,
            split="heldout",
            n_documents=len(documents),
            names={"source": documents.sources, "script": documents.scripts},
            sha256=hashlib.sha256(documents.hashes.data).hexdigest(),
            skipped=text.corpus.skipped.summary(),
        )


@contextmanager
def copying(folder: Path | None) -> Iterator[Copy | None]:
    """Yield a copy to add documents to, in a folder; None without one."""
    if folder is None:
        yield None
        return
    import pyarrow as pa  # slow to import

    with replacing(folder / _TEXT) as file, pa.CompressedOutputStream(file, "zstd") as target:
        yield Copy(folder, target)


def wanted(text: Text) -> Wanted:
    """The artifact: a copy of the held-out documents, and the size, hash, source and script of each."""
    config = {
        **{key: getattr(text.corpus.config, key) for key in ("kind_field", "kinds", "source_field")},
        "version": _VERSION,
        **text.heldout_identity(),
    }
    return Wanted(HeldoutDocuments, "documents", config, {"corpus": text.hash})


def show(context: Context, documents: Artifact[HeldoutDocuments]) -> None:
    """Report the held-out documents."""
    held = documents.contents
    scripts = ", ".join(held.names["script"])
    what = f"heldout: {held.n_documents:,} documents, sources: {len(held.names['source']):,}, scripts: {scripts}"
    context.done("documents", documents, what)


def reread(artifact: Artifact[HeldoutDocuments]) -> Corpus:
    """The held-out documents as a corpus, all of which is held out."""
    copy = str(artifact.path / _TEXT)
    # They have passed the limits of the corpus already; JSON may write six bytes for one.
    return Corpus(CorpusConfig(heldout_paths=[copy], min_document_bytes=0, document_limit_bytes=1 << 40))


def sizes(artifact: Artifact[HeldoutDocuments], unit: str) -> NDArray[np.int64]:
    """Bytes of every held-out text, with its copies, or of every source."""
    arrays = read_arrays(artifact.path / _ARRAYS, "delete its folder and run again")
    index = sampling_units(arrays["hash"], arrays["source"] if unit == SOURCE else None)
    return np.bincount(index, arrays["bytes"]).astype(np.int64)


def hashes(artifact: Artifact[HeldoutDocuments]) -> NDArray[np.uint64]:
    """uint64[n_documents], hashes of the held-out documents."""
    return read_arrays(artifact.path / _ARRAYS, "delete its folder and run again")["hash"]


def groupings(artifact: Artifact[HeldoutDocuments], document_bytes: NDArray[np.int64]) -> Mapping[str, Grouping]:
    """Load the groupings, and one by kind if all sources are named `KIND: NAME`.

    Args:
        artifact: The held-out documents.
        document_bytes: int64[n_documents], sizes of the documents in the held-out shards.

    Raises:
        UserError: If the shards hold other documents.
    """
    arrays = read_arrays(artifact.path / _ARRAYS, "delete its folder and run again")
    if not np.array_equal(arrays["bytes"], document_bytes):
        raise UserError(
            f"{artifact.path} describes other documents than the held-out shards hold; delete both and run again"
        )
    groups = {key: Grouping(tuple(names), arrays[key]) for key, names in artifact.contents.names.items()}
    kinds = kinds_of(groups[SOURCE].names)
    if kinds is not None:
        groups[KIND] = Grouping(kinds.names, kinds.index[groups[SOURCE].index])
    return groups


def check_weights(kinds: Grouping | None, weights: Mapping[str, float]) -> None:
    """Raise a UserError if `eval.weights` names a kind that the held-out text does not have."""
    if weights and kinds is None:
        raise UserError(
            f"eval.weights={dict(weights)}, but the held-out text has no kinds; name them by corpus.kind_field, "
            "corpus.kinds, or a corpus.source_field with values such as 'code: numpy', or remove eval.weights"
        )
    for name in weights:
        if kinds is not None and name not in kinds.names:
            hint = did_you_mean(name, kinds.names)
            raise UserError(f"eval.weights has {quoted(name)}{hint}; the kinds of text are: {', '.join(kinds.names)}")


def kinds_of(sources: Sequence[str]) -> Grouping | None:
    """Kind of each source; None unless all sources are named `KIND: NAME`, with at most 100 kinds."""
    kinds, colons, _ = zip(*(name.partition(": ") for name in sources), strict=True)
    names: dict[str, int] = {}
    index = [names.setdefault(kind, len(names)) for kind in kinds]
    if not all(colons) or len(names) > _MOST_KINDS:
        return None
    return Grouping(tuple(names), np.array(index, np.int32))
