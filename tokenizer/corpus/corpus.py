"""Documents from files and datasets, in batches.

The native core reads .txt and .jsonl (plain, gzip, zstd) on background threads; pyarrow reads Parquet into buffers;
`datasets` reads the hub and any other format it supports. The bytes of remote files come from
`tokenizer.corpus.remote`. Filters and the held-out split are the same for all sources.
"""

from __future__ import annotations

import copy
import dataclasses
import glob
import hashlib
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenizer import _native
from tokenizer.corpus import remote
from tokenizer.corpus.ranges import Range, ranges
from tokenizer.corpus.remote import File, RemoteFile, Stop
from tokenizer.corpus.rows import batch_records, read_parquet
from tokenizer.corpus.skipped import Skipped
from tokenizer.errors import UserError, check_choice, quoted, shortened
from tokenizer.files import check_file, is_file, weighted
from tokenizer.urls import is_remote, shown

Split = Literal["train", "heldout", "all"]

_FORMATS = {
    ".txt": "txt",
    ".text": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_COMPRESSIONS = (".gz", ".zst", ".zstd")
_SAMPLE_BYTES = 1 << 16
_NEAR_DUPLICATE_WORDS = 5
PART_BYTES = 256_000_000


@dataclass(frozen=True)
class CorpusConfig:
    r"""Sources of documents and the filters applied to them.

    Attributes:
        paths: files, directories (searched recursively) and globs; on this machine, or as s3://, gs://,
            hf://datasets/… and https:// URLs (of single files).
        sources: named parts of the text, instead of `paths`: name to PATH, or PATH:3 to count every document three
            times when tokenizers are trained. Language models read every document once, whatever its weight.
        format: txt, jsonl or parquet; None to infer it from each file's name.
        field: field of a record that holds the text; a dotted path for nested fields.
        separator: string between documents in .txt files (\n and \t are accepted as escapes); None for one document
            per file.
        dataset: a Hugging Face dataset to stream instead of paths: hub name or local path.
        dataset_config, dataset_split: configuration and split of the dataset.
        sample: fraction of documents to keep, chosen by a hash of their text, independent of their position. All
            held-out documents are kept; see `heldout_sample`.
        sample_salt: changes which documents are sampled.
        max_bytes: budget of text in bytes, applied in document order before the held-out split and the sample; the
            document that reaches it is the last one. With files in several languages it keeps only the first ones; use
            `sample` to keep some of each.
        min_document_bytes, max_document_bytes: shorter and longer documents are skipped.
        source_field: field (dotted) with the source of a record's document; None to use the file name. It does not
            change documents; held-out loss is reported per source (see `tokenizer.corpus.origins`).
        score_field, min_score: documents whose number in this field (dotted) is missing or lower are skipped.
        heldout_fraction: fraction of documents held out, chosen by a hash of their text.
        heldout_salt: changes which documents are held out.
        heldout_near_duplicates: choose held-out documents by the smallest hash of their sequences of five words, so
            that near-duplicates are on the same side of the split: two documents are on the same side with at least the
            probability of their Jaccard similarity (MinHash; Broder, 1997). Documents that share a long header are
            mostly on one side, so the share held out may differ much from `heldout_fraction`: check it.
        heldout_paths: files of held-out documents; `heldout_fraction` is then ignored.
        heldout_sample: fraction of the held-out documents that are read, chosen by a hash of their text. The others are
            not used at all, so this does not change the training text.
        on_invalid_utf8: "error", or "replace" (malformed bytes become U+FFFD).
        on_error: "error", or "skip" to leave out damaged files, lines and rows: truncated compression, malformed JSON,
            a missing field, a value of the wrong type, malformed UTF-8 (unless it is replaced). `Corpus.skipped` lists
            them. A damaged file is read up to the damage.
        batch_bytes: text per batch, in bytes.
        document_limit_bytes: a longer document is an error, unless `max_document_bytes` skips it. Documents are kept
            in memory as a whole, at several times their size, and a small compressed file can hold any amount of
            text. For JSON lines the limit applies to the line. Text files that are counted in parts may be longer.
    """

    paths: list[str] = dataclasses.field(default_factory=list)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    format: str | None = None
    field: str = "text"
    separator: str | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    dataset_split: str = "train"
    sample: float = 1.0
    sample_salt: str = ""
    max_bytes: int | None = None
    min_document_bytes: int = 1
    max_document_bytes: int | None = None
    source_field: str | None = None
    score_field: str | None = None
    min_score: float | None = None
    heldout_fraction: float = 0.0
    heldout_salt: str = ""
    heldout_near_duplicates: bool = False
    heldout_paths: list[str] = dataclasses.field(default_factory=list)
    heldout_sample: float = 1.0
    on_invalid_utf8: str = "error"
    on_error: str = "error"
    batch_bytes: int = 1 << 22
    document_limit_bytes: int = 1 << 30

    @property
    def skip_above(self) -> int | None:
        """`max_document_bytes`; None if it is above `document_limit_bytes`, where long documents are an error."""
        longest = self.max_document_bytes
        return None if longest is None or longest > self.document_limit_bytes else longest

    @property
    def places(self) -> list[str]:
        """`paths`, or those of `sources`, as they may be shown."""
        return [shown(path) for path in self.paths or self.sources.values()]

    def check(self) -> None:
        """Check the values, without looking at any file.

        Raises:
            UserError: a value is out of range, or two contradict each other.
        """
        if not 0.0 <= self.heldout_fraction < 1.0:
            raise UserError(f"heldout_fraction={self.heldout_fraction} must be at least 0 and less than 1")
        for name in ("sample", "heldout_sample"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise UserError(f"{name}={getattr(self, name)} must be greater than 0 and at most 1")
        for name in ("max_bytes", "min_document_bytes", "max_document_bytes", "batch_bytes", "document_limit_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"{name}={value} must be at least 0")
        if self.heldout_near_duplicates and self.heldout_paths:
            raise UserError(
                "heldout_near_duplicates=true has no effect on held-out files (heldout_paths, or the embedded corpus); "
                "set it to false"
            )
        if self.sources and self.max_bytes is not None:
            raise UserError("max_bytes keeps the beginning of the text, which may be one of sources only; use sample")
        for name, entry in self.sources.items():
            weighted(entry, f"sources.{name}")
        check_choice("on_invalid_utf8", self.on_invalid_utf8, ("error", "replace"))
        check_choice("on_error", self.on_error, ("error", "skip"))
        if (self.score_field is None) != (self.min_score is None):
            raise UserError("score_field and min_score go together; give both or neither")
        check_choice("format", self.format, (None, "txt", "jsonl", "parquet"))


_DEFAULTS = asdict(CorpusConfig())
_CHOOSING = ("min_document_bytes", "max_document_bytes", "max_bytes", "min_score", "sample", "heldout_fraction")


class NamedCorpus(NamedTuple):
    """One of the named sources of a corpus.

    Attributes:
        name: its name; empty if the corpus has no named sources.
        corpus: its documents.
        weight: number of times each document counts when tokenizers are trained.
    """

    name: str
    corpus: Corpus
    weight: int


class Corpus:
    """The documents of a configuration.

    >>> corpus = Corpus(CorpusConfig(paths=["data/*.jsonl.zst"], heldout_fraction=0.01))  # doctest: +SKIP
    >>> sum(batch.n_bytes for batch in corpus.batches("train"))  # doctest: +SKIP
    """

    def __init__(self, config: CorpusConfig) -> None:
        """Find the files.

        Raises:
            UserError: a path does not exist, or the configuration contradicts itself.
        """
        given: Any = config
        if not isinstance(given, CorpusConfig):
            raise UserError(
                f"the configuration of the corpus is {type(given).__name__}, not CorpusConfig: write "
                "Corpus(CorpusConfig(paths=[FILE, ...])); functions that take a text also accept lists of strings and "
                "pathlib.Path"
            )
        self.config = config
        paths: Any = config.paths
        if isinstance(paths, str):
            raise UserError(f"paths={shown(paths)!r} is one string; paths is a list: [{shown(paths)!r}]")
        if [bool(config.paths), bool(config.sources), bool(config.dataset)].count(True) != 1:
            raise UserError(
                "a corpus needs either paths, sources or a dataset; set paths=[FILE,...], "
                "sources={NAME: PATH:WEIGHT,...} or dataset=NAME"
            )
        config.check()
        self.files, self._source = _find(config.paths, config.format), dict[File, str]()
        for source, entry in config.sources.items():
            found = _find([weighted(entry, source)[0]], config.format)
            self.files += found
            for file, _ in found:
                if (known := self._source.setdefault(file.resolve(), source)) != source:
                    raise UserError(f"{file} is in the sources {known} and {source}; remove it from one of them")
        self.heldout_files = _find(config.heldout_paths, config.format)
        read = [path for path, _ in [*self.files, *self.heldout_files]] + _local_files(config.dataset)
        self._states: dict[File, tuple[int, Any]] = {path: _state(path) for path in read}
        self.skipped = Skipped()
        self.part: Range | Literal["files"] | None = None
        if overlap := {p.resolve() for p, _ in self.files} & {p.resolve() for p, _ in self.heldout_files}:
            raise UserError(f"{min(map(str, overlap))} is in both paths and heldout_paths; remove it from one of them")

    def by_source(self) -> list[NamedCorpus]:
        """The sources, each as a corpus with the same settings; this corpus if it has no named sources."""
        if not self.config.sources:
            return [NamedCorpus("", self, 1)]
        found = []
        for name, entry in self.config.sources.items():
            path, weight = weighted(entry, name)
            corpus = Corpus(replace(self.config, sources={}, paths=[path]))
            corpus.skipped = self.skipped
            found.append(NamedCorpus(name, corpus, weight))
        return found

    def source(self, file: File) -> str:
        """The name of a file's source; without named sources, the file's own name."""
        return self._source.get(file.resolve(), file.name)

    def _key(self) -> tuple[Any, ...]:
        return repr(self.config), tuple(self.files), tuple(self.heldout_files), tuple(self._states.items())

    def __eq__(self, other: object) -> bool:
        """Whether both read the same documents: the same configuration, and the same state of the same files."""
        return self._key() == other._key() if isinstance(other, Corpus) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        set_ = {name: value for name, value in asdict(self.config).items() if value != _DEFAULTS[name]}
        for name in {"paths", "heldout_paths"} & set_.keys():
            set_[name] = list(map(shown, set_[name]))
        if self.config.sources:
            set_["sources"] = {name: shown(entry) for name, entry in self.config.sources.items()}
        files = f"{sum(self.sizes()):,} bytes in {len(self.files)} file(s), " if self.files else ""
        return f"<Corpus: {files}{', '.join(f'{name}={quoted(value)}' for name, value in set_.items())}>"

    def sizes(self) -> list[int]:
        """Size in bytes of each of `files` when this object was created."""
        return [self._states[path][0] for path, _ in self.files]

    def parts(self, split: Split = "train", target_bytes: int = PART_BYTES) -> list[Corpus]:
        """The corpus in parts, as corpora: the documents of all parts, in order, are those of the corpus.

        Uncompressed JSON lines are cut between lines and Parquet between row groups, into parts of about
        `target_bytes`. Smaller files are combined. A dataset, and text with a budget (`max_bytes`), which depends on
        the order of the documents, are one part: the corpus itself.

        Parts can be pickled. A part may have no documents. Each part checks only that its own files are unchanged, so
        call `check_unchanged` at the end.

        Args:
            split: side of the held-out split that will be read.
            target_bytes: bytes per part, as stored.
        """
        if self.part or self.config.dataset or self.config.max_bytes is not None:
            return [self]
        explicit = bool(self.config.heldout_paths)
        files = [] if explicit and split == "heldout" else self._groups(self.files, target_bytes)
        heldout = self._groups(self.heldout_files, target_bytes) if explicit and split != "train" else []
        return [self._part(group, [], span) for group, span in files] + [
            self._part([], group, span) for group, span in heldout
        ]

    def _groups(
        self, files: list[tuple[File, str]], target_bytes: int
    ) -> Iterator[tuple[list[tuple[File, str]], Range | None]]:
        """Small files together, and the ranges of large ones."""
        group: list[tuple[File, str]] = []
        filled = 0
        for path, form in files:
            size = self._states[path][0]
            whole = form == "txt" or path.suffix.lower() in _COMPRESSIONS
            spans = [] if whole else ranges(path, size, target_bytes)
            if group and (filled + size > target_bytes or len(spans) > 1):
                yield group, None
                group, filled = [], 0
            if len(spans) > 1:
                yield from (([(path, form)], span) for span in spans)
            else:
                group.append((path, form))
                filled += size
        if group:
            yield group, None

    def _part(self, files: list[tuple[File, str]], heldout_files: list[tuple[File, str]], span: Range | None) -> Corpus:
        part = copy.copy(self)
        # All paths would make each of many parts large; from here on it only matters whether there are any.
        part.config = replace(self.config, paths=self.config.paths[:1], heldout_paths=self.config.heldout_paths[:1])
        part.files, part.heldout_files, part.skipped, part.part = files, heldout_files, Skipped(), span or "files"
        part._states = {path: self._states[path] for path, _ in [*files, *heldout_files]}
        return part

    @property
    def stored_bytes(self) -> int:
        """Bytes of the part as stored."""
        if isinstance(self.part, Range):
            return self.part.end - self.part.start
        return sum(size for size, _ in self._states.values())

    def part_skipped(self) -> dict[str, Any]:
        """What was skipped of a part that has been read, as JSON for `Skipped.add_parts`."""
        lines = {str(self.part): self.part.line_feeds} if isinstance(self.part, Range) else {}
        return {"counts": self.skipped.counts, "places": self.skipped.places, "line_feeds": lines}

    def part_identity(self) -> list[Any]:
        """What tells a part from the other parts of this corpus, as JSON."""
        span = [self.part.start, self.part.end] if isinstance(self.part, Range) else None
        return [span, *([str(path), *state] for path, state in self._states.items())]

    def batches(
        self,
        split: Split = "train",
        *,
        readers: int = 1,
        in_order: bool = True,
        parts: bool = False,
        batch_bytes: int | None = None,
    ) -> Iterator[_native.Batch]:
        """Documents in batches of about `batch_bytes`, prefetched on background threads.

        Args:
            split: side of the held-out split.
            readers: threads that read .txt and .jsonl files, one file each at a time.
            in_order: yield documents in file order. Each reader then buffers up to 16 batches of later files, fewer if
                a document fills more than a batch. If False, documents are yielded as they are read. A budget
                (`max_bytes`) depends on order, so it uses one reader.
            parts: yield .txt files that are a single document in parts, cut between words, if no filter needs the
                whole document. For counting, which works on parts.
            batch_bytes: text per batch, overrides the configuration.

        Raises:
            UserError: a file cannot be read as configured or changed since this object was created, or no document is
                left.
        """
        config = self.config if batch_bytes is None else replace(self.config, batch_bytes=batch_bytes)
        whole = (
            config.min_document_bytes > 1
            or config.max_document_bytes is not None
            or config.max_bytes is not None
            or config.sample < 1.0
            or (config.heldout_fraction > 0 and not config.heldout_paths)
        )
        parts = parts and not whole
        readers = readers if in_order or config.max_bytes is None else 1
        read = partial(self._read, config=config, readers=readers, in_order=in_order, parts=parts, skip_long=True)
        explicit = bool(config.heldout_paths)
        keep = self.filter(split)
        sources = [_ahead(self._dataset, self.skipped) if config.dataset else read(self.files)]
        if explicit and split != "train":
            sources = [*(sources if split == "all" else []), read(self.heldout_files)]
        empty, found = True, False
        try:
            with ExitStack() as stack:
                for source in reversed(sources):  # closed generators list what they skipped
                    stack.callback(source.close)
                for batch in chain.from_iterable(sources):
                    found = found or len(batch) > 0
                    taken, more = keep.apply(batch)
                    if len(taken):
                        empty = False
                        yield taken
                    if not more:
                        break
        finally:
            self.report_skipped()
        self.check_unchanged()
        if empty and not self.part:
            raise UserError(self._why_empty(split, found))

    def report_skipped(self) -> None:
        """Warn about what was skipped. Parts of a corpus are reported together, by `Skipped.add_parts`."""
        if not self.part:
            self.skipped.report()

    def _why_empty(self, split: Split, found: bool) -> str:
        """Error message for a split without documents; `found` is whether the files have records."""
        config = self.config
        where = config.dataset or config.places
        explicit = bool(config.heldout_paths)
        if self.skipped.count:
            return f"the corpus is empty: no document of {where} is left; {self.skipped.sentence()}"
        if not found and config.score_field is None:
            return f"the corpus is empty: {where} contains no documents"
        if split == "heldout" and config.heldout_sample < 1:
            return (
                f"heldout_sample={config.heldout_sample:g} leaves no held-out document of "
                f"{list(map(shown, config.heldout_paths)) or where}; raise it"
            )
        if split == "heldout" and not explicit:
            return (
                f"no document of {where} is held out: heldout_fraction="
                f"{config.heldout_fraction:g} chooses documents by a hash, and may choose none of only a few. "
                "A .txt file is one document unless separator=STRING names the string between documents; or name files "
                "of held-out text with heldout_paths=[FILE,...]"
            )
        chosen = [f"{name}={getattr(config, name)}" for name in _CHOOSING if getattr(config, name) != _DEFAULTS[name]]
        why = f"none passes {', '.join(chosen)}" if chosen else "all are empty"
        if config.score_field is not None:
            why += f" (documents without a number in score_field={config.score_field} do not pass: check its name)"
        return f"the corpus is empty: of the documents of {where}, {why}"

    def filter(self, split: Split) -> _native.DocumentFilter:
        """Filter that selects the documents of a split. It must see all documents in order.

        Raises:
            UserError: the split is "heldout", but no documents are held out.
        """
        config = self.config
        explicit = bool(config.heldout_paths)
        if split == "heldout" and not explicit and not config.heldout_fraction:
            raise UserError("no documents are held out; set heldout_fraction=0.01 or heldout_paths=[FILE,...]")
        return _native.DocumentFilter(
            split="all" if explicit or not config.heldout_fraction else split,
            # What was skipped is an empty document.
            min_bytes=max(config.min_document_bytes, 1) if config.on_error == "skip" else config.min_document_bytes,
            max_bytes=config.max_document_bytes,
            budget=None if explicit and split == "heldout" else config.max_bytes,
            heldout_fraction=config.heldout_fraction,
            heldout_salt=config.heldout_salt,
            heldout_ngram_words=_NEAR_DUPLICATE_WORDS if config.heldout_near_duplicates else 0,
            sample_fraction=config.heldout_sample if split == "heldout" else config.sample,
            sample_salt=f"{'heldout' if split == 'heldout' else 'corpus'}:{config.sample_salt}",  # unlike in phase 2
        )

    def unfiltered(self, file: tuple[File, str] | None, field: str) -> Iterator[_native.Batch]:
        """One field of every record of a file (None: of the dataset), in order and before `filter`.

        A record without a value yields an empty text, so that several fields of the same file stay aligned.
        """
        config = replace(self.config, field=field)
        yield from Corpus(config)._dataset(self.skipped) if file is None else self._read([file], config)
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Check that no file changed since this object was created: size and modification time, or size and version.

        Raises:
            UserError: a file changed.
        """
        distant = [path for path in self._states if isinstance(path, RemoteFile)]
        for file, stat in zip(distant, remote.current(distant), strict=True):
            if stat != file.stat:
                raise UserError(remote.changed(file, stat))
        for path in self._states.keys() - set(distant):
            before, now = self._states[path], _state(path)
            if now != before:
                raise UserError(
                    f"{path} changed while it was in use: it had {before[0]} bytes, written at {_time(before[1])}, and "
                    f"has {now[0]} bytes, written at {_time(now[1])}. The unfinished result is discarded. "
                    "Wait until the program that writes the file has finished, then run the same command again"
                )

    def documents(self, split: Split = "train") -> Iterator[str]:
        """The texts one by one. Slow; for inspection."""
        for batch in self.batches(split):
            for i in range(len(batch)):
                yield batch.text(i)

    def identity(self) -> dict[str, Any]:
        """Everything that the training documents depend on, as JSON: configuration and `fingerprint` of each file.

        `heldout_sample` is left out, so that a change of it does not train everything again. Results for held-out
        documents depend on it as well.

        Fingerprints hash only the first, middle and last 64 kB: hashing terabytes would take as long as counting them.
        """
        config = asdict(self.config)
        del (
            config["batch_bytes"],
            config["document_limit_bytes"],
            config["paths"],
            config["heldout_paths"],
            config["source_field"],
            config["heldout_sample"],
        )
        if not self.config.heldout_near_duplicates:
            del config["heldout_near_duplicates"]  # a later setting: earlier corpora keep their identity
        if self.config.on_error == "error":
            del config["on_error"]  # a later setting as well
        del config["sources"]
        if self._source:
            names = list(self._source.values())
            config["sources"] = {
                name: [weighted(entry, name)[1], names.count(name)] for name, entry in self.config.sources.items()
            }
        return {
            "config": config,
            "files": [fingerprint(path) for path, _ in self.files],
            "heldout_files": [fingerprint(path) for path, _ in self.heldout_files],
            "dataset": _dataset_identity(self.config.dataset),
        }

    def _read(self, files: list[tuple[File, str]], config: CorpusConfig, **how: Any) -> Generator[_native.Batch]:
        span = self.part if isinstance(self.part, Range) else None
        return _read(self.skipped, [(span or path, form) for path, form in files], config, **how)

    def _dataset(self, skipped: Skipped, _: Stop | None = None) -> Generator[_native.Batch]:
        import datasets

        config = self.config
        try:
            if config.dataset is not None and (Path(config.dataset) / "state.json").is_file():
                records: Iterable[dict[str, Any]] = datasets.load_from_disk(config.dataset)
            else:
                records = datasets.load_dataset(
                    config.dataset, config.dataset_config, split=config.dataset_split, streaming=True
                )
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise UserError(f"the dataset {config.dataset!r} cannot be loaded: {shortened(error)}") from error
        yield from batch_records(records, config, skipped)


def _read(
    skipped: Skipped,
    files: Sequence[tuple[File | Range, str]],
    config: CorpusConfig,
    readers: int = 1,
    *,
    in_order: bool = True,
    parts: bool = False,
    skip_long: bool = False,
) -> Generator[_native.Batch]:
    """Documents of files before the filter. `skip_long` skips documents that the filter would drop as too long."""
    left_out = config.skip_above if skip_long else None
    for is_parquet, group in groupby(files, key=lambda file: file[1] == "parquet"):
        if is_parquet:
            yield from _ahead(partial(_parquet, [path for path, _ in group], config), skipped)
            continue
        named = list(group)
        with remote.feeding([path for path, _ in named], readers) as feeds:
            reader = _native.Reader(
                [(str(path), form, feed) for (path, form), feed in zip(named, feeds, strict=True)],
                field=config.field,
                separator=config.separator and config.separator.replace("\\n", "\n").replace("\\t", "\t"),
                score_field=config.score_field,
                min_score=0.0 if config.min_score is None else config.min_score,
                replace_invalid=config.on_invalid_utf8 == "replace",
                skip_damaged=config.on_error == "skip",
                batch_bytes=config.batch_bytes,
                document_limit_bytes=config.document_limit_bytes,
                skip_above=left_out,
                parts=parts,
                threads=readers,
                in_order=in_order,
            )
            try:
                yield from reader
            except UserError as error:
                path = named[0][0]
                raise path.explained(error) if isinstance(path, Range) else error from None
            finally:  # also if the rest is not wanted
                for file, count, places in reader.skipped():
                    skipped.add(file, count, places)


def _parquet(
    paths: Sequence[File | Range], config: CorpusConfig, skipped: Skipped, stop: Stop
) -> Generator[_native.Batch]:
    for path in paths:
        yield from read_parquet(path, config, skipped, stop)


def _ahead(start: Callable[[Skipped, Stop], Generator[_native.Batch]], skipped: Skipped) -> Generator[_native.Batch]:
    """Prefetch batches on a background thread, so that decoding overlaps with the consumer's work.

    Args:
        start: returns the batches; gets a list of what they lack, and what ends their requests.
        skipped: gets what the batches lack that the consumer has taken, however many were read.
    """
    from concurrent.futures import ThreadPoolExecutor  # loads logging, a tenth of the time to import tokenizer

    stop, found = Stop(), Skipped()

    def take() -> tuple[_native.Batch | None, Skipped]:
        return next(batches, None), found.copy()

    with closing(start(found, stop)) as batches, ThreadPoolExecutor(1) as reader, closing(stop):
        following = reader.submit(take)
        while True:
            batch, lacking = following.result()
            skipped.update(lacking)
            if batch is None:
                return
            following = reader.submit(take)
            yield batch


def _find(paths: list[str], form: str | None) -> list[tuple[File, str]]:
    found: dict[File, tuple[File, str]] = {}  # by resolved path, so that a file counts once under several names
    for given in paths:
        if not isinstance(given, str | Path):  # types are not checked in user code
            raise UserError(f"the path {given!r} is not a string")
        for file in _matches(str(given)):
            detected = form or _format(file)
            if detected is None:
                raise UserError(
                    f"{file}: unknown file type; name it .txt, .jsonl or .parquet, or set format=jsonl, for example"
                )
            found.setdefault(file.resolve(), (file, detected))
    return list(found.values())


def _matches(path: str) -> Sequence[File]:
    """The files that a path, a URL or a glob names.

    Raises:
        UserError: there is none.
    """
    if is_remote(path):
        if not (distant := remote.find(path, lambda file: _format(file) is not None)):
            raise UserError(f"{shown(path)}: no such file, or a folder without .txt, .jsonl or .parquet files")
        return distant
    if glob.has_magic(path) and not Path(path).exists():
        matches = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (Path.glob rejects absolute patterns)
    elif (Path(path) / "dataset_info.json").is_file() or (Path(path) / "dataset_dict.json").is_file():
        raise UserError(
            f"{path} is a dataset that `save_to_disk` wrote, not a folder of text: read it with dataset={path}"
        )
    elif Path(path).is_dir():
        matches = sorted(file for file in Path(path).rglob("*") if _format(file) is not None)
    else:
        matches = [Path(path)]
    if files := [match for match in matches if is_file(match)]:
        return files
    what = "no such file"
    if Path(path).is_dir():
        what = "the directory contains no .txt, .jsonl or .parquet file"
    elif Path(path).exists():
        check_file(Path(path))
    raise UserError(f"{path}: {what} (working directory: {Path.cwd()})")


def _state(path: File) -> tuple[int, Any]:
    """Size in bytes and modification time in nanoseconds, or version of a remote file, to detect changes."""
    if isinstance(path, RemoteFile):
        return path.stat
    try:
        stat = path.stat()
    except FileNotFoundError:
        return -1, 0
    return stat.st_size, stat.st_mtime_ns


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9).astimezone().isoformat(sep=" ", timespec="milliseconds")


def _format(path: File) -> str | None:
    suffixes = [suffix for suffix in map(str.lower, path.suffixes) if suffix not in _COMPRESSIONS]
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def fingerprint(path: File) -> dict[str, Any]:
    """Fingerprint of a file: name, size, modification time, and a hash of its first, middle and last 64 kB.

    Of a remote file: URL, size, and the version or ETag that the server reports.
    """
    if isinstance(path, RemoteFile):
        url = re.sub("@[0-9a-f]{40}(?=/)", "", path.url)  # a commit of the hub may leave the file as it is
        return {"url": url, "bytes": path.stat.size, "version": path.stat.version}
    stat = path.stat()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start in (0, max(0, stat.st_size // 2), max(0, stat.st_size - _SAMPLE_BYTES)):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
    return {
        "name": path.name,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "sample": digest.hexdigest()[:16],
    }


def _local_files(dataset: str | None) -> list[Path]:
    """The files of a dataset that is a local folder."""
    return [] if not dataset else sorted(path for path in Path(dataset).rglob("*") if is_file(path))


def _dataset_identity(name: str | None) -> Any:
    """Identity of a dataset: fingerprints of its files if it is local, otherwise the hub's revision."""
    if not name:
        return None
    if Path(name).exists():
        return [fingerprint(path) for path in _local_files(name)]
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    except (OSError, ValueError) as error:  # offline, or no such dataset: loading it reports the error
        warnings.warn(f"cannot determine the revision of {name} ({error}); results are cached by name", stacklevel=2)
        return None
