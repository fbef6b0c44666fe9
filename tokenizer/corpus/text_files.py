"""The files of a corpus: finding them, and telling whether they changed."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

from tokenizer.corpus import remote
from tokenizer.corpus.config import FORMATS
from tokenizer.corpus.records import COMPRESSIONS, ending, opened
from tokenizer.corpus.remote import File, RemoteFile, Stat
from tokenizer.errors import UserError, counted, listed, quoted
from tokenizer.files import TOKENIZER_FILES, check_file, confined, is_remote, read_json, shown

_OTHER_ENDINGS = {"text": "txt", "ndjson": "jsonl", "json": "jsonl", "tsv": "csv"}
_WRITTEN = re.compile(
    "md|rst|html?|xml|tex|org|adoc|log|pyi?|rs|[ch]|cc|[ch]pp|cs|java|kt|go|jsx?|tsx?|rb|php|p[lm]|r|jl|lua|sh|sql|swift|"
    "scala|hs|ml|ex|clj|css|ya?ml|toml|ini"
)
"""Endings of text that people write, which is read as .txt where it is named, or where a folder has nothing else."""
READABLE = ".txt, .jsonl, .csv or .parquet"
"""Endings to name in messages; `format_of` knows their other spellings, and compressed files."""
_SAVED = ["superbpe.json"], ["tokenizer.json", "tokenizer_config.json"]
"""Files by which a folder has a tokenizer: ours, or in the format of Hugging Face."""
_SAMPLE_BYTES = 1 << 16

_F = TypeVar("_F", Path, RemoteFile)


def find(paths: Iterable[str], form: str | None, cache: str | None = None) -> list[tuple[File, str]]:
    """The files of paths, URLs and globs in order, each once, with their formats.

    Raises:
        UserError: a path names no file, or a file is of an unknown type.
    """
    found: dict[File, tuple[File, str]] = {}  # by resolved path, so that a file counts once under several names
    for given in paths:
        if not isinstance(given, str | Path):  # types are not checked in user code
            raise UserError(f"the path {given!r} is not a string")
        for file in _matches(os.path.expanduser(given)):  # noqa: PTH111 (a path of "" stays)
            detected = form or named_format(file)
            if cache is not None and isinstance(file, RemoteFile):
                file = replace(file, cache=_made(cache))
            if detected is None:
                raise UserError(
                    f"{file}: unknown file type; name it {READABLE}, or set format=txt, jsonl, csv or parquet"
                )
            if detected == "arrow" and isinstance(file, RemoteFile):
                raise UserError(f"{file}: a dataset that `save_to_disk` wrote; download it, and read it from disk")
            if form is None and detected == "jsonl" and ".json" in PurePath(str(file)).suffixes and is_array(file):
                detected = "json"
            if str(file) == str(given) and file.resolve() in found:
                warnings.warn(f"{file} is named more than once, and read once", stacklevel=2)
            found.setdefault(file.resolve(), (file, detected))
    return list(found.values())


def _made(cache: str) -> Path:
    """The folder of a cache, made if it does not exist."""
    folder = Path(cache).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cache={quoted(cache)} cannot be made: {error.strerror}; name another folder") from None
    return folder


def _matches(path: str) -> Sequence[File]:
    """The files that a path, a URL or a glob names; a UserError if there is none."""
    left: list[File] = []
    matches: Sequence[File]
    if is_remote(path):
        matches = remote.find(path, lambda inside: [file for file in _texts(inside, left) if format_of(file)])
    elif glob.has_magic(path) and not Path(path).exists():
        matches = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (Path.glob rejects absolute patterns)
    elif (Path(path) / "dataset_dict.json").is_file():
        raise UserError(f"{path} has several splits of a dataset: name one of them, such as {path}/train")
    elif (Path(path) / "state.json").is_file() and (Path(path) / "dataset_info.json").is_file():
        saved = read_json(Path(path) / "state.json").get("_data_files")  # `Dataset.save_to_disk` wrote the folder
        matches = [confined(Path(path), file.get("filename")) for file in saved or []]
    elif Path(path).is_dir():
        inside = _texts(sorted(Path(path).rglob("*")), left)
        matches = [file for file in inside if format_of(file) not in (None, "arrow")]
        matches = matches or [file for file in inside if named_format(file) == "txt"]
    else:
        matches = [Path(path)]
    said = f"{counted(len(left), 'file')} of tokenizers left out: {listed(left)}"
    if files := [match for match in matches if isinstance(match, RemoteFile) or match.is_file()]:
        if left:
            warnings.warn(f"{said}; to read a file, name it", stacklevel=2)
        return files
    said = f"; {said}" if left else ""
    if is_remote(path):
        raise UserError(f"{shown(path)}: no such file, or a folder without {READABLE} files{said}")
    what = "no such file"
    if Path(path).is_dir():
        what = f"the directory contains no {READABLE} file"
    elif Path(path).exists():
        check_file(Path(path))
    raise UserError(f"{path}: {what} (working directory: {Path.cwd()}){said}")


def state(path: File) -> Stat:
    """Size and version of a file now, to detect changes; a local file's version is its time."""
    if isinstance(path, RemoteFile):
        return path.current()
    try:
        stat = path.stat()
    except FileNotFoundError:
        return Stat(-1, "")
    return Stat(stat.st_size, str(stat.st_mtime_ns))


def is_array(path: File) -> bool:
    """Whether a local file has a JSON array instead of lines."""
    if isinstance(path, RemoteFile):
        return False
    with suppress(OSError, UserError), opened(path) as stream:  # damage is reported by the reader
        return stream.read(1 << 10).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    return False


def format_of(path: File | PurePath) -> str | None:
    """The format that a file's name says, one of `FORMATS`; None for a name that no text has."""
    form = _OTHER_ENDINGS.get(ending(path), ending(path))
    return form if form in FORMATS else None


def named_format(path: File | PurePath) -> str | None:
    """The format of a file that is named as a text: as `format_of` says, or txt for Markdown, source code and the like.

    >>> named_format(PurePath("notes.md")), named_format(PurePath("model.bin"))
    ('txt', None)
    """
    return format_of(path) or ("txt" if _WRITTEN.fullmatch(ending(path)) else None)


def _texts(files: Sequence[_F], left: list[File]) -> list[_F]:
    """The files of a folder without the files of tokenizers saved in it; these are added to `left`."""
    paths = set(map(str, files))

    def is_of_tokenizer(path: str) -> bool:
        name = PurePath(path).name
        folder = path.removesuffix(name)
        return name in TOKENIZER_FILES and any(
            paths.issuperset(f"{folder}{marker}" for marker in markers) for markers in _SAVED
        )

    texts = []
    for file in files:
        if is_of_tokenizer(str(file)):
            left.append(file)
        else:
            texts.append(file)
    return texts


def is_plain(path: File, form: str) -> bool:
    """Whether a file of this format holds text as it is, so that the text is at most as long as the file."""
    return form in ("txt", "jsonl", "json") and PurePath(str(path)).suffix.lower() not in COMPRESSIONS


def without_ending(name: str) -> str:
    """The name of a text file without its ending; other names stay.

    >>> without_ending("web.jsonl.zst"), without_ending("example.org")
    ('web', 'example.org')
    """
    path = PurePath(name)
    if format_of(path) is None:
        return name
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return path.with_suffix("").as_posix()


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


def local_files(dataset: str | None) -> list[Path]:
    """The files of a dataset that is a local folder."""
    return [] if not dataset else sorted(path for path in Path(dataset).rglob("*") if path.is_file())


def dataset_identity(name: str | None) -> Any:
    """Identity of a dataset: fingerprints of its files if it is local, otherwise the hub's revision."""
    if not name:
        return None
    if Path(name).exists():
        return [fingerprint(path) for path in local_files(name)]
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    except (OSError, ValueError) as error:  # offline, or no such dataset: loading it reports the error
        warnings.warn(f"cannot determine the revision of {name} ({error}); results are cached by name", stacklevel=2)
        return None
