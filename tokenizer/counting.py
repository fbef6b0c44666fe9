"""Corpus to counts of distinct pretokens: what phase 1 trains on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenizer import _native, patterns
from tokenizer.errors import UserError
from tokenizer.patterns import Pattern
from tokenizer.progress import Progress, Throttle, thread_count

_METADATA_KEY = b"superbpe.counts"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class PretokenCounts:
    """Distinct pretokens, sorted by their bytes, and how often each occurs.

    Attributes:
        data: uint8, all pretokens laid end to end.
        offsets: int64 [n_distinct + 1] into `data`.
        counts: uint64 [n_distinct].
        pattern: what cut them.
        unit: "document" or "line"; no pretoken crosses its end.
        special_tokens: strings that cut the text first and are counted nowhere.
        n_bytes: bytes of text that were counted, special strings included.
        n_documents: documents that were counted.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]
    pattern: Pattern
    unit: str
    special_tokens: tuple[str, ...]
    n_bytes: int
    n_documents: int

    @property
    def n_distinct(self) -> int:
        """Distinct pretokens."""
        return len(self.counts)

    @property
    def n_total(self) -> int:
        """Pretokens of the corpus."""
        return int(self.counts.sum())

    def items(self) -> Iterable[tuple[bytes, int]]:
        """Pairs of (pretoken, count), in order of bytes; for inspection and tests."""
        data = self.data.tobytes()
        for i, count in enumerate(self.counts):
            yield data[self.offsets[i] : self.offsets[i + 1]], int(count)

    def save(self, path: Path) -> None:
        """Writes a Parquet file with columns `bytes` and `count`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        pretokens = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), self.n_distinct, [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        )
        about = {
            "version": _FORMAT_VERSION,
            "pattern": {"name": self.pattern.name, "regex": self.pattern.regex},
            "unit": self.unit,
            "special_tokens": list(self.special_tokens),
            "n_bytes": self.n_bytes,
            "n_documents": self.n_documents,
        }
        table = pa.table({"bytes": pretokens, "count": pa.array(self.counts)})
        table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(about).encode()})
        pq.write_table(table, path, compression="zstd")

    @classmethod
    def load(cls, path: Path) -> PretokenCounts:
        """Reads what `save` wrote.

        Raises:
            UserError: the file is missing or is not such a file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not path.is_file():
            raise UserError(f"no pretoken counts at {path}; make them with `python -m experiments.count`")
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(f"{path} is damaged ({error}); count again") from None
        about = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b"{}"))
        if about.get("version") != _FORMAT_VERSION:
            raise UserError(f"{path} does not hold pretoken counts of format {_FORMAT_VERSION}; count again")
        pretokens = pa.concat_arrays(table["bytes"].cast(pa.large_binary()).chunks)
        # A lone array starts at offset 0 after concatenation, so that its buffers can be used as they are.
        _, offsets, data = pretokens.buffers()
        return cls(
            data=np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8),
            offsets=np.frombuffer(offsets, np.int64)[: len(pretokens) + 1],
            counts=table["count"].to_numpy(),
            pattern=Pattern(**about["pattern"]),
            unit=about["unit"],
            special_tokens=tuple(about["special_tokens"]),
            n_bytes=about["n_bytes"],
            n_documents=about["n_documents"],
        )


def count_pretokens(
    batches: Iterable[_native.Batch],
    pattern: str | Pattern,
    *,
    unit: str = "document",
    special_tokens: Sequence[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> PretokenCounts:
    """Counts the distinct pretokens of a corpus. The result does not depend on batches or threads.

    Args:
        batches: documents, for example `Corpus.batches()`.
        pattern: a name of `tokenizer.patterns.NAMES`, or a regex.
        unit: "document", or "line" (lines with their line feed, as HF reads files).
        special_tokens: strings that cut the text before the pattern does.
        threads: worker threads; None for SUPERBPE_THREADS or all cores.
        progress: called with bytes of text done.

    Raises:
        UserError: nothing to count, an unknown pattern or unit.
    """
    resolved = patterns.resolve(pattern)
    counter = _native.PretokenCounter(
        resolved.regex, unit=unit, special_tokens=list(special_tokens), threads=thread_count(threads)
    )
    tick = Throttle(progress, "bytes counted")
    n_bytes = n_documents = 0
    for batch in batches:
        if not isinstance(batch, _native.Batch):
            raise UserError(
                f"batches holds {type(batch).__name__}, not Batch; use [Batch.from_texts(texts)] for strings"
            )
        counter.add(batch)
        n_bytes += batch.n_bytes
        n_documents += len(batch)
        tick(n_bytes)
    tick.finish(n_bytes)
    if n_bytes == 0:
        raise UserError("the corpus is empty: there is no text to count")
    data, offsets, counts = counter.finish()
    return PretokenCounts(
        data, offsets, counts, resolved, unit, tuple(special_tokens), n_bytes=n_bytes, n_documents=n_documents
    )
