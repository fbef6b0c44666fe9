"""Files on object storage, the Hugging Face Hub and the web, through libraries with fsspec's interface.

`pyarrow.fs` reads and writes s3:// and gs://, `huggingface_hub` reads hf://, fsspec's own client https://. Credentials
come from where these libraries look for them. URLs are stored and shown without user names, passwords and queries,
which may contain credentials.
"""

from __future__ import annotations

import ctypes
import glob
import os
import random
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tokenizer.durable import replacing
from tokenizer.errors import UserError, needs_extra, shortened
from tokenizer.files import digest, shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BLOCK_BYTES, AHEAD = 1 << 23, 4
"""Bytes per request, and requests in flight per file."""
ATTEMPTS, FIRST_DELAY, LONGEST_DELAY = 8, 0.5, 30.0
"""Consecutive attempts, seconds before the second one, which double with every further one, and their maximum."""
_OVERLAP_BYTES = 1 << 12
"""Bytes that consecutive requests have in common, so that an answer for another range is noticed."""
ZEROS = bytes(64)
"""Bytes at the end of an answer that may be missing ones."""
_WEB = ("https", "http")
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_AWS_TEMPORARY = re.compile(
    "AWS Error (NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_T|UNKNOWN .*429)"
)
_REMEDY = "check the URL, the network and the credentials, then run the same command again"

_T = TypeVar("_T")
_V = TypeVar("_V")


class Stat(NamedTuple):
    """Size of a file in bytes, and what changes with its content: ETag, hash or time ("" if the server has none)."""

    size: int
    version: str


@dataclass(frozen=True, order=True)
class RemoteFile:
    """A file that is not on this machine.

    Attributes:
        url: URL without credentials.
        stat: size and version when it was found.
        address: URL as the user wrote it.
        cache: folder that keeps what is read; None for none.
    """

    url: str
    stat: Stat
    address: str = field(repr=False)
    cache: Path | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.url

    def resolve(self) -> RemoteFile:
        """Return the file itself, as `Path.resolve` does for a real path."""
        return self

    def current(self) -> Stat:
        """Size and version now.

        Raises:
            UserError: the file does not exist or cannot be reached.
        """
        system, path = _system(self.address)
        about = attempted(self.url, lambda: system.info(path))
        if about["size"] is None:
            raise UserError(f"{self}: the server does not say its size; download the file and read it from disk")
        hashed = (about.get("lfs") or {}).get("sha256") or about.get("blob_id")
        version = hashed or about.get("ETag") or about.get("Last-Modified") or about.get("mtime") or ""
        return Stat(about["size"], str(version))

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The content from byte `start` to byte `end`, or to the end of the file, in blocks that are read ahead.

        Ranges that were read before come from the cache, if there is one and the server states the file's version.

        Raises:
            UserError: the file cannot be read, or changed since it was found.
        """
        stop = self.stat.size if end is None else end
        if self.cache is None or not self.stat.version:
            yield from self._fetched(start, stop)
            return
        kept = self.cache / digest([self.url, *self.stat])[:32] / f"{start}-{stop}"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as file:
                for block in self._fetched(start, stop):
                    file.write(block)
                    yield block
            return
        if kept.stat().st_size != stop - start:
            raise UserError(f"{kept}: a damaged copy of {self}; delete it, then run the same command again")
        with kept.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def _fetched(self, start: int, stop: int) -> Iterator[bytes]:
        """The content from byte `start` to byte `stop`, from the server."""
        system, path = _system(self.address)
        # At least two requests, so that each answer is compared with another; some web servers only send whole files.
        whole = not start and self.address.partition("://")[0].lower() in _WEB
        step = BLOCK_BYTES if whole else max(1, min(BLOCK_BYTES, (stop - start + 1) // 2))

        def read(first: int, last: int) -> bytes:
            with system.open(path, "rb", cache_type="none") as file:
                try:
                    content = _content(file, first, last - first)
                except OSError as error:
                    if "flush response stream" not in str(error):  # of Arrow, whose buffer has the size of the range
                        raise
                    content = b""
            if len(content) != last - first:
                self._check_unchanged()
                asked = f"the request for bytes={first}-{last - 1}"
                raise _WrongAnswerError(f"{asked} was answered with another number of bytes")
            return content

        def checked(at: int) -> bytes:
            first, last = max(start, at - _OVERLAP_BYTES), min(at + step, stop)
            content = read(first, last)
            half = len(content) // 2
            if content.endswith(ZEROS[: half + 1]) and content[half:] != read(first + half, last):
                raise _WrongAnswerError(f"the request for bytes={first}-{last - 1} was answered with zeros at its end")
            return content

        self._check_unchanged()
        blocks = range(start, stop, step)
        before = b""
        contents = concurrently(lambda at: attempted(self.url, lambda: checked(at)), blocks, AHEAD)
        for at, block in zip(blocks, contents, strict=True):
            if block[: len(before)] != before:
                self._check_unchanged()
                asked = f"bytes={at - len(before)}-{at + len(block) - len(before) - 1}"
                raise UserError(_wrong_answer(self.url, asked, "bytes that differ from those before them"))
            yield block[len(before) :]
            before = block[-_OVERLAP_BYTES:]

    def _check_unchanged(self) -> None:
        if (now := self.current()) != self.stat:
            raise UserError(changed(self, self.stat, now))


class _WrongAnswerError(OSError):
    """An answer does not have the bytes that were asked for; the next attempt may be right."""


def _content(file: Any, at: int, size: int) -> bytes:
    """The bytes that a server sends of an open file for a range; their number may be wrong."""
    file.seek(at)
    if not hasattr(file, "stream"):
        return bytes(file.read(size))
    # Arrow returns as many bytes as it asked for. The buffer keeps its last byte if fewer came.
    content = bytearray(size)
    for mark in (0xFF, 0xFE):
        content[-1] = mark
        file.seek(at)
        read = file.stream.readinto(content)  # which fsspec has only of late
        if read < size or content[-1] != mark:
            return bytes(content[:read])
    return b""  # the file is longer than what came


File: TypeAlias = "Path | RemoteFile"


def has_magic(url: str) -> bool:
    """Whether a URL is a glob. A question mark starts the query of https:// URLs, so these are never globs."""
    return glob.has_magic(url) and url.partition("://")[0].lower() not in _WEB


def find(url: str, texts: Callable[[list[RemoteFile]], list[RemoteFile]]) -> list[RemoteFile]:
    """The files that a URL names: one file, the matches of a glob, or the texts among the files of a folder.

    Raises:
        UserError: the place cannot be reached, or a package is missing.
    """
    scheme = url.partition("://")[0].lower()
    addresses = [url]
    if scheme not in _WEB:
        system, path = _system(url)  # this thread's, while Ctrl-C need not wait for another
        (entries,) = concurrently(lambda path: attempted(shown(url), lambda: _entries(url, system, path)), [path], 1)
        addresses = [f"{scheme}://{name}" for name, about in entries.items() if about["type"] == "file"]
    files = [RemoteFile(shown(address), Stat(0, ""), address) for address in addresses]
    if len(files) > 1 and not has_magic(url):
        files = texts(files)
    stats = concurrently(RemoteFile.current, files, min(32, len(files)) or 1)
    return sorted(replace(file, stat=stat) for file, stat in zip(files, stats, strict=True))


def _entries(url: str, system: Any, path: str) -> dict[str, Any]:
    """Paths and `info` of one file, of the matches of a glob (possibly none), or of all files in a folder."""
    if url.lower().startswith("hf:"):
        path = _pinned(system, path)
    if has_magic(url):
        return dict(system.glob(path, detail=True))
    about = system.info(path)
    return {path: about} if about["type"] == "file" else system.find(path, detail=True)


def entries(url: str, attempts: int | None = None) -> set[str]:
    """Names of the files and folders in a folder of s3:// or gs://, which need not exist."""
    from pyarrow.fs import FileSelector

    system, path = _system(url)
    folder = FileSelector(path, allow_not_found=True)
    return {entry.base_name for entry in attempted(url, lambda: system.fs.get_file_info(folder), attempts)}


def upload(path: Path, url: str) -> None:
    """Write a local file to s3:// or gs://, as a whole or not at all; an object with this URL is replaced."""
    system, key = _system(url)

    def write() -> None:
        with path.open("rb") as file:
            stream = system.fs.open_output_stream(key, compression=None)
            # Arrow cannot abort an upload: closing the stream, as its destructor does, completes a truncated object. So
            # unless all of the file was written, this reference keeps the stream alive.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
            while block := file.read(BLOCK_BYTES):
                stream.write(block)
            stream.close()
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(stream))

    attempted(url, write, what="written")


def _pinned(system: Any, path: str) -> str:
    """The path of a data set at the commit that its revision has now: `datasets/ORGANISATION/NAME@COMMIT/PATH`."""
    if not path.startswith("datasets/") or path.count("/") < 2:
        raise UserError(f"hf://{path}: data sets are named hf://datasets/ORGANISATION/NAME/PATH")
    where = system.resolve_path(path)
    commit = system._api.dataset_info(where.repo_id, revision=where.revision).sha
    return f"datasets/{where.repo_id}@{commit}/{where.path_in_repo}".rstrip("/")


def changed(file: File, before: Stat, now: Stat) -> str:
    """Error message for a file that changed."""
    return (
        f"{file} changed while it was in use: it had {before.size} bytes and version {before.version or 'unknown'}, "
        f"and has {now.size} bytes and version {now.version or 'unknown'}. The unfinished result is discarded. "
        "Wait until the program that writes the file has finished, then run the same command again"
    )


def concurrently(call: Callable[[_V], _T], values: Iterable[_V], threads: int = 32) -> Iterator[_T]:
    """Results of a call for several values in order, at most `threads` ahead, on threads that nobody waits for."""
    from multiprocessing.pool import AsyncResult, ThreadPool

    pending: deque[AsyncResult[_T]] = deque()
    with ThreadPool(threads) as pool:
        for value in values:
            pending.append(pool.apply_async(call, (value,)))
            if len(pending) > threads:
                yield pending.popleft().get()
        while pending:
            yield pending.popleft().get()


def attempted(url: str, call: Callable[[], _T], attempts: int | None = None, what: str = "read") -> _T:
    """Result of a call, repeated with growing random delays after failures that may be temporary.

    The libraries for gs:// and hf:// repeat requests themselves, for about a minute and half a minute.

    Args:
        url: the start of messages.
        call: makes one attempt.
        attempts: number of attempts, `ATTEMPTS` by default.
        what: what the call does, for messages: the URL "cannot be read".

    Raises:
        UserError: the file does not exist, or the call failed for good.
    """
    attempts = attempts or ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except UserError:
            raise
        except Exception as error:
            failure = error.__cause__ or error if isinstance(error, FileNotFoundError) else error  # of fsspec's client
            status = getattr(failure, "status", None)
            package = type(failure).__module__.partition(".")[0]
            if isinstance(failure, FileNotFoundError) or status == 404:
                raise UserError(f"{url}: no such file") from None
            # All threads share the client of hf://, which closes when one of them cannot connect.
            closed = bool(re.search("Bad file descriptor|client has been closed", str(failure)))
            if not (closed or isinstance(failure, OSError | ValueError) or package in ("aiohttp", "httpx", "httpx2")):
                raise
            lost = package == "aiohttp" and not isinstance(failure, ValueError)  # a malformed URL is a ValueError
            lost = lost or closed or isinstance(failure, _WrongAnswerError)
            temporary = status in _TEMPORARY if status else lost or _AWS_TEMPORARY.search(str(failure))
            if attempt == attempts or not temporary:
                tries = f" after {attempt} attempts" if attempt > 1 else ""
                why = shortened(" ".join(without_credentials(failure).split()))
                raise UserError(f"{url}: cannot be {what}{tries}: {why}; {_REMEDY}") from None
            time.sleep(min(FIRST_DELAY * 2 ** (attempt - 1), LONGEST_DELAY) * random.uniform(0.5, 1.0))
    raise AssertionError


async def _check_range(_session: Any, _context: Any, request: Any) -> None:
    """Check that a web server answers for the range that was asked for."""
    asked, sent = request.headers.get("Range"), request.response.headers.get("Content-Range")
    if asked and sent and sent.partition("/")[0].replace(" ", "=") != asked:
        raise UserError(_wrong_answer(shown(str(request.url)), asked, sent))


def _wrong_answer(url: str, asked: str, sent: str) -> str:
    """Error message for an answer that is not what was asked for."""
    return f"{url}: the request for {asked} was answered with {sent}: a server or a proxy is faulty; {_REMEDY}"


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the file's path in it."""
    scheme, _, path = url.partition("://")
    scheme, (place, slash, key) = scheme.lower(), path.partition("/")
    path = f"{place.rpartition('@')[2]}{slash}{key}".rstrip("/")
    with needs_extra(f"{shown(url)}: "):
        if scheme == "hf":
            from huggingface_hub import HfFileSystem

            return HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT") or None), path
        web = scheme in _WEB
        return _connected(scheme, "" if web else path.partition("/")[0], os.getpid()), url if web else path


@cache
def _connected(scheme: str, bucket: str, _process: int) -> Any:
    """A file system of this process: a forked one must not use connections and locks of its parent."""
    if scheme in _WEB:
        from aiohttp import ClientTimeout, TraceConfig
        from fsspec.implementations.http import HTTPFileSystem

        timeout = ClientTimeout(total=None, sock_connect=10, sock_read=60)
        checks = TraceConfig()
        checks.on_request_end.append(_check_range)
        client = {"timeout": timeout, "trust_env": True, "trace_configs": [checks]}
        return HTTPFileSystem(client_kwargs=client, skip_instance_cache=True)
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow import fs

    class Bucket(ArrowFSWrapper):  # type: ignore[misc]
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            # fsspec leaves out folders whose listing fails with an OSError.
            return attempted(f"{scheme}://{path}", lambda: super(Bucket, self).ls(path, detail, **options))

    if scheme == "gs":
        return Bucket(fs.GcsFileSystem(retry_time_limit=timedelta(seconds=60)))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    region = None
    if not (endpoint or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        with suppress(OSError):  # reading the bucket reports the reason
            region = fs.resolve_s3_region(bucket)
    # The process ends only after these attempts, but does not wait for those of `attempted`.
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=3)
    options = {"endpoint_override": endpoint, "region": region, "retry_strategy": retries, "background_writes": False}
    return Bucket(fs.S3FileSystem(**options))
