"""Documents from files and datasets, in batches.

The settings are in `tokenizer.corpus.config`. Filters and the held-out split are the same for all sources.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import PurePath
from typing import Any, Literal

from tokenizer import _native
from tokenizer.corpus import text_files
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.reading import read_files
from tokenizer.corpus.remote import File, RemoteFile, changed, concurrently
from tokenizer.corpus.skipped import Skipped
from tokenizer.errors import UserError, listed, quoted
from tokenizer.files import shown

Split = Literal["train", "heldout", "all"]

_NEAR_DUPLICATE_WORDS = 5
PART_BYTES = 256_000_000
_DEFAULTS = asdict(CorpusConfig())
_NOT_IDENTITY = {
    *(
        "paths",
        "heldout_paths",
        "sources",
        "source_field",
        "kind_field",
        "kinds",
        "heldout_sample",
        "batch_bytes",
        "document_limit_bytes",
        "cache",
    )
}
_CHOOSING = {
    *("min_document_bytes", "max_document_bytes", "max_bytes", "min_score", "sample", "heldout_fraction"),
    "heldout_sample",
}


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
        paths: Any = config.paths  # types are not checked in user code
        if isinstance(paths, str):
            raise UserError(f"paths={shown(paths)!r} is one string; paths is a list: [{shown(paths)!r}]")
        n_given = [bool(paths), bool(config.sources), bool(config.dataset)].count(True)
        if n_given > 1 or not (n_given or config.heldout_paths):
            raise UserError(
                "a corpus needs either paths, sources or a dataset; set paths=[FILE,...], "
                "sources={NAME: PATH:WEIGHT,...} or dataset=NAME"
            )
        config.check()
        self.files = text_files.find(config.paths, config.format, config.cache)
        self._source = dict[File, str]()
        for path, source in zip(config.all_paths, config.sources, strict=False):
            files = text_files.find([path], config.format, config.cache)
            self.files += files
            for file, _ in files:
                if (other := self._source.setdefault(file.resolve(), source)) != source:
                    raise UserError(f"{file} is in the sources {other} and {source}; remove it from one of them")
        self.heldout_files = text_files.find(config.heldout_paths, config.format, config.cache)
        read = [path for path, _ in [*self.files, *self.heldout_files]] + text_files.local_files(config.dataset)
        self._states = {path: path.stat if isinstance(path, RemoteFile) else text_files.state(path) for path in read}
        self.skipped = Skipped()
        self.is_part = False
        if overlap := {p.resolve() for p, _ in self.files} & {p.resolve() for p, _ in self.heldout_files}:
            raise UserError(f"{min(map(str, overlap))} is in both paths and heldout_paths; remove it from one of them")

    def by_source(self) -> list[tuple[str, Corpus, int]]:
        """Name, corpus and weight of each source; ("", this corpus, 1) if it has no named sources.

        The weight is the number of times that each document counts when tokenizers are trained: see
        `CorpusConfig.weights`.
        """
        if not self.config.sources:
            return [("", self, 1)]
        files = {name: list[tuple[File, str]]() for name in self.config.sources}
        for file in self.files:
            files[self.source(file[0])].append(file)
        found = []
        for path, (name, weight) in zip(self.config.all_paths, self.config.weights.items(), strict=True):
            corpus = copy.copy(self)
            corpus.config, corpus.files = replace(self.config, sources={}, paths=[path]), files[name]
            corpus._source = {}
            found.append((name, corpus, weight))
        return found

    def source(self, file: File) -> str:
        """The name of a file's source; without named sources, the file's own name."""
        return self._source.get(file.resolve(), PurePath(str(file)).name)

    def __repr__(self) -> str:
        where = self.config.dataset or quoted(self.config.places)
        return f"<Corpus: {sum(self.sizes()):,} bytes in {len(self.files)} file(s) of {where}>"

    def sizes(self) -> list[int]:
        """Size in bytes of each of `files` when this object was created."""
        return [self._states[path][0] for path, _ in self.files]

    def parts(self, split: Split = "train", target_bytes: int = PART_BYTES) -> list[Corpus]:
        """The corpus in parts, as corpora, which together have its documents in order.

        Files are not cut, and small ones are combined. A dataset, and text with a budget (`max_bytes`), which depends
        on the order of the documents, are one part: the corpus itself.

        Parts can be pickled, and know nothing of other files. A part may have no documents. Each part checks only that
        its own files are unchanged, so call `check_parts` at the end.

        Args:
            split: side of the held-out split that will be read.
            target_bytes: bytes of several files in a part, as stored.
        """
        if self.is_part or self.config.dataset or self.config.max_bytes is not None:
            return [self]
        explicit = bool(self.config.heldout_paths)
        files = [] if explicit and split == "heldout" else self._groups(self.files, target_bytes)
        heldout = self._groups(self.heldout_files, target_bytes) if explicit and split != "train" else []
        return [self._part(group, []) for group in files] + [self._part([], group) for group in heldout]

    def _groups(self, files: list[tuple[File, str]], target_bytes: int) -> list[list[tuple[File, str]]]:
        groups: list[list[tuple[File, str]]] = []
        filled = 0
        for path, form in files:
            filled += self._states[path].size
            if filled > target_bytes or not groups:
                groups.append([])
                filled = self._states[path].size
            groups[-1].append((path, form))
        return groups

    def _part(self, files: list[tuple[File, str]], heldout_files: list[tuple[File, str]]) -> Corpus:
        part = copy.copy(self)
        paths = [path for path, _ in [*files, *heldout_files]]
        found = (path.resolve() for path in paths if self._source)
        source = {file: self._source[file] for file in found if file in self._source}
        # All places would make each of many parts large; from here on it only matters whether there are any.
        part.config = replace(
            self.config,
            paths=self.config.paths[:1],
            heldout_paths=self.config.heldout_paths[:1],
            sources={name: self.config.sources[name] for name in source.values()},
        )
        part.files, part.heldout_files, part.skipped, part.is_part = files, heldout_files, Skipped(), True
        part._states, part._source = {path: self._states[path] for path in paths}, source
        return part

    def check_parts(self, split: Split, parts: Sequence[Mapping[str, Any]]) -> None:
        """Check the text after all its parts were read, and report what was skipped.

        Args:
            split: side of the held-out split.
            parts: of each part: `n_bytes` of text, and `skipped` as `part.skipped.so_far()`.

        Raises:
            UserError: a file changed, or there are no documents.
        """
        self.skipped.update(*(part["skipped"] for part in parts))
        self.skipped.report()
        self.check_unchanged(split)
        if not any(part["n_bytes"] for part in parts):
            next(self.batches(split), None)  # explains why there are no documents

    @property
    def stored_bytes(self) -> int:
        """Bytes of the part as stored."""
        return sum(size for size, _ in self._states.values())

    def part_identity(self) -> list[Any]:
        """Identity of a part among the parts of this corpus, as JSON."""
        return [[str(path), *state] for path, state in self._states.items()]

    def batches(
        self,
        split: Split = "train",
        *,
        readers: int = 1,
        in_order: bool = True,
        batch_bytes: int | None = None,
    ) -> Iterator[_native.Batch]:
        """Documents in batches of about `batch_bytes`, prefetched on background threads.

        Args:
            split: side of the held-out split.
            readers: threads that read .txt and .jsonl files, one file each at a time.
            in_order: yield documents in file order. Each reader then buffers up to 16 batches of later files, fewer if
                a document fills more than a batch. If False, documents are yielded as they are read. A budget
                (`max_bytes`) depends on order, so it uses one reader.
            batch_bytes: text per batch, overrides the configuration.

        Raises:
            UserError: a file cannot be read as configured or changed since this object was created, or no document is
                left.
        """
        config = self.config if batch_bytes is None else replace(self.config, batch_bytes=batch_bytes)
        readers = readers if in_order or config.max_bytes is None else 1
        keep = self.filter(split)
        empty = True
        try:
            read = read_files(self.skipped, self.files_of(split), config, readers, in_order)
            with closing(read) as source:  # closed, it lists what it skipped
                for batch in source:
                    taken, more = keep.apply(batch)
                    if len(taken):
                        empty = False
                        yield taken
                    if not more:
                        break
        finally:
            self.report_skipped()
        self.check_unchanged(split)
        if empty and not self.is_part:
            raise UserError(self._why_empty(split))

    def files_of(self, split: Split) -> list[tuple[File, str] | None]:
        """The files of a split, None for the dataset. With `heldout_paths`, "all" ends with the held-out files."""
        files: list[tuple[File, str] | None] = [None] if self.config.dataset else [*self.files]
        if self.config.heldout_paths and split != "train":
            files = [*(files if split == "all" else []), *self.heldout_files]
        return files

    def report_skipped(self) -> None:
        """Warn about what was skipped. The reader of the parts of a corpus reports them together."""
        if not self.is_part:
            self.skipped.report()

    def _why_empty(self, split: Split) -> str:
        """Error message for a split without documents."""
        config = self.config
        lacking = []
        where = config.dataset or listed(config.places or [*map(shown, config.heldout_paths)])
        if config.score_field is not None:
            lacking.append(f"those without a number in score_field={config.score_field} do not pass: check its name")
        if self.skipped.count:
            lacking.append(self.skipped.sentence())
        if split == "heldout" and not config.heldout_paths and config.heldout_sample == 1:
            why = (
                f"no document of {where} is held out: heldout_fraction="
                f"{config.heldout_fraction:g} chooses documents by a hash, and may choose none of only a few. "
                "A .txt file is one document unless separator=STRING names the string between documents; or name files "
                "of held-out text with heldout_paths=[FILE,...]"
            )
            return "; ".join([why, *lacking])
        chosen = self.selection(split)
        if not chosen and not lacking:
            return f"the corpus is empty: no document of {where} contains text"
        why = f"none passes {', '.join(chosen)}" if chosen else "none is left"
        return f"the corpus is empty: of the documents of {where}, {'; '.join([why, *lacking])}"

    def selection(self, split: Split = "train") -> list[str]:
        """The settings by which documents are left out of a split, as NAME=VALUE."""
        names = {name for name in _CHOOSING if split == "heldout" or not name.startswith("heldout")}
        settings = asdict(self.config).items()
        return [f"{name}={value}" for name, value in settings if name in names and value != _DEFAULTS[name]]

    def filter(self, split: Split) -> _native.DocumentFilter:
        """Filter that selects the documents of a split. It must see all documents in order.

        Raises:
            UserError: the split is "heldout", but no documents are held out.
        """
        config = self.config
        explicit = bool(self.config.heldout_paths)
        if split == "heldout" and not explicit and not config.heldout_fraction:
            raise UserError("no documents are held out; set heldout_fraction=0.01 or heldout_paths=[FILE,...]")
        return _native.DocumentFilter(
            split="all" if explicit or not config.heldout_fraction else split,
            # Skipped records are empty documents.
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

        A record without a value yields an empty text, so that several fields of the same file stay aligned. Call
        `check_unchanged` after all files.
        """
        skipped = self.skipped if field == self.config.field else Skipped()  # a record without a source is read
        return read_files(skipped, [file], replace(self.config, field=field), aligned=True)

    def check_unchanged(self, split: Split = "all") -> None:
        """Check that no file changed since this object was created: size and modification time, or size and version.

        Raises:
            UserError: a file changed.
        """
        paths = list(self._states) if self.config.dataset else [file[0] for file in self.files_of(split) if file]
        distant = any(isinstance(path, RemoteFile) for path in paths)
        states = concurrently(text_files.state, paths) if distant else map(text_files.state, paths)
        for path, now in zip(paths, states, strict=True):
            if now != self._states[path]:
                raise UserError(changed(path, self._states[path], now))

    def documents(self, split: Split = "train") -> Iterator[str]:
        """The texts one by one. Slow; for inspection."""
        for batch in self.batches(split):
            yield from map(batch.text, range(len(batch)))

    def identity(self) -> dict[str, Any]:
        """Everything that the training documents depend on, as JSON: configuration and fingerprint of each file.

        `heldout_sample` is left out, so that a change of it does not train everything again. Results for held-out
        documents depend on it as well.

        Fingerprints hash only the first, middle and last 64 kB: hashing terabytes would take as long as counting them.
        """
        config = {name: value for name, value in asdict(self.config).items() if name not in _NOT_IDENTITY}
        for name in ("heldout_near_duplicates", "on_error"):  # later settings: earlier corpora keep their identity
            if config[name] == _DEFAULTS[name]:
                del config[name]
        if self._source:
            n_files = Counter(self._source.values())
            config["sources"] = {name: [weight, n_files[name]] for name, weight in self.config.weights.items()}
        return {
            "config": config,
            "files": [text_files.fingerprint(path) for path, _ in self.files],
            "heldout_files": [text_files.fingerprint(path) for path, _ in self.heldout_files],
            "dataset": text_files.dataset_identity(self.config.dataset),
        }
