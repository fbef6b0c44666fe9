"""Atomic writes, which survive a kill or a full disk: either the old file remains, or the new one is complete.

A file is written under a temporary name in the same folder, synced to disk and renamed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to every OSError in the block without a file name, as `write` and `fsync` raise it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Flush a file or a folder to the device."""
    with naming(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_folder(path: Path, *, ignore_errors: bool = False) -> None:
    """Delete a folder and its content, if it exists."""
    if ignore_errors or path.exists():
        shutil.rmtree(path, ignore_errors=ignore_errors)


def partial_name(path: Path) -> Path:
    """Return a temporary name in the folder of `path`: `.NAME.….partial`, unique for every writer."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is synced and renamed to `path` when the block ends.

    If the block raises, `path` is unchanged. An OSError in the block names `path`.
    """
    partial = partial_name(path)
    try:
        with naming(path):
            yield partial
            sync(partial)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing with `replacing_path`."""
    with replacing_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a folder that is renamed to `path` when the block ends.

    If the block raises, the folder is removed. An existing folder is replaced only if it is empty.
    """
    partial = partial_name(path)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        remove_folder(partial, ignore_errors=True)
        raise
    sync(path.parent)


def is_damage(error: BaseException) -> bool:
    """Whether an error of a library that read a file is due to its content, not to the disk, permissions or memory.

    Libraries raise OSErrors for damaged content as well: without a number, or with EINVAL after a wrong offset.
    """
    if isinstance(error, MemoryError):
        return False
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL, errno.ENOENT)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file atomically: a reader sees either the old or the new content."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with `write_whole`."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
