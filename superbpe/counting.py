"""One pass of phase 2 over a corpus: in this process, or over its parts in other processes or on other machines.

Partial results of a pass are sums, so they add up to the result of a single process, whatever the parts are. This holds
for seams, too: their counters saturate at a value that no threshold exceeds. Each part's result is a Parquet file of
keys and counts. Files are merged in groups until few are left; this process adds those up.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from superbpe.sources import Selection, Source, check_not_empty
from superbpe.transition import Merges
from tokenizer import _native
from tokenizer.corpus.rows import parquet_errors
from tokenizer.durable import is_damage, replacing
from tokenizer.errors import UserError
from tokenizer.files import check_file, check_free, digest
from tokenizer.progress import Progress, Throttle
from tokenizer.tokenizer import Tokenizer

Kind = Literal["spans", "seams", "fragments"]
TABLES: dict[Kind, tuple[str, ...]] = {
    "spans": ("lengths",),
    "seams": ("seams", "tokens", "sample"),
    "fragments": ("fragments",),
}
"""Tables of the core that each pass fills."""
_SUMS = ("documents", "bytes", "tokens", "spans", "seams", "dead_seams")
_MEASURED = "bytes measured for a sample"
_METADATA_KEY = b"superbpe.pass"
_FORMAT_VERSION = 1
_ROWS = 1 << 18  # rows per row group, which bounds the memory for reading


class MemoryFullError(Exception):
    """The fragments of a pass exceed the memory limit."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over the corpus.

    Attributes:
        kind: "spans" measures the lengths of spans; "seams" counts seams and tokens; "fragments" counts fragments.
        sample_every: seams: one in this many pieces is also sampled; 0 for no sample.
        threshold: fragments: seams that occur less often are cut.
        memory_bytes: fragments: memory limit for the fragments and a merge loop over them; None for no limit.
    """

    kind: Kind
    sample_every: int = 0
    threshold: int = 1
    memory_bytes: int | None = None

    @property
    def title(self) -> str:
        """Unit of the progress."""
        fragments = f"bytes: fragments between seams of {self.threshold:,} or more"
        return {"spans": "bytes measured", "seams": "bytes: seams", "fragments": fragments}[self.kind]

    def check_memory(self, trainer: _native.SuperwordTrainer) -> None:
        """Stop a pass that exceeds the memory limit.

        Raises:
            MemoryFullError: the fragments exceed the limit.
        """
        if self.kind == "fragments" and self.memory_bytes is not None and trainer.memory > self.memory_bytes:
            raise MemoryFullError

    def count(
        self, trainer: _native.SuperwordTrainer, sources: Sequence[Source], tick: Throttle, *, whole: bool
    ) -> dict[str, int]:
        """Run the pass in this process; returns the number of bytes read by the names of the sources.

        Args:
            trainer: gets the result.
            sources: the text.
            tick: reports bytes.
            whole: whether the sources are the whole corpus, so that none may be empty.

        Raises:
            MemoryFullError: the fragments exceed the memory limit.
        """
        trainer.begin_pass()
        n_bytes = _read(sources, partial(self._add, trainer), tick, whole=whole)
        trainer.end_pass()
        return n_bytes

    def _add(self, trainer: _native.SuperwordTrainer, source: Source, batch: _native.Batch) -> None:
        if self.kind == "spans":
            trainer.measure_spans(batch, source.weight)
        elif self.kind == "seams":
            trainer.count_seams(batch, source.weight, sample_every=self.sample_every)
        else:
            trainer.count_fragments(batch, source.weight, threshold=self.threshold)
            self.check_memory(trainer)


@dataclass
class State:
    """A trainer, and what another process needs to make one that counts the same.

    Attributes:
        settings: arguments of `_native.SuperwordTrainer` except `threads`.
        trainer: the trainer, which gets the results of passes.
        selection: the documents to read.
        longest: spans are truncated to this many phase-1 tokens.
        merges: pairs of tokens that were merged so far, which passes apply to the text.
    """

    settings: dict[str, Any]
    trainer: _native.SuperwordTrainer
    selection: Selection = field(default_factory=Selection)
    longest: int | None = None
    merges: list[tuple[int, int]] = field(default_factory=list)

    def truncate(self, quantile: float) -> None:
        """Truncate spans to a quantile of the lengths that the last pass has measured."""
        self.longest = self.trainer.truncate_spans(quantile)

    def start_over(self, merges: Merges) -> None:
        """Apply the merges that the trainer has found so far in the following passes."""
        self.trainer.start_over()
        self.merges = list(zip(merges.left.tolist(), merges.right.tolist(), strict=True))


class Runner(Protocol):
    """Text that passes can be run over."""

    def n_bytes(self, selection: Selection, progress: Progress | None) -> int:
        """Number of bytes of the selected documents."""

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """Run a pass; its result is then in the trainer, as if the trainer had counted all text itself.

        Raises:
            MemoryFullError: the fragments exceed the memory limit.
            UserError: a source is empty. Without this check, a missing language could go unnoticed.
        """


@dataclass(frozen=True)
class Local:
    """Sources that this process reads."""

    sources: Sequence[Source]

    def n_bytes(self, selection: Selection, progress: Progress | None) -> int:
        """See `Runner`."""
        return sum(_measure(selection, self.sources, progress, whole=True).values())

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """See `Runner`."""
        pass_.count(state.trainer, state.selection.of(self.sources), Throttle(progress, pass_.title), whole=True)


class Task(NamedTuple):
    """What a process needs to run a pass over a part, besides the part. It can be pickled.

    Attributes:
        name: hash of everything that determines the result; the same for all parts.
        pass_: the pass; its threshold refers to `live_seams`.
        settings, selection, longest, merges: see `State`.
        live_seams: for fragments: which seams are not cut (one bit for each counter, 512 kB).
        threads: threads of each process.
    """

    name: str
    pass_: Pass
    settings: dict[str, Any]
    selection: Selection
    longest: int | None
    merges: list[tuple[int, int]]
    live_seams: bytes | None
    threads: int

    def trainer(self) -> _native.SuperwordTrainer:
        """A trainer in the state of the one that the pass belongs to."""
        trainer = _native.SuperwordTrainer(**self.settings, threads=self.threads)
        if self.longest is not None:
            trainer.set_longest(self.longest)
        trainer.apply(self.merges)
        if self.live_seams is not None:
            trainer.set_live_seams(self.live_seams)
        return trainer


class Partial(NamedTuple):
    """The result of a pass over some parts.

    Attributes:
        path: the file.
        n_bytes: number of bytes by the names of the sources.
        full: the fragments of these parts alone exceed the memory limit; the file contains no counts.
        size: bytes of the file.
    """

    path: str
    n_bytes: dict[str, int]
    full: bool
    size: int

    def check(self) -> None:
        """Stop a pass that exceeds the memory limit."""
        if self.full:
            raise MemoryFullError


Map = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Parts:
    """A corpus in parts, which other processes count: an argument of `train_superbpe`.

    The tokenizer equals that of a single process to the byte, whatever the parts are. So do its statistics, except that
    under a memory limit the threshold and the number of stages may depend on the number of threads.

    Attributes:
        parts: the parts, each a list of sources. The documents of all parts together are the corpus, and sources with
            the same name belong together. A part must be readable more than once, and picklable if `map` needs it:
            a `Corpus` (whose `field` counts, not that of `train_superbpe`), a list, or a function of a module.
        folder: folder for partial results, which all processes can read and write. Each takes at most as much space
            as the part's distinct fragments take in memory, and less than the memory limit. After the first part, and
            after every `fan_in` parts, the size of the others is estimated and compared with the free space.
        map: calls a function with each of a list of arguments, and returns the results in any order: `map`,
            `multiprocessing.Pool.imap_unordered`, or a function that starts tasks on a cluster. It may call the
            function more than once with the same argument. It is called several times for each pass, always with a
            function and arguments that can be pickled.
        threads: number of threads for each call.
        fan_in: number of files that are merged at a time.
        key: identifies the parts, for example by a hash of the corpus. With a key, results are kept in the folder, and
            another run with the same settings and key uses them again. None deletes each file after it is merged.
    """

    parts: Sequence[Sequence[Source]]
    folder: Path
    map: Map = map
    threads: int = 1
    fan_in: int = 16
    key: str | None = None

    def __post_init__(self) -> None:
        """Reject parts that cannot be read more than once.

        Raises:
            UserError: a part is an iterator, or there is no part.
        """
        if not any(self.parts):
            raise UserError("no sources given: name at least one text to train superwords on")
        if self.fan_in < 2:
            raise UserError(f"fan_in={self.fan_in} must be at least 2")
        for source in (source for part in self.parts for source in part):
            if isinstance(source.batches, Iterator):
                raise UserError(f"{source.name} is an iterator, which can be read only once: pass files or a function")

    def n_bytes(self, selection: Selection, progress: Progress | None) -> int:
        """See `Runner`."""
        tick, sums = Throttle(progress, _MEASURED), _Sums()
        for n_bytes in self._map(partial(measure_part, selection), list(self.parts)):
            tick(sums.add(n_bytes))
        check_not_empty(sums)
        return sum(sums.values())

    def run(self, state: State, pass_: Pass, progress: Progress | None) -> None:
        """See `Runner`."""
        task = self._task(state, pass_)
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files(task, 0, len(self.parts))
        try:
            self._count(task, files, Throttle(progress, pass_.title))
            while len(files) > self.fan_in:
                files = self._merge(task, files)
            state.trainer.begin_pass()
            for file in files:
                _add_file(state.trainer, Path(file), task)
            state.trainer.end_pass()
        finally:
            self._remove(files)

    def _count(self, task: Task, files: Sequence[str], tick: Throttle) -> None:
        """Count all parts."""
        sums, n_written = _Sums(), 0
        for done, part in enumerate(self._map(partial(count_part, task), list(zip(self.parts, files, strict=True))), 1):
            tick(sums.add(part.n_bytes))
            part.check()
            n_written += part.size
            if done == 1 or done % self.fan_in == 0:
                check_free(
                    self.folder,
                    n_written * (len(files) - done) // done,
                    "results of the other parts",
                    "free some space, use another folder (runner.folder=FOLDER), or larger parts (runner.part_mb=…)",
                )
        tick.finish(sum(sums.values()))
        check_not_empty(sums)

    def _merge(self, task: Task, files: Sequence[str]) -> list[str]:
        """Merge files in groups; returns the files of the sums."""
        groups = [files[i : i + self.fan_in] for i in range(0, len(files), self.fan_in)]
        sums = self._files(task, len(files), len(groups))
        try:
            for part in self._map(partial(merge_parts, task), list(zip(groups, sums, strict=True))):
                part.check()
        except BaseException:
            self._remove(sums)
            raise
        self._remove(files)
        return sums

    def _task(self, state: State, pass_: Pass) -> Task:
        live = state.trainer.live_seams(pass_.threshold) if pass_.kind == "fragments" else None
        task = Task("", pass_, state.settings, state.selection, state.longest, state.merges, live, threads=self.threads)
        parts = {"key": self.key or os.urandom(16).hex(), "n": len(self.parts), "fan_in": self.fan_in}
        return task._replace(name=_digest(task, parts))

    def _files(self, task: Task, of: int, n: int) -> list[str]:
        """Paths of `n` files: results of single parts if `of` is 0, or else sums of `of` files in groups."""
        prefix = f"{task.pass_.kind}-{task.name[:16]}-{of:06}"
        return [str(self.folder / f"{prefix}-{i:06}.parquet") for i in range(n)]

    def _remove(self, files: Iterable[str]) -> None:
        if self.key is None:
            for file in files:
                Path(file).unlink(missing_ok=True)

    def _map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[Any]:
        results = iter(self.map(function, arguments))
        try:
            yield from results
        finally:
            # After an error, a generator can cancel its tasks.
            if (close := getattr(results, "close", None)) is not None:
                close()


class _Sums(dict[str, int]):
    """Bytes by name."""

    def add(self, n_bytes: Mapping[str, int]) -> int:
        """Add numbers of bytes; returns the total."""
        for name, n in n_bytes.items():
            self[name] = self.get(name, 0) + n
        return sum(self.values())


def _digest(task: Task, parts: Mapping[str, Any]) -> str:
    """Hash of everything that determines the results of a task."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return hashlib.sha256(value).hexdigest()
        if isinstance(value, Tokenizer):
            return value.sha256
        if isinstance(value, Pass | Selection):
            return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
        return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value

    content = task._asdict()
    content.pop("threads")
    return digest({"version": _FORMAT_VERSION, **plain(content), "parts": dict(parts)})


def _read(
    sources: Sequence[Source], add: Callable[[Source, _native.Batch], object], tick: Throttle, *, whole: bool
) -> dict[str, int]:
    """Pass all batches to `add`; returns the number of bytes by the names of the sources."""
    sums, done = _Sums(), 0
    for source in sources:
        n_bytes = {source.name: source.read(partial(add, source), tick, done) - done}
        if whole:
            check_not_empty(n_bytes)
        done = sums.add(n_bytes)
    tick.finish(done)
    return sums


def _measure(
    selection: Selection, sources: Sequence[Source], progress: Progress | None, *, whole: bool
) -> dict[str, int]:
    return _read(selection.of(sources), lambda *_: None, Throttle(progress, _MEASURED), whole=whole)


def measure_part(selection: Selection, part: Sequence[Source]) -> dict[str, int]:
    """Number of bytes of the selected documents of a part, by the names of its sources."""
    return _measure(selection, part, None, whole=False)


def count_part(task: Task, argument: tuple[Sequence[Source], str], progress: Progress | None = None) -> Partial:
    """Run a pass over a part, unless its result is there already.

    Args:
        task: the pass.
        argument: the part, and the path of the file to write its result to.
        progress: called with bytes of text.
    """
    part, path = argument
    if (found := _finished(Path(path), task)) is not None:
        return found
    trainer, full = task.trainer(), False
    tick = Throttle(progress, task.pass_.title)
    # Seams are looked up in `live_seams`, where those that reach the threshold count 1.
    pass_ = replace(task.pass_, threshold=1)
    n_bytes: dict[str, int] = {}
    try:
        n_bytes = pass_.count(trainer, task.selection.of(part), tick, whole=False)
    except MemoryFullError:
        full = True
    return _write(trainer, Path(path), task, n_bytes, full=full)


def merge_parts(task: Task, argument: tuple[Sequence[str], str]) -> Partial:
    """Add up the files of several parts, unless the result is there already.

    Args:
        task: the pass.
        argument: the paths of the files, and the path of the file to write their sum to.
    """
    files, path = argument
    if (found := _finished(Path(path), task)) is not None:
        return found
    trainer, sums, full = task.trainer(), _Sums(), False
    trainer.begin_pass()
    try:
        for file in files:
            sums.add(_add_file(trainer, Path(file), task))
        trainer.end_pass()
    except MemoryFullError:
        full = True
    return _write(trainer, Path(path), task, sums, full=full)


def _finished(path: Path, task: Task) -> Partial | None:
    """The result in a file that an earlier call has written; None if there is none."""
    if not path.exists():
        return None
    with _parquet(path) as file:
        return Partial(str(path), *_about(file, path, task), path.stat().st_size)


def _write(
    trainer: _native.SuperwordTrainer, path: Path, task: Task, n_bytes: Mapping[str, int], *, full: bool
) -> Partial:
    """Write the result of a pass, sorted by table and key."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lowest, sizes = trainer.sample_sizes()
    statistics = trainer.statistics
    about: dict[str, Any] = {
        "version": _FORMAT_VERSION,
        "task": task.name,
        "n_bytes": dict(n_bytes),
        "full": full,
        "statistics": {} if full else {name: statistics[name] for name in _SUMS},
        "sample": {"lowest": lowest, "sizes": sizes},
    }
    groups = [] if full else [group for table in TABLES[task.pass_.kind] for group in _groups(trainer, table)]
    checksum = _Checksum(about)
    for group in groups:
        checksum.update(*group)
    about["xxh3_128"] = checksum.hexdigest()
    schema = pa.schema([("table", pa.string()), ("key", pa.large_list(pa.uint32())), ("count", pa.uint64())])
    schema = schema.with_metadata({_METADATA_KEY: json.dumps(about).encode()})
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for name, keys, offsets, counts in groups:
            key = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(keys))
            names = pa.DictionaryArray.from_arrays(np.zeros(len(counts), np.int8), [name]).cast(pa.string())
            writer.write_table(pa.table([names, key, pa.array(counts)], schema=schema))
    return Partial(str(path), dict(n_bytes), full, path.stat().st_size)


_Group = tuple[str, npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.uint64]]


def _groups(trainer: _native.SuperwordTrainer, table: str) -> Iterator[_Group]:
    """The rows of a table in groups: keys, offsets into the keys, counts."""
    keys, offsets, counts = trainer.rows(table)
    for start in range(0, len(counts), _ROWS):
        bounds = offsets[start : start + _ROWS + 1]
        yield table, keys[bounds[0] : bounds[-1]], bounds - bounds[0], counts[start : start + _ROWS]


class _Checksum:
    """XXH3-128 of the counts and their metadata."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        import xxhash

        content = {name: value for name, value in about.items() if name != "xxh3_128"}
        self._digest = xxhash.xxh3_128(json.dumps(content, sort_keys=True).encode())

    def update(self, table: str, *arrays: npt.NDArray[Any]) -> None:
        self._digest.update(table.encode())
        for array in arrays:
            self._digest.update(np.ascontiguousarray(array).data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Open a partial result.

    Raises:
        UserError: the file is missing or damaged.
    """
    import pyarrow.parquet as pq

    damaged = f"{path} is damaged; delete it, so that its part is counted again"
    try:
        check_file(path)
        with pq.ParquetFile(path) as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path}, the result of a pass over a part of the corpus, is missing") from None
    except (MemoryFullError, UserError):
        raise
    except parquet_errors() as error:
        if not is_damage(error):
            raise
        raise UserError(damaged) from None


def _about(file: Any, path: Path, task: Task) -> tuple[dict[str, int], bool]:
    """Bytes by the names of the sources, and whether the memory limit was exceeded."""
    about = json.loads(file.schema_arrow.metadata[_METADATA_KEY])
    if about["task"] != task.name:
        raise UserError(f"{path} belongs to another pass or other parts; use another folder")
    return about["n_bytes"], about["full"]


def _add_file(trainer: _native.SuperwordTrainer, path: Path, task: Task) -> dict[str, int]:
    """Add a partial result to a trainer, by row groups; returns the number of bytes by the names of the sources.

    Raises:
        MemoryFullError: the fragments exceed the memory limit.
        UserError: the file is missing, damaged, or belongs to another pass.
    """
    with _parquet(path) as file:
        n_bytes, full = _about(file, path, task)
        if full:
            raise MemoryFullError
        about = json.loads(file.schema_arrow.metadata[_METADATA_KEY])
        checksum = _Checksum(about)
        for name, count in about["statistics"].items():
            trainer.add_statistic(name, count)
        trainer.add_sample_sizes(about["sample"]["lowest"], [tuple(size) for size in about["sample"]["sizes"]])
        for i in range(file.num_row_groups):
            group = file.read_row_group(i).combine_chunks()
            table, key = group["table"][0].as_py(), group["key"].chunk(0)
            offsets = key.offsets.to_numpy()
            rows = (table, key.flatten().to_numpy(), offsets - offsets[0], group["count"].chunk(0).to_numpy())
            checksum.update(*rows)
            trainer.add_rows(*rows)
            task.pass_.check_memory(trainer)
        if checksum.hexdigest() != about["xxh3_128"]:
            raise ValueError("the content does not match the checksum")
    return n_bytes
