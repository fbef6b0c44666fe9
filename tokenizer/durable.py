"""Atomic writes, which survive a kill or a full disk: either the old file remains, or the new one is complete.

A file is written under a temporary name in the same folder, synced to disk and renamed.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from tokenizer import storage
from tokenizer.storage import naming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_BLOCK_BYTES = 1 << 25
"""Bytes per read of a file that is copied; enough for concurrent requests to object storage."""


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
            storage.disk.sync(partial)
        storage.disk.rename(partial, path)
    except BaseException:
        with suppress(OSError):
            storage.disk.remove(partial, missing_ok=True)
        raise
    storage.disk.sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing with `replacing_path`."""
    with replacing_path(path) as partial, storage.disk.open(partial, "wb") as file:
        yield file


def move_file(source: Path, target: Path) -> None:
    """Rename a file that is on disk, also to another file system."""
    try:
        storage.disk.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with storage.disk.open(source, "rb") as content, replacing(target) as file:
            while block := content.read(_BLOCK_BYTES):
                file.write(block)
        storage.disk.remove(source)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a folder that is renamed to `path` when the block ends.

    If the block raises, the folder is removed. An existing folder is replaced only if it is empty.
    """
    partial = partial_name(path)
    try:
        yield partial
        storage.disk.rename(partial, path)
    except BaseException:
        storage.disk.remove_folder(partial, ignore_errors=True)
        raise
    storage.disk.sync(path.parent)


def is_damage(error: BaseException) -> bool:
    """Whether an error of a library that read a file is due to its content, not to the disk or permissions.

    Libraries raise OSErrors for damaged content as well: without a number, or with EINVAL after a wrong offset.
    """
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL, errno.ENOENT)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file atomically: a reader sees either the old or the new content."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with `write_whole`."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
