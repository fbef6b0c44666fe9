"""Atomic writes, which survive a kill or a full disk: either the old file remains, or the new one is complete.

A file or a folder is written in a temporary folder beside it, `.NAME.….partial`, synced to disk and renamed. The writer
holds the kernel's lock of that folder, so the next writer of NAME can remove what a killed one left.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tokenizer import system
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial", re.DOTALL)


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
        system.sync(path)


def sync_all(folder: Path) -> None:
    """Flush a folder and everything in it to the device."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def remove_folder(path: Path, *, ignore_errors: bool = False) -> None:
    """Delete a folder and its content, if it exists."""
    if ignore_errors or path.exists():
        shutil.rmtree(path, ignore_errors=ignore_errors)


def remove_at_once(path: Path, *, ignore_errors: bool = False) -> None:
    """Delete a folder, if it exists. It is renamed first, so that it is never half deleted under its name."""
    if path.exists():
        doomed = partial_name(path)
        path.rename(doomed)
        remove_folder(doomed, ignore_errors=ignore_errors)


@contextmanager
def locked(path: Path, on_wait: Callable[[], object] | None = None) -> Iterator[bool]:
    """Hold the lock of a file or a folder, which the kernel releases when its holder dies.

    The block gets True, or False if another process has the lock and there is no `on_wait` to call before waiting.
    """
    handle = system.open_for_lock(path)
    try:
        held = system.lock(handle, wait=False)
        if not held and on_wait is not None:
            on_wait()
            while not (held := system.lock(handle, wait=True)):
                pass
        yield held
    finally:
        os.close(handle)


def partial_name(path: Path) -> Path:
    """Return a temporary name in the folder of `path`: `.NAME.….partial`, unique for every writer."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")


def remove_leftovers(folder: Path, name: str | None = None) -> bool:
    """Remove what killed writers of `name` (None: of all) left in a folder; return whether there is a live one."""
    alive = False
    with suppress(OSError):  # not permitted, no locks, or another process removes the same
        for entry in list(os.scandir(folder)):
            found = _PARTIAL.fullmatch(entry.name)
            if found is not None and name in (None, found[1]) and entry.is_dir(follow_symlinks=False):
                with locked(Path(entry)) as dead:
                    if dead:
                        remove_folder(Path(entry), ignore_errors=True)
                    alive = alive or not dead
    return alive


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a new temporary folder beside `path`, locked; it is removed at the end, unless it was renamed."""
    with ExitStack() as lock:
        while True:
            partial = partial_name(path)
            try:
                partial.mkdir()
            except OSError as error:
                error.filename = str(path)
                raise
            with suppress(OSError):  # a disk without locks; there, leftovers stay
                lock.enter_context(locked(partial, on_wait=lambda: None))
            if partial.exists():  # otherwise another process took it for a leftover before it was locked
                break
        try:
            yield partial
        finally:
            remove_folder(partial, ignore_errors=True)


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is synced and renamed to `path` when the block ends.

    If the block raises, `path` is unchanged. An OSError in the block names `path`.
    """
    remove_leftovers(path.parent, path.name)
    with _temporary(path) as folder:
        with naming(path):
            yield folder / path.name
            sync(folder / path.name)
        (folder / path.name).replace(path)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing with `replacing_path`."""
    with replacing_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is synced and renamed to `path` when the block ends.

    If the block raises, the folder is removed. An existing folder is replaced only if it is empty.

    Raises:
        UserError: If `path` exists or cannot be replaced, or another process is writing it or has written it.
    """
    path = path.resolve()
    exists = UserError(f"{path} already exists; name a new folder, or remove it")
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise exists
    if path == Path.cwd() or os.path.ismount(path):
        raise UserError(f"{path} is in use as a working folder or a mount point; name a new folder inside it")
    if remove_leftovers(path.parent, path.name):
        raise UserError(f"another process is writing {path}; wait for it, or name another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as partial:
        yield partial
        sync_all(partial)
        with suppress(OSError):
            path.rmdir()  # Windows replaces no folders, not even empty ones
        try:
            partial.replace(path)
        except OSError:
            if path.exists():
                raise exists from None
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
