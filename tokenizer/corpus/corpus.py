"""Documents out of files and datasets, in batches.

The native core reads .txt and .jsonl (plain, gzip, zstd) ahead on threads; pyarrow hands over Parquet buffers;
`datasets` serves the hub and whatever else it can load. Filters and the held-out split are the same for all.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

from tokenizer import _native
from tokenizer.corpus.rows import batch_records, read_parquet
from tokenizer.errors import UserError, shortened
from tokenizer.files import check_file, is_file

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


@dataclass(frozen=True)
class CorpusConfig:
    r"""Where documents come from and which of them count.

    Attributes:
        paths: files, directories (searched below) and globs.
        format: txt, jsonl or parquet; None to tell by each file's name.
        field: where the text is in a record; a dotted path reaches into nested ones.
        separator: in .txt, what stands between documents (\n and \t may be written so); None for one document
            per file.
        dataset: instead of paths, a Hugging Face dataset: hub name or local path, streamed.
        dataset_config, dataset_split: its configuration and split.
        sample: share of documents to take, chosen by a hash of their text wherever in the files they stand; held-out
            documents are all taken.
        sample_salt: another salt, another choice.
        max_bytes: budget of text, in order of documents and before the held-out split and the sample; the document
            that reaches it is the last. Of files in several languages it takes the first: `sample` takes of each.
        min_document_bytes, max_document_bytes: shorter and longer documents are left out.
        source_field: where a record says where its document comes from (dotted); None for the name of its file. It
            changes no document; held-out loss is reported per source (see `tokenizer.corpus.origins`).
        score_field, min_score: documents whose number at this (dotted) field is missing or lower are left out.
        heldout_fraction: share of documents held out, chosen by a hash of their text.
        heldout_salt: another salt, another choice.
        heldout_paths: files of held-out documents; `heldout_fraction` then plays no part.
        on_invalid_utf8: "error", or "replace" (malformed bytes become U+FFFD).
        batch_bytes: text per batch.
        document_limit_bytes: a longer document is an error, unless `max_document_bytes` leaves it out: documents are
            held whole, with several times their size of memory, and a small compressed file may hold any amount of
            text. For JSON lines the limit is on the line. Text files that are counted in parts may be longer.
    """

    paths: list[str] = dataclasses.field(default_factory=list)
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
    heldout_paths: list[str] = dataclasses.field(default_factory=list)
    on_invalid_utf8: str = "error"
    batch_bytes: int = 1 << 22
    document_limit_bytes: int = 1 << 30

    @property
    def skip_above(self) -> int | None:
        """Length from which on documents are left out, if that is not above the limit, which is an error then."""
        longest = self.max_document_bytes
        return None if longest is None or longest > self.document_limit_bytes else longest


class Corpus:
    """The documents of a configuration.

    >>> corpus = Corpus(CorpusConfig(paths=["data/*.jsonl.zst"], heldout_fraction=0.01))  # doctest: +SKIP
    >>> sum(batch.n_bytes for batch in corpus.batches("train"))  # doctest: +SKIP
    """

    def __init__(self, config: CorpusConfig) -> None:
        """Finds the files.

        Raises:
            UserError: a path does not exist, or the configuration contradicts itself.
        """
        self.config = config
        paths: Any = config.paths
        if isinstance(paths, str):
            raise UserError(f"paths={paths!r} is one string; paths is a list: [{paths!r}]")
        if bool(config.paths) == bool(config.dataset):
            raise UserError(
                "a corpus needs either paths or a dataset; set corpus.paths=[FILE,...] or corpus.dataset=NAME"
            )
        if not 0.0 <= config.heldout_fraction < 1.0:
            raise UserError(f"heldout_fraction={config.heldout_fraction} is no share; use 0 or more and less than 1")
        if not 0.0 < config.sample <= 1.0:
            raise UserError(f"sample={config.sample} is no share of documents; use more than 0 and at most 1")
        for name in ("max_bytes", "min_document_bytes", "max_document_bytes", "batch_bytes", "document_limit_bytes"):
            value = getattr(config, name)
            if value is not None and value < 0:
                raise UserError(f"{name}={value} is not possible; use 0 or more")
        if config.on_invalid_utf8 not in ("error", "replace"):
            raise UserError(f"on_invalid_utf8={config.on_invalid_utf8!r}; it is one of: error, replace")
        if (config.score_field is None) != (config.min_score is None):
            raise UserError("score_field and min_score go together; give both or neither")
        if config.format not in (None, "txt", "jsonl", "parquet"):
            raise UserError(f"format={config.format!r}; it is one of: txt, jsonl, parquet")
        self.files = _find(config.paths, config.format)
        self.heldout_files = _find(config.heldout_paths, config.format)
        read = [path for path, _ in [*self.files, *self.heldout_files]] + _local_files(config.dataset)
        self._states = {path: _state(path) for path in read}
        if overlap := {p.resolve() for p, _ in self.files} & {p.resolve() for p, _ in self.heldout_files}:
            raise UserError(f"{min(overlap)} is named in paths and in heldout_paths; a file is one or the other")

    def batches(
        self,
        split: Split = "train",
        *,
        readers: int = 1,
        in_order: bool = True,
        parts: bool = False,
        batch_bytes: int | None = None,
    ) -> Iterator[_native.Batch]:
        """Documents in batches of about `batch_bytes`, read ahead of the consumer.

        Args:
            split: which side of the held-out split.
            readers: threads that read .txt and .jsonl files, each a file at a time.
            in_order: give documents in the order of the files. Several readers then put by up to 16 batches each of
                files whose turn has not come, fewer where a document fills more than a batch. Without it, they give
                documents as they come; a budget (`max_bytes`) is about order, so then there is one reader.
            parts: give .txt files that are one document in parts cut between words, where no filter needs to see
                the whole document; for counting, which can do with parts.
            batch_bytes: text per batch, instead of the configuration's.

        Raises:
            UserError: a file cannot be read as asked, it changed since this object was made, or no document is left.
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
        read = partial(_read, config=config, readers=readers, in_order=in_order, parts=parts, skip_long=True)
        explicit = bool(config.heldout_paths)
        keep = self.filter(split)
        source = _ahead(self._dataset()) if config.dataset else read(self.files)
        if explicit and split != "train":
            heldout = read(self.heldout_files)
            source = heldout if split == "heldout" else chain(source, heldout)
        empty, found = True, False
        for batch in source:
            found = found or len(batch) > 0
            taken, more = keep.apply(batch)
            if len(taken):
                empty = False
                yield taken
            if not more:
                break
        self.check_unchanged()
        if not found:
            raise UserError(f"the corpus is empty: there are no documents in {config.dataset or config.paths}")
        if empty and split == "heldout" and not explicit:
            raise UserError(
                f"no document of {config.dataset or config.paths} is held out: heldout_fraction="
                f"{config.heldout_fraction:g} chooses them by a hash, and of few documents perhaps none. A .txt file "
                "is one document unless corpus.separator says what stands between documents, as in "
                "'corpus.separator=\"\\n\\n\"'; or name files of held-out text with corpus.heldout_paths"
            )
        if empty:
            raise UserError(
                f"the corpus is empty: no document of {config.dataset or config.paths} is left for the {split} split "
                "(see min_document_bytes, max_document_bytes, min_score, sample and heldout_fraction; a .txt file is "
                "one document unless corpus.separator says what stands between documents)"
            )

    def filter(self, split: Split) -> _native.DocumentFilter:
        """Which documents are taken, to be asked about all of them in order.

        Raises:
            UserError: no documents are held out, and held-out ones are asked for.
        """
        config = self.config
        explicit = bool(config.heldout_paths)
        if split == "heldout" and not explicit and not config.heldout_fraction:
            raise UserError("no documents are held out; set corpus.heldout_fraction=0.01 or corpus.heldout_paths")
        return _native.DocumentFilter(
            split="all" if explicit or not config.heldout_fraction else split,
            min_bytes=config.min_document_bytes,
            max_bytes=config.max_document_bytes,
            budget=None if explicit and split == "heldout" else config.max_bytes,
            heldout_fraction=config.heldout_fraction,
            heldout_salt=config.heldout_salt,
            sample_fraction=1.0 if split == "heldout" else config.sample,
            sample_salt=f"corpus:{config.sample_salt}",  # not phase 2's, which samples what this leaves
        )

    def unfiltered(self, file: tuple[Path, str] | None, field: str) -> Iterator[_native.Batch]:
        """One field of every record of a file (None: of the dataset), in order and before `filter`.

        A record without a value gives an empty text, so that several fields of the same file run side by side.
        """
        config = replace(self.config, field=field)
        yield from Corpus(config)._dataset() if file is None else _read([file], config)
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Check that all files still have the size and time of writing that they had when this object was made.

        Raises:
            UserError: one has not.
        """
        for path, before in self._states.items():
            now = _state(path)
            if now != before:
                raise UserError(
                    f"{path} changed while it was in use: it had {before[0]} bytes, written at {_time(before[1])}, and "
                    f"has {now[0]} bytes, written at {_time(now[1])}. What was being made of it is not kept. "
                    "Let the program that writes the file finish, then run the same command again"
                )

    def documents(self, split: Split = "train") -> Iterator[str]:
        """The texts one by one; for inspection, not for speed."""
        for batch in self.batches(split):
            for i in range(len(batch)):
                yield batch.text(i)

    def identity(self) -> dict[str, Any]:
        """What the documents depend on, as JSON: the configuration and, per file, name, size, time and a sample.

        The sample (a hash of the first, middle and last 64 kB) stands for the content: hashing terabytes would
        cost as much as counting them.
        """
        config = asdict(self.config)
        del (
            config["batch_bytes"],
            config["document_limit_bytes"],
            config["paths"],
            config["heldout_paths"],
            config["source_field"],
        )
        return {
            "config": config,
            "files": [fingerprint(path) for path, _ in self.files],
            "heldout_files": [fingerprint(path) for path, _ in self.heldout_files],
            "dataset": _dataset_identity(self.config.dataset),
        }

    def _dataset(self) -> Iterator[_native.Batch]:
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
        yield from batch_records(records, config)


def _read(
    files: list[tuple[Path, str]],
    config: CorpusConfig,
    readers: int = 1,
    *,
    in_order: bool = True,
    parts: bool = False,
    skip_long: bool = False,
) -> Iterator[_native.Batch]:
    """Documents of files before the filter; `skip_long`: without those that it leaves out for their length."""
    left_out = config.skip_above if skip_long else None
    for is_parquet, group in groupby(files, key=lambda file: file[1] == "parquet"):
        if is_parquet:
            yield from _ahead(chain.from_iterable(read_parquet(path, config) for path, _ in group))
        else:
            yield from _native.Reader(
                [(str(path), form) for path, form in group],
                field=config.field,
                separator=config.separator and config.separator.replace("\\n", "\n").replace("\\t", "\t"),
                score_field=config.score_field,
                min_score=0.0 if config.min_score is None else config.min_score,
                replace_invalid=config.on_invalid_utf8 == "replace",
                batch_bytes=config.batch_bytes,
                document_limit_bytes=config.document_limit_bytes,
                skip_above=left_out,
                parts=parts,
                threads=readers,
                in_order=in_order,
            )


def _ahead(batches: Iterator[_native.Batch]) -> Iterator[_native.Batch]:
    """The same batches, made on a thread of their own: decoding goes on while the consumer works."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = reader.submit(next, batches, None)
            yield batch


def _find(paths: list[str], form: str | None) -> list[tuple[Path, str]]:
    found: dict[Path, tuple[Path, str]] = {}  # by where it really is: a file counts once, whatever it is called
    for given in paths:
        if not isinstance(given, str | Path):  # mypy knows better, users may not
            raise UserError(f"the path {given!r} is no string")
        path = str(given)
        if glob.has_magic(path) and not Path(path).exists():
            matches = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (Path.glob refuses absolute ones)
        elif Path(path).is_dir():
            matches = sorted(file for file in Path(path).rglob("*") if _format(file) is not None)
        else:
            matches = [Path(path)]
        files = [match for match in matches if is_file(match)]
        if not files:
            what = "no such file"
            if Path(path).is_dir():
                what = "the directory holds no .txt, .jsonl or .parquet file"
            elif Path(path).exists():
                check_file(Path(path))
            raise UserError(f"{path}: {what} (working directory: {Path.cwd()})")
        for file in files:
            detected = form or _format(file)
            if detected is None:
                raise UserError(f"{file}: unknown kind of file; name it .txt, .jsonl or .parquet, or set corpus.format")
            found.setdefault(file.resolve(), (file, detected))
    return list(found.values())


def _state(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last write in nanoseconds: they change when a file does."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return -1, 0
    return stat.st_size, stat.st_mtime_ns


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9).astimezone().isoformat(sep=" ", timespec="milliseconds")


def _format(path: Path) -> str | None:
    suffixes = [suffix for suffix in map(str.lower, path.suffixes) if suffix not in _COMPRESSIONS]
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def fingerprint(path: Path) -> dict[str, Any]:
    """What stands for a file's content: name, size, time and a sample."""
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
    """What a dataset's documents depend on: its files if it is local, else the hub's revision."""
    if not name:
        return None
    if Path(name).exists():
        return [fingerprint(path) for path in _local_files(name)]
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    except (OSError, ValueError) as error:  # offline, or no such dataset: loading it will tell
        warnings.warn(f"the revision of {name} cannot be told ({error}); its results are reused by name", stacklevel=2)
        return None
