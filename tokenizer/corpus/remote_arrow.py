"""Files of S3 and Google Cloud Storage, read by `pyarrow.fs`."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from tokenizer.corpus.remote_store import Stat, has_magic
from tokenizer.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer.corpus.remote_store import Read

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
def _system(scheme: str, bucket: str) -> Any:
    from pyarrow import fs

    if scheme == "gs":
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if not emulator:
            return fs.GcsFileSystem()
        protocol, _, host = emulator.rpartition("://")
        return fs.GcsFileSystem(anonymous=True, scheme=protocol or "http", endpoint_override=host)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=1)  # `remote` repeats attempts, longer than Arrow does
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        protocol, _, host = endpoint.rstrip("/").rpartition("://")
        return fs.S3FileSystem(
            scheme=protocol or "https", endpoint_override=host, region=region, retry_strategy=retries
        )
    if not region:
        try:
            region = fs.resolve_s3_region(bucket)
        except OSError:  # reading the bucket reports the reason
            region = None
    return fs.S3FileSystem(region=region, retry_strategy=retries)
