"""Counts of the distinct pretokens of a corpus: the input of phase 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from tokenizer import _native, patterns
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.counted import CountedTexts, is_counts
from tokenizer.corpus.rows import parquet_errors
from tokenizer.corpus.seen import Read, Recorder
from tokenizer.corpus.sources import Source, sources_of
from tokenizer.corpus.texts import Text
from tokenizer.definition import check_special_tokens
from tokenizer.durable import is_damage, replacing, write_whole
from tokenizer.errors import UserError, check_choice, check_whole, quoted
from tokenizer.files import check_file, temporary_folder
from tokenizer.patterns import Pattern
from tokenizer.progress import Progress, Throttle, thread_count
from tokenizer.special import END_OF_TEXT

DEFAULT_MEMORY_BYTES = 4 << 30
DEFAULT_SPECIAL_TOKENS = (END_OF_TEXT,)

Countable: TypeAlias = "Text | Mapping[str, int] | Mapping[bytes, int] | CountedTexts | Source | Sequence[Source]"
"""A text of any kind, texts with counts, or weighted sources of these."""

BATCH_BYTES = 1 << 20  # several batches are in memory per thread; larger ones are not faster
_METADATA_KEY = b"superbpe.counts"
_FORMAT_VERSION = 2


@dataclass(frozen=True, eq=False, repr=False)
class PretokenCounts:
    """Distinct pretokens, sorted by their bytes, and how often each occurs.

    Attributes:
        data: uint8, all pretokens concatenated.
        offsets: int64 [n_distinct + 1] into `data`.
        counts: uint64 [n_distinct].
        pattern: pretokenization pattern.
        unit: "document" or "line"; no pretoken crosses its end.
        special_tokens: strings that are cut out of the text first and are not counted.
        n_bytes: bytes of counted text, including special strings; multiplied by the weights in a mixture.
        n_documents: number of counted documents; multiplied by the weights in a mixture.
        read: record of the text; None if it is unknown.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]
    pattern: Pattern
    unit: str
    special_tokens: tuple[str, ...]
    n_bytes: int
    n_documents: int
    read: Read | None = None

    def _about(self) -> tuple[Any, ...]:
        return self.pattern, self.unit, self.special_tokens, self.n_bytes, self.n_documents

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        arrays = ((getattr(self, name), getattr(other, name)) for name in ("counts", "offsets", "data"))
        return self._about() == other._about() and all(np.array_equal(*pair) for pair in arrays)

    def __hash__(self) -> int:
        return hash((self._about(), self.n_distinct))

    def __repr__(self) -> str:
        return (
            f"<PretokenCounts: {self.n_distinct:,} distinct of {self.n_total:,} pretokens, {self.pattern}, "
            f"{self.n_bytes:,} bytes in {self.n_documents:,} documents>"
        )

    @property
    def n_distinct(self) -> int:
        """Number of distinct pretokens."""
        return len(self.counts)

    @property
    def n_total(self) -> int:
        """Number of pretokens in the corpus."""
        # High and low halves are summed separately: the total of a mixture may exceed 64 bits.
        return (int((self.counts >> np.uint64(32)).sum()) << 32) + int((self.counts & np.uint64(2**32 - 1)).sum())

    def at_least(self, count: int) -> PretokenCounts:
        """Those that occur at least so often."""
        if count <= 1:
            return self
        kept = self.counts >= np.uint64(count)
        lengths = np.diff(self.offsets)
        return replace(
            self,
            data=self.data[np.repeat(kept, lengths)],
            offsets=np.concatenate([[0], np.cumsum(lengths[kept])]),
            counts=self.counts[kept],
        )

    @property
    def settings(self) -> dict[str, object]:
        """The settings that counts must share to be added up, by name."""
        return {"pattern.regex": self.pattern.regex, "unit": self.unit, "special_tokens": self.special_tokens}

    def items(self) -> Iterable[tuple[bytes, int]]:
        """Pairs of (pretoken, count), sorted by bytes; for inspection and tests."""
        data = self.data.tobytes()
        for i, count in enumerate(self.counts):
            yield data[self.offsets[i] : self.offsets[i + 1]], int(count)

    def save(self, path: str | Path) -> None:
        """Write a Parquet file with the columns `bytes` and `count`, and a `.npy` of the hashes of the documents."""
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
            "read": self.read,
        }
        table = pa.table({"bytes": pretokens, "count": pa.array(self.counts)})
        table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(about).encode()})
        try:
            hashes = _hashes_of(Path(path))
            hashes.unlink(missing_ok=True)  # of earlier counts
            if self.read is not None and self.read.hashes is not None:
                write_whole(hashes, self.read.data())
            with replacing(Path(path)) as file:
                pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        except (FileNotFoundError, IsADirectoryError):
            raise UserError(f"{path} cannot be written: name a file in an existing folder") from None

    @classmethod
    def load(cls, path: str | Path) -> PretokenCounts:
        """Read a file written by `save`.

        Raises:
            UserError: the file is missing, damaged, or not a file of pretoken counts.
        """
        path = Path(path)
        try:
            check_file(path)
            return cls._read(path)
        except FileNotFoundError:
            raise UserError(f"no pretoken counts at {path}; make them with `superbpe pipeline --until count`") from None
        except parquet_errors() as error:
            if isinstance(error, UserError) or not is_damage(error):
                raise
            raise UserError(
                f"{path} is not a file of pretoken counts, or is damaged; `superbpe pipeline --until count` writes "
                "them to files named counts.parquet"
            ) from None

    @classmethod
    def _read(cls, path: Path) -> PretokenCounts:
        """Counts from a file that may be damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(path, page_checksum_verification=True)
        about = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, b"{}"))
        if not isinstance(about, dict) or about.get("version") != _FORMAT_VERSION:
            raise UserError(f"{path} is not a file of pretoken counts of format version {_FORMAT_VERSION}; count again")
        pretokens = pa.concat_arrays(table["bytes"].cast(pa.large_binary()).chunks)
        # After concatenation the array starts at offset 0, so its buffers can be used directly.
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
            read=None if about.get("read") is None else Read.load(about["read"], _hashes_of(path)),
        )


class Cut(NamedTuple):
    """How text is cut into pretokens; see `count_pretokens`."""

    pattern: Pattern
    unit: str
    special_tokens: tuple[str, ...]

    @classmethod
    def of(cls, pattern: str | Pattern, unit: str, special_tokens: Sequence[str]) -> Cut:
        """Check the arguments of `count_pretokens`."""
        resolved = patterns.resolve(pattern)
        check_special_tokens(special_tokens)
        check_choice("unit", unit, ("document", "line"))
        return cls(resolved, unit, tuple(special_tokens))


class Counters:
    """Counts the pretokens of a text that is cut in several ways. Made by `counting`.

    Attributes:
        cuts: the ways.
        recorder: records the text.
        n_bytes: bytes of text so far.
    """

    def __init__(self, counters: Sequence[tuple[Cut, _native.PretokenCounter]]) -> None:
        self.cuts = [cut for cut, _ in counters]
        self.recorder = Recorder()
        self.n_bytes = 0
        self._counters = counters
        self._n_documents = 0
        self._lock = Lock()
        self._failure: BaseException | None = None

    def add(self, batch: _native.Batch, *, record: bool = False) -> None:
        """Count a batch; several threads may. With `record`, the recorder gets it, too.

        After a failure, every call raises it: a counter that has failed says no more why.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if record:
                self.recorder.add(batch)
            try:
                for _, counter in self._counters:
                    counter.add(batch)
            except BaseException as error:
                self._failure = error
                raise
            self.n_bytes += batch.n_bytes
            self._n_documents += len(batch)

    def finish(self) -> list[PretokenCounts]:
        """The counts of each cut."""
        about: dict[str, Any] = {"n_bytes": self.n_bytes, "n_documents": self._n_documents}
        about["read"] = self.recorder.read()
        return [PretokenCounts(*counter.finish(), *cut, **about) for cut, counter in self._counters]


@contextmanager
def counting(
    cuts: Sequence[Cut], *, threads: int, memory_bytes: int | None, spill_folder: Path | str | None
) -> Iterator[Counters]:
    """Count text that is cut in several ways, see `count_pretokens`; all together have the given memory."""
    if memory_bytes is not None:
        check_whole("memory_bytes", memory_bytes, 1)
        memory_bytes = min(max(1, memory_bytes // max(1, len(cuts))), 2**62)
    counters = []
    with ExitStack() as stack:
        for cut in cuts:
            counter = _native.PretokenCounter(
                cut.pattern.regex,
                unit=cut.unit,
                special_tokens=list(cut.special_tokens),
                threads=threads,
                memory_bytes=memory_bytes,
                spill_folder=str(stack.enter_context(temporary_folder(spill_folder))),
            )
            stack.callback(counter.close)
            counters.append((cut, counter))
        yield Counters(counters)


class Counting(TypedDict, total=False):
    """Arguments of `count_pretokens`, for functions that count."""

    pattern: str | Pattern
    unit: str
    field: str
    pretokenized: bool
    threads: int | None
    memory_bytes: int | None
    spill_folder: Path | str | None


def _hashes_of(path: Path) -> Path:
    """File of the hashes of the documents that were counted."""
    return path.with_name(f"{path.name}.documents.npy")


def count_pretokens(
    text: Countable,
    pattern: str | Pattern,
    *,
    unit: str = "document",
    field: str = "text",
    special_tokens: Sequence[str] = DEFAULT_SPECIAL_TOKENS,
    prepare: Callable[[_native.Batch], _native.Batch] | None = None,
    pretokenized: bool = False,
    threads: int | None = None,
    memory_bytes: int | None = DEFAULT_MEMORY_BYTES,
    spill_folder: Path | str | None = None,
    progress: Progress | None = None,
) -> PretokenCounts:
    """Count the distinct pretokens of a corpus. Threads, memory limit and batches do not change the result.

    Args:
        text: a corpus, whose training split is counted; files as `pathlib.Path`; strings, a column or rows: see
            `tokenizer.corpus.texts.Text`. An iterator is read once, in bounded memory. A mapping from texts (words,
            lines) to counts below 2^63 stands for a text that contains each as a document that often. The counts of
            sources (`Source`, `CorpusConfig.sources`) are multiplied by their weights.
        pattern: a name of `tokenizer.patterns.NAMES`, or a regex.
        unit: "document", or "line" (lines including their line feed, as HF reads files).
        field: field that holds the text, if `text` is rows or files of records.
        special_tokens: strings that are cut out of the text before the pattern applies.
        prepare: applied to the text before it is counted, such as `Tokenizer.normalized`; None for nothing.
        pretokenized: whether each document is one pretoken, which neither pattern, unit nor special tokens cut.
        threads: worker threads; None for SUPERBPE_THREADS or all cores.
        memory_bytes: limit for the tables of all threads; above it, sorted runs are written to disk and merged at the
            end. Does not include the returned counts, the text being read and the interpreter: a limit of 64 MB took
            186 MB for 396 MB of text with 1.6 million distinct pretokens. None for no limit.
        spill_folder: parent of the temporary folder for these runs, which is deleted at the end; None for the
            system's temporary folder.
        progress: called with the number of bytes done.

    Raises:
        UserError: the corpus is empty, the pattern or unit is unknown, or a folder cannot be written.
    """
    cut, n_threads = Cut.of(pattern, unit, special_tokens), thread_count(threads)
    used = Cut(patterns.resolve("none"), "document", ()) if pretokenized else cut
    settings: dict[str, Any] = {"threads": n_threads, "memory_bytes": memory_bytes, "spill_folder": spill_folder}

    def count(source: Any) -> PretokenCounts:
        """Counts of one source."""
        if isinstance(source, Mapping) and is_counts(source):
            source = CountedTexts.of(source)
        if isinstance(source, CountedTexts):
            return _count_times(source, count)
        with counting([used], **settings) as counters:
            # Reading a compressed file takes about half the time of counting it.
            reading = {"readers": (n_threads + 1) // 2, "in_order": False, "batch_bytes": BATCH_BYTES}
            batches = counters.recorder.batches(source, field=field, **reading)
            tick = Throttle(progress, "bytes counted")
            for batch in batches if prepare is None else map(prepare, batches):
                counters.add(batch)
                tick(counters.n_bytes)
            tick.finish(counters.n_bytes)
            if counters.n_bytes == 0 and not (isinstance(source, Corpus) and source.is_part):
                raise UserError("the corpus is empty; name files that contain text")
            return replace(counters.finish()[0], **cut._asdict())

    parts = [(count(source.batches), source.weight) for source in sources_of(text)]
    return parts[0][0] if [weight for _, weight in parts] == [1] else mix_counts(parts)


def _count_times(texts: CountedTexts, count: Callable[[Any], PretokenCounts]) -> PretokenCounts:
    """Count texts that occur several times: `count` counts each once for every binary digit of its number."""
    parts = []
    for bit in range(63):
        chosen = texts.counts >> np.uint64(bit) & np.uint64(1) == 1
        if chosen.any():
            parts.append((count(texts.texts.filter(chosen)), 1 << bit))
    return replace(mix_counts(parts), read=None)  # the documents of the text are unknown


def read_counts(
    corpus: Corpus,
    pattern: str | Pattern | None = None,
    *,
    unit: str | None = None,
    special_tokens: Sequence[str] = DEFAULT_SPECIAL_TOKENS,
    **counting: Any,
) -> PretokenCounts:
    """Counts that files contain, added up, times the weights of the corpus's sources.

    Args:
        corpus: files that `PretokenCounts.save` wrote, and Parquet, CSV, JSON or JSON lines whose records have a text
            (`corpus.config.field`) and its `count`, a whole number from 0 to 2^63 - 1. Counts of the same text add up.
        pattern: cuts the texts of other files; None for the pattern of saved counts, or else
            `tokenizer.patterns.FULL_STRENGTH`.
        unit: as for `count_pretokens`; None for the unit of saved counts, or else "document".
        special_tokens: as for `count_pretokens`.
        counting: further arguments of `count_pretokens`.

    Raises:
        UserError: a file has no counts or a wrong one, saved counts have other settings, or a sum does not fit in 64
            bits.
    """
    if not corpus.files or (left_out := corpus.selection("all")):
        what = left_out[0] if corpus.files else f"the dataset {corpus.config.dataset}"
        raise UserError(f"counts are read from whole files, without {what}; leave it out")
    saved = {path: PretokenCounts.load(str(path)) for path, form in corpus.files if _is_saved(path, form)}
    known = next(iter(saved.values()), None)
    pattern = pattern or (known.pattern if known else patterns.FULL_STRENGTH)
    unit = unit or (known.unit if known else "document")
    asked = {"pattern.regex": patterns.resolve(pattern).regex, "unit": unit, "special_tokens": tuple(special_tokens)}
    for path, counts in saved.items():
        _check_same(asked, counts.settings, f"the settings and those of {path}")
    parts = []
    for _, source, weight in corpus.by_source():
        parts += [(saved[path], weight) for path, _ in source.files if path in saved]
        if files := [file for file in source.files if file[0] not in saved]:
            texts = CountedTexts.read(source, files)
            options = {"unit": unit, "special_tokens": special_tokens, **counting}
            parts.append((count_pretokens(texts, pattern, **options), weight))
    return mix_counts(parts)


def _is_saved(path: Any, form: str) -> bool:
    """Whether `PretokenCounts.save` wrote a file."""
    import pyarrow.parquet as pq

    if form == "parquet" and isinstance(path, Path):
        with suppress(*parquet_errors()):  # a damaged file is reported when it is read
            return _METADATA_KEY in (pq.read_schema(path).metadata or {})
    return False


def mix_counts(parts: Sequence[tuple[PretokenCounts, int]]) -> PretokenCounts:
    """Add up the counts of several corpora, each multiplied by its weight: a data mixture.

    Args:
        parts: (counts, weight); weights are positive integers, so that counts stay exact.

    Raises:
        UserError: there are no parts, a weight is not a positive integer, the parts were counted with different
            settings, or a sum does not fit in 64 bits.
    """
    pairs: Any = parts
    for part in pairs if isinstance(pairs, Sequence) and pairs else [pairs]:
        if not (isinstance(part, Sequence) and len(part) == 2 and isinstance(part[0], PretokenCounts)):
            raise UserError(f"no counts to add up: {quoted(part)} is not a pair; write mix_counts([(counts, 1), ...])")
    first = parts[0][0]
    for counts, weight in parts:
        if type(weight) is not int or weight < 1:
            raise UserError(f"weight={weight!r} is not a positive integer; scale all weights to integers")
        _check_same(first.settings, counts.settings, "the counts to add up")
    data, offsets, totals = _native.sum_counts(
        [(counts.data, counts.offsets, counts.counts, weight) for counts, weight in parts]
    )
    return replace(
        first,
        data=data,
        offsets=offsets,
        counts=totals,
        n_bytes=sum(counts.n_bytes * weight for counts, weight in parts),
        n_documents=sum(counts.n_documents * weight for counts, weight in parts),
        read=Recorder([counts.read for counts, _ in parts]).read(),
    )


def _check_same(one: Mapping[str, object], other: Mapping[str, object], what: str) -> None:
    """Raise a UserError if settings of counts differ."""
    for name, value in one.items():
        if value != other[name]:
            raise UserError(
                f"{what} differ in their {name}: {quoted(value)} and {quoted(other[name])}; count all text with the "
                "same settings"
            )
