"""Files that users name: paths and URLs, JSON of bounded depth, arrays, checksums, free space.

Checksums of files are XXH3-128: they detect damage at several gigabytes per second, but do not protect against an
attacker. Sealed JSON files contain the SHA-256 of their content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, cast

from tokenizer.durable import is_damage, naming, write_json
from tokenizer.errors import UserError, quoted, shortened

if TYPE_CHECKING:
    import numpy.typing as npt

SCHEMES = ("s3", "gs", "hf", "https", "http")
"""Schemes of the URLs that can be read, see `tokenizer.corpus.remote`."""
_SCHEME = rf"(?:[a-z][a-z0-9+.-]+://|(?:{'|'.join(SCHEMES)}):/)/*"  # `Path` leaves a single slash
_BEFORE_URL = re.compile(rf"(?<=[\s,'\"(\[{{])(?={_SCHEME})", re.IGNORECASE)
_URL = re.compile(rf"(.*?)({_SCHEME})([^/?#]*)(.*?)([\s,'\"()\[\]{{}}.;:]*)", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|(?:[\w.~-]|\$\{[^{},]*\})*)(?::\d*)?")

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Verify: TypeAlias = Literal["always", "once", "never"]
"""When to compare files with their checksums: at every use, at the first use in a process, or never (sizes only)."""

SEAL = "seal"
"""Key of a sealed JSON object for the digest of all its other entries."""

TOKENIZER_FILES = {
    *("superbpe.json", "external.json", "tokenizer.json", "vocab.json", "merges.txt"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json"),
}
"""Files with the same name in every tokenizer."""

# Checksums computed by this process, keyed by device, inode, size and modification time to detect changes.
_known: dict[tuple[int, int, int, int], str] = {}


def check_file(path: Path) -> None:
    """Reject a path that is not a regular file, because reading a FIFO, a socket or a device could block forever.

    Raises:
        FileNotFoundError: the path does not exist.
        UserError: the path exists but is not a regular file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise UserError(f"{path} is {kind}, not a regular file; write its text to a regular file first")


def confined(folder: Path, name: object) -> Path:
    """Return the path of a file whose name comes from a file: a manifest, a tokenizer's configuration, a listing.

    >>> confined(Path("artifacts/lm"), "model/weights.bin").as_posix()
    'artifacts/lm/model/weights.bin'

    Args:
        folder: folder that the file is in.
        name: path relative to the folder, with `/`.

    Raises:
        UserError: the name is absolute, leaves the folder, or is not a plain relative path.
    """
    plain = isinstance(name, str) and name.isprintable() and not set(name) & set("\\:")
    if not plain or name != str(PurePosixPath(str(name))) or name.startswith("/") or {".", ".."} & set(name.split("/")):
        raise UserError(f"{folder} names the file {quoted(name)}, which is not a plain path inside the folder")
    return folder / str(name)


@contextmanager
def temporary_folder(parent: Path | str | None) -> Iterator[Path]:
    """A temporary folder, which is deleted at the end.

    Args:
        parent: existing folder to make it in; None for the system's temporary folder.

    Raises:
        UserError: the folder cannot be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="superbpe-spill-", dir=parent)
    except OSError as error:
        raise UserError(f"spill_folder={str(parent)!r} cannot be written: {error}") from None
    with folder as name:
        yield Path(name)


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        FileNotFoundError: the path does not exist.
        UserError: the path is not a regular file, or the file does not fit into memory.
    """
    check_file(path)
    try:
        with naming(path):
            return path.read_bytes()
    except MemoryError:
        size = path.stat().st_size
        raise UserError(f"{path} has {size:,} bytes, which do not fit into memory; is it the right file?") from None


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        FileNotFoundError: the path does not exist.
        UserError: the path is not a regular file, or the content is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error})") from None


def read_json(path: Path, remedy: str = "") -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: the file.
        remedy: what the user can do about a damaged file, for the message.

    Raises:
        FileNotFoundError: the path does not exist.
        UserError: the file is not a JSON object, contains a lone surrogate, or is nested too deeply.
    """
    return parse_json(read_bytes(path), path, remedy)


def parse_json(text: str | bytes, path: Path, remedy: str = "") -> dict[str, Any]:
    """`read_json` for content that was already read."""
    suffix = f"; {remedy}" if remedy else ""
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        parsed = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if _SURROGATE.search(text):
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise UserError(f"{path} nests JSON values too deeply{suffix}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}){suffix}") from None
    except UnicodeEncodeError:
        raise UserError(f"{path} is damaged: a string in it contains a lone surrogate{suffix}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}){suffix}") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{path} is not a JSON object{suffix}")
    return parsed


def _finite(text: str) -> float:
    """A number of JSON, which has no NaN and no infinity; Python's parser accepts both."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is not finite")
    return value


def read_arrays(path: Path, remedy: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file.

    Args:
        path: the file.
        remedy: what the user can do about a damaged file, for the message.

    Raises:
        FileNotFoundError: the path does not exist.
        UserError: the file is damaged.
    """
    import numpy as np  # takes a fifth of a second, and help does not need it

    check_file(path)
    import zlib
    from zipfile import BadZipFile

    try:
        with np.load(path, allow_pickle=False) as saved:
            # NumPy reads up to the end of an array. `zipfile` compares the checksum only at the end of the member,
            # and the member's size may be damaged as well.
            damaged = saved.zip.testzip()
            arrays = {} if damaged else dict(saved)
    except (EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, BadZipFile, zlib.error) as error:
        if not is_damage(error):
            raise
        raise UserError(f"{path} is damaged ({shortened(error)}); {remedy}") from None
    if damaged:
        raise UserError(f"{path} is damaged (the checksum of {damaged} differs); {remedy}")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy returns the bytes of other files in the archive
            raise UserError(f"{path} is damaged ({name} is not an array); {remedy}")
    return arrays


def weighted(entry: str, what: str) -> tuple[str, Fraction]:
    r"""Parse an entry of a mixture, PATH or PATH:WEIGHT, into path and weight.

    A number after the last colon is a weight, unless a file has this name. Other text there is part of the path.

    >>> [(path, str(weight)) for path, weight in (weighted(x, "") for x in ("web.parquet", "web.parquet:0.5"))]
    [('web.parquet', '1'), ('web.parquet', '1/2')]
    >>> [weighted(x, "")[0] for x in ("s3://bucket/a.parquet:3", "http://host:80/a.jsonl", r"C:\data\*.txt")]
    ['s3://bucket/a.parquet', 'http://host:80/a.jsonl', 'C:\\data\\*.txt']

    Args:
        entry: PATH or PATH:WEIGHT.
        what: name of the setting, for the message.

    Raises:
        UserError: the weight is not a positive number.
    """
    path, _, weight = entry.rpartition(":")
    is_number = _NUMBER.fullmatch(weight)
    is_port = is_remote(entry) and "/" not in path.partition("://")[2]
    if not path or is_port or Path(entry).exists() or not (is_number or Path(path).exists()):
        return entry, Fraction(1)
    if not is_number or Fraction(weight) <= 0:
        raise UserError(f"{what} has {quoted(entry)}, whose weight is not a positive number; write PATH or PATH:3")
    return path, Fraction(weight)


def checksum(path: Path, *, again: bool = False) -> str:
    """Return the XXH3-128 of a file (32 hex digits), cached per process until the file changes.

    Args:
        path: the file.
        again: read the file even if its checksum is cached.
    """
    import xxhash

    with naming(path), path.open("rb") as file:
        identity = _identity(file)
        if again or identity not in _known:
            _known[identity] = hashlib.file_digest(cast(Any, file), xxhash.xxh3_128).hexdigest()
    return _known[identity]


def remember_checksum(file: IO[bytes], digest: str) -> None:
    """Cache the checksum of an open file that was computed while writing it."""
    file.flush()
    _known[_identity(file)] = digest


def _identity(file: IO[bytes]) -> tuple[int, int, int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def recorded(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return size and checksum of files, for `check_files`.

    Args:
        folder: folder of the files.
        names: paths relative to the folder, with `/`.
    """
    return {
        name: {"bytes": (folder / name).stat().st_size, "xxh3_128": checksum(folder / name)} for name in sorted(names)
    }


def check_sizes(folder: Path, files: Mapping[str, Any]) -> None:
    """Check that files are regular files inside the folder, and have the recorded sizes.

    Raises:
        UserError: a name leaves the folder, a file is not a regular file, or a size differs.
        FileNotFoundError: a file is missing.
    """
    for name, entry in files.items():
        path = confined(folder, name)
        check_file(path)
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise UserError(f"{path} is damaged: it has {size} bytes, not {entry['bytes']}")


def check_files(
    folder: Path,
    files: Mapping[str, Any],
    verify: Verify = "once",
    progress: Callable[[str, int, int | None], None] | None = None,
) -> None:
    """Compare files with their recorded sizes and checksums.

    Args:
        folder: folder of the files.
        files: result of `recorded` when they were written.
        verify: when to read the files.
        progress: called with ("bytes verified", bytes read, bytes in total).

    Raises:
        UserError: a file differs; the message names it.
        FileNotFoundError: a file is missing.
    """
    check_sizes(folder, files)
    if verify == "never":
        return
    total, done = sum(entry["bytes"] for entry in files.values()), 0
    for name, entry in files.items():
        found = checksum(folder / name, again=verify == "always")
        if found != entry["xxh3_128"]:
            raise UserError(f"{folder / name} is damaged: its checksum is {found}, not {entry['xxh3_128']}")
        done += entry["bytes"]
        if progress is not None:
            progress("bytes verified", done, total)


def digest(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of a JSON-able value; the order of keys does not matter.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with a digest of its content, for `read_sealed`."""
    write_json(path, {**value, SEAL: digest(value)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a file written by `write_sealed`.

    Raises:
        FileNotFoundError: the file does not exist.
        UserError: the file has no seal, or its content was changed.
    """
    found = read_json(path)
    if SEAL not in found:
        raise UserError(f"{path} has no seal")
    seal = found.pop(SEAL)
    if seal != digest(found):
        raise UserError(f"the content of {path} does not match its seal")
    return found


_CERTAIN = 0.5
"""Share of an estimate that must fit: an estimate may be twice too large, and work that fits is never rejected."""


def check_free(folder: Path, expected: int, what: str, remedy: str) -> None:
    """Stop work whose files will not fit on the disk.

    Args:
        folder: the folder of the files.
        expected: estimate of the bytes to write.
        what: what is written, a plural for the message.
        remedy: what the user can do.

    Raises:
        UserError: less than half of `expected` is free.
    """
    disk = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(disk).free
    if free < expected * _CERTAIN:
        raise UserError(
            f"{folder}: the {what} need about {expected / 1e9:.3g} GB, but {free / 1e9:.3g} GB of the disk are free; "
            f"{remedy}"
        )


def is_remote(path: str) -> bool:
    """Whether a path is a URL of a supported scheme.

    >>> is_remote("s3://bucket/a.jsonl"), is_remote("data/a.jsonl")
    (True, False)
    """
    scheme, found, _ = path.partition("://")
    return bool(found) and scheme.lower() in SCHEMES


def shown(word: str) -> str:
    """A path, URL or word of a command line as it may be stored and printed.

    Of each URL in it, only scheme, host and path are kept: no user name, password, query or fragment.

    >>> shown("https://me:secret@host/a.jsonl?X-Amz-Signature=abc"), shown("data/*.jsonl")
    ('https://host/a.jsonl', 'data/*.jsonl')
    """
    return "".join(map(_shown, _BEFORE_URL.split(word)))


def _shown(part: str) -> str:
    """A word whose first URL may be followed by another one only in its path or query."""
    found = _URL.fullmatch(part)
    if found is None:
        return part
    before, scheme, place, rest, closing = found.groups()
    place = place.rpartition("@")[2]
    host = cast("re.Match[str]", _HOST.match(place))[0]
    after = place[len(host) :] + rest
    malformed = after[:1] not in ("", *"/?#,'\")]}")
    if malformed or ("@" in after and (":" in host or host != place)):  # perhaps in a password that contains a slash
        return f"{before}{scheme}…{closing}"
    # Names in buckets and data sets may contain any character, and `?` is a wildcard there.
    query = "[?#](?=[^/]*=)" if scheme.lower().startswith(("s3:", "gs:", "hf:")) else "[?#]"
    return f"{before}{scheme}{host}{shown(re.split(query, after, maxsplit=1)[0])}{closing}"


def without_credentials(message: object) -> str:
    """A text whose URLs, each without white space, are as in `shown`."""
    return re.sub(r"\S*:/\S*", lambda found: shown(found[0]), str(message))
