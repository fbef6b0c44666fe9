"""Checksums of files and JSON: a flipped bit or a changed file is detected.

Checksums of files are XXH3-128: they detect damage at several gigabytes per second, but do not protect against an
attacker. Sealed JSON files contain the SHA-256 of their content.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, cast

from tokenizer import storage
from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import check_file, confined, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Verify: TypeAlias = Literal["always", "once", "never"]
"""When to compare files with their checksums: at every use, at the first use in a process, or never (sizes only)."""

SEAL = "seal"
"""Key of a sealed JSON object for the digest of all its other entries."""

# Checksums computed by this process, keyed by device, inode, size and modification time to detect changes.
_known: dict[tuple[int, int, int, int], str] = {}


def checksum(path: Path, *, again: bool = False) -> str:
    """Return the XXH3-128 of a file (32 hex digits), cached per process until the file changes.

    Args:
        path: the file.
        again: read the file even if its checksum is cached.
    """
    import xxhash

    with storage.naming(path), storage.disk.open(path, "rb") as file:
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


def n_bytes_of(files: Mapping[str, Any]) -> int:
    """Return the total size of files; takes the result of `recorded`."""
    return sum(entry["bytes"] for entry in files.values())


def check_sizes(folder: Path, files: Mapping[str, Any]) -> None:
    """Check that files are regular files inside the folder, and have the recorded sizes.

    Args:
        folder: folder of the files.
        files: result of `recorded`.

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
    total, done = n_bytes_of(files), 0
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
