"""File operations on object storage: `s3:/BUCKET/NAME` and `gs:/BUCKET/NAME` are paths of objects.

A file is written to a temporary local one, and uploaded when it gets its final name, so an object appears as a whole.
Reading from an open file uses ranges.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tokenizer import storage
from tokenizer.corpus import remote
from tokenizer.errors import UserError
from tokenizer.urls import is_remote, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMES = ("s3:", "gs:")


def on_bucket(path: Path) -> bool:
    """Whether a path is that of an object."""
    return path.parts[:1] in [(scheme,) for scheme in _SCHEMES]


def bucket_path(url: str) -> Path:
    """The path of a URL, without its credentials; a local path as it is. From now on this process can use such paths.

    >>> bucket_path("s3://bucket/a/b")
    PosixPath('s3:/bucket/a/b')

    Raises:
        UserError: objects with this URL cannot be written.
    """
    path = Path(shown(url))
    if on_bucket(path):
        use_buckets()
    elif is_remote(url):
        raise UserError(f"{shown(url)} cannot be written; name a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    return path


def use_buckets() -> None:
    """Let this process use paths of objects."""
    if not isinstance(storage.disk, BucketDisk):
        storage.disk = BucketDisk()


def _url(path: Path) -> str:
    scheme, *names = path.parts
    return f"{scheme}//{'/'.join(names)}"


def _found(path: Path) -> remote.RemoteFile:
    try:
        return remote.at(_url(path))
    except remote.Missing as error:
        raise FileNotFoundError(errno.ENOENT, str(error), str(path)) from None


class BucketDisk(storage.Disk):
    """The local file system, and objects on S3 and GCS. An object has no folder that must be made first."""

    def __init__(self) -> None:
        self._written: dict[Path, Path] = {}

    def open(self, path: Path, mode: str) -> IO[bytes]:
        """Open a file in a binary mode; an object is read, or written as a whole."""
        if not on_bucket(path):
            return super().open(path, mode)
        if mode == "rb":
            file = _found(path).open(remote.Stop())
            return cast(IO[bytes], io.BufferedReader(file, remote.BLOCK_BYTES))
        assert mode == "wb", "an object cannot be changed"
        handle, name = tempfile.mkstemp(prefix="superbpe-upload-")
        self._written[path] = Path(name)
        return os.fdopen(handle, mode)

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or an object with this path; a local folder exists, too."""
        if not on_bucket(path):
            return super().exists(path)
        try:
            _found(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return _found(path).stat.size if on_bucket(path) else super().size(path)

    def mode(self, path: Path) -> int:
        """Return the type and the permissions of a file."""
        if not on_bucket(path):
            return super().mode(path)
        _found(path)
        return stat.S_IFREG

    def local(self, path: Path) -> Path:
        """Return a local path of a file, which an object does not have."""
        assert not on_bucket(path), f"{path} is not on this machine"
        return super().local(path)

    @contextmanager
    def borrowed(self, path: Path) -> Iterator[Path]:
        """Yield a local path of a file for the time of the block: of an object, a temporary copy."""
        if not on_bucket(path):
            yield self.local(path)
            return
        with tempfile.TemporaryDirectory(prefix="superbpe-object-") as folder:
            copy = Path(folder) / path.name
            with self.open(path, "rb") as source, super().open(copy, "wb") as target:
                shutil.copyfileobj(source, target, remote.BLOCK_BYTES * remote.AHEAD)
            yield copy

    def free_bytes(self, folder: Path) -> int:
        """Return the free bytes of the disk of a folder; object storage is not limited."""
        return sys.maxsize if on_bucket(folder) else super().free_bytes(folder)

    def sync(self, path: Path) -> None:
        """Flush a file or a folder to the device; an object is safe once it is uploaded."""
        if not on_bucket(path):
            super().sync(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or a folder, or upload an object that was written."""
        if on_bucket(source) != on_bucket(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
        if not on_bucket(source):
            super().rename(source, target)
            return
        remote.upload(self._written[source], _url(target))
        self.remove(source)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Delete a file, or an object if there is one."""
        if not on_bucket(path):
            super().remove(path, missing_ok=missing_ok)
        elif (written := self._written.pop(path, None)) is not None:
            super().remove(written, missing_ok=True)
        else:
            remote.delete(_url(path))

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, unless they exist."""
        if not on_bucket(path):
            super().make_folder(path)

    def remove_folder(self, path: Path, *, ignore_errors: bool = False) -> None:
        """Delete a folder and its content, if it exists."""
        if on_bucket(path):
            remote.delete(_url(path))
        else:
            super().remove_folder(path, ignore_errors=ignore_errors)
