"""The local cache of artifacts on object storage: its folder, its limit, and which artifacts processes use."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.store.manifest import MANIFEST
from tokenizer import storage
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.files import read_json
from tokenizer.urls import shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from filelock import FileLock

_MARK = ".bucket.json"
_HELD, _USED = ".held", ".used"
_GATE = "cache"
FOLDER = "SUPERBPE_CACHE"
"""Environment variable with the folder of all caches, instead of `superbpe` in the user's cache folder."""


def cache_of(url: str, folder: str | None = None, gigabytes: float | None = None) -> Path:
    """Return the local folder for the artifacts at a URL, made if it does not exist.

    Args:
        url: Folder on object storage.
        folder: The local folder; None for one in the user's cache folder.
        gigabytes: Maximum size of the cache.

    Raises:
        UserError: If the URL or the limit cannot be used, or the folder belongs to another URL.
    """
    name = shown(url).rstrip("/")
    scheme, _, place = name.partition("://")
    if without_credentials(url) != url or scheme not in ("s3", "gs") or not place or re.search(r"[*?\[]", place):
        raise UserError(f"artifacts={name}: write a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    if gigabytes is not None and gigabytes <= 0:
        raise UserError(f"artifacts_cache_gb={gigabytes:g} must be above 0")
    if folder is None:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "superbpe"
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[-60:].strip("-")
        path = Path(os.environ.get(FOLDER) or usual) / f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    else:
        path = Path(folder)
    found = marked(path)
    if found is None and path.is_dir() and any(not each.name.startswith(".") for each in path.iterdir()):
        raise UserError(f"artifacts_cache={path} contains other files; name a new folder")
    if found is not None and found["url"] != name:
        raise UserError(f"artifacts_cache={path} is the cache of {found['url']}; name another folder")
    limit = None if gigabytes is None else int(gigabytes * 1e9)
    if found is None or limit not in (None, found["bytes"]):
        try:
            storage.disk.make_folder(path)
            write_json(path / _MARK, {"url": name, "bytes": limit})
        except OSError as error:
            raise UserError(
                f"cannot write to the cache {path} ({error.strerror}); set artifacts_cache=FOLDER"
            ) from None
    return path


def marked(folder: Path) -> dict[str, Any] | None:
    """Return URL and limit (`bytes`) of a cache; None for any other folder."""
    path = folder / _MARK
    return read_json(path) if path.exists() else None


class Cache:
    """The folder of a cache.

    Args:
        root: The folder.
        limit: Maximum size in bytes; None for no limit.
        filelock: Returns the lock of a name, as `Store.filelock`.
    """

    def __init__(self, root: Path, limit: int | None, filelock: Callable[[str], FileLock]) -> None:
        self._root, self._limit, self._filelock = root, limit, filelock
        self._token = f"use-{os.urandom(6).hex()}"
        self._names: list[str] = []
        self._alive: FileLock | None = None

    def hold(self, name: str) -> None:
        """Keep an artifact in the cache for as long as this object exists."""
        if name not in self._names:
            with self._filelock(_GATE):
                if self._alive is None:
                    self._alive = self._filelock(self._token)
                    self._alive.acquire()
                    storage.disk.make_folder(self._root / _HELD)
                self._names.append(name)
                write_whole(self._root / _HELD / self._token, "\n".join(self._names))
            storage.disk.make_folder(self._root / _USED)
            write_whole(self._root / _USED / name, "")  # its modification time is when the artifact was last used

    def make_space(self, incoming: int, lost: Callable[[str], bool], remove: Callable[[str], None]) -> None:
        """Remove the artifacts that were used longest ago until the cache is within its limit.

        What a process uses, and what is not in the bucket, stays.

        Args:
            incoming: Bytes that are about to be added.
            lost: Whether an artifact exists only here.
            remove: Removes an artifact from the cache.
        """
        if self._limit is None:
            return
        sizes = {path.parent.name: _size(path.parent) for path in self._root.glob(f"[!.]*/{MANIFEST}")}
        total = sum(sizes.values()) + incoming
        for name in sorted(sizes, key=self._last_used):
            if total <= self._limit:
                return
            if name in self._held() or lost(name):
                continue
            with self._filelock(_GATE):
                if name in self._held() or not (self._root / name).exists():
                    continue
                remove(name)
            total -= sizes[name]

    def _last_used(self, name: str) -> float:
        path = self._root / _USED / name
        return path.stat().st_mtime if path.exists() else 0.0

    def _held(self) -> set[str]:
        """Return the artifacts that processes use, and forget those of processes that have ended."""
        found = set(self._names)
        for path in (self._root / _HELD).glob("use-*"):
            if path.name == self._token:
                continue
            lock = self._filelock(path.name)
            try:
                lock.acquire(timeout=0)
            except TimeoutError:
                found.update(path.read_text().split("\n"))
                continue
            storage.disk.remove(path, missing_ok=True)
            lock.release()
        return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
