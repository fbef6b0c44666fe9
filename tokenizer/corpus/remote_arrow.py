"""Files of S3 and Google Cloud Storage, read and written by `pyarrow.fs`."""

from __future__ import annotations

import os
import re
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from tokenizer import storage
from tokenizer.corpus.remote_store import Stat, has_magic
from tokenizer.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokenizer.corpus.remote_store import Read

_BLOCK_BYTES = 1 << 23
_WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])")


class ArrowStore:
    """A file system of `pyarrow.fs`. Keys are `BUCKET/NAME`.

    Args:
        scheme: "s3" or "gs".
    """

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def find(self, url: str) -> Iterator[str]:
        """See `Store.find`."""
        from pyarrow.fs import FileSelector, FileType

        key = shown(url).partition("://")[2]
        system = _system(self._scheme, key.partition("/")[0])
        folder, recursive, matches = key.rstrip("/"), True, re.compile(".*", re.DOTALL)
        if has_magic(url):
            fixed = _WILDCARD.split(key)[0]
            folder, _, _ = fixed.rpartition("/")
            recursive, matches = "/" in key[len(folder) + 1 :], re.compile(_regex(key))
        elif (info := system.get_file_info(key)).type == FileType.File:
            yield key
            return
        elif info.type == FileType.NotFound:
            raise FileNotFoundError(key)
        for info in system.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive)):
            if info.type == FileType.File and matches.fullmatch(info.path):
                yield info.path

    def open(self, key: str) -> tuple[Stat, Read]:
        """See `Store.open`."""
        system = _system(self._scheme, key.partition("/")[0])
        file = system.open_input_file(key)
        if self._scheme == "s3":
            about = {name.lower(): value.decode() for name, value in file.metadata().items()}
            version = about.get("versionid") or about.get("etag") or about.get("last-modified") or ""
            stat = Stat(file.size(), version)
        else:  # for GCS, these methods of the file hold the GIL during a request
            info = system.get_file_info(key)
            stat = Stat(info.size, str(info.mtime_ns))

        def read(start: int, length: int) -> bytes:
            return file.read_at(length, start)  # type: ignore[no-any-return]

        return stat, read

    def write(self, key: str, path: Path, stop: threading.Event) -> None:
        """Write a local file under this key. The object appears as a whole, once all of it is written."""
        system = _system(self._scheme, key.partition("/")[0], writes=True)
        with storage.disk.open(path, "rb") as source, system.open_output_stream(key, compression=None) as target:
            while not stop.is_set() and (block := source.read(_BLOCK_BYTES)):
                target.write(block)

    def delete(self, key: str) -> None:
        """Delete an object, or all objects in a folder, if there are any."""
        from pyarrow.fs import FileType

        system = _system(self._scheme, key.partition("/")[0], writes=True)
        kind = system.get_file_info(key).type
        if kind == FileType.File:
            system.delete_file(key)
        elif kind == FileType.Directory:
            system.delete_dir(key)

    def url(self, key: str) -> str:
        """See `Store.url`."""
        return f"{self._scheme}://{key}"


def _regex(pattern: str) -> str:
    """Regex of a glob: `*` and `?` stop at a slash, `**` does not.

    >>> bool(re.fullmatch(_regex("b/**/x?.*"), "b/c/d/x1.gz")), bool(re.fullmatch(_regex("b/*.gz"), "b/c/x.gz"))
    (True, False)
    """
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = (
        parts.get(part) or (part.replace("[!", "[^") if part[:1] == "[" and part[-1:] == "]" else re.escape(part))
        for part in _WILDCARD.split(pattern)
    )
    return "".join(pieces)


@cache
def _system(scheme: str, bucket: str, *, writes: bool = False) -> Any:
    from pyarrow import fs

    if scheme == "gs":
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if not emulator:
            return fs.GcsFileSystem()
        protocol, _, host = emulator.rpartition("://")
        return fs.GcsFileSystem(anonymous=True, scheme=protocol or "http", endpoint_override=host)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # `remote` repeats attempts, longer than Arrow does. Of an upload it repeats all parts, and Arrow only one.
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=3 if writes else 1)
    # In the background, a file is copied to memory as fast as it can be read.
    options = {"retry_strategy": retries, "background_writes": not writes}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        protocol, _, host = endpoint.rstrip("/").rpartition("://")
        return fs.S3FileSystem(scheme=protocol or "https", endpoint_override=host, region=region, **options)
    if not region:
        try:
            region = fs.resolve_s3_region(bucket)
        except OSError:  # reading the bucket reports the reason
            region = None
    return fs.S3FileSystem(region=region, **options)
