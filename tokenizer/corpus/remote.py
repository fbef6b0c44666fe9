"""Files on object storage, the hub and the web, read in concurrent ranges.

`pyarrow.fs` reads s3:// and gs://, `huggingface_hub` finds hf:// files, whose bytes come over https://, as those of any
other URL. Credentials come from where these libraries look for them. URLs are stored and shown without user names,
passwords and queries, which may contain credentials.
"""

from __future__ import annotations

import io
import os
import random
import re
import threading
import warnings
import weakref
from collections import deque
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from tokenizer import _native
from tokenizer.corpus.remote_store import Read, Stat, Store, Temporary, has_magic
from tokenizer.errors import UserError, shortened
from tokenizer.urls import shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from tokenizer.corpus.remote_arrow import ArrowStore

BLOCK_BYTES = 1 << 23
"""Bytes per request."""
AHEAD = 4
"""Requests in flight per file."""
FILES_AHEAD = 4
"""Minimum number of files that are read at the same time, ahead of the consumer."""
ATTEMPTS = 8
"""Consecutive attempts without progress after which a read fails."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before the second attempt, which double with every further one, and their maximum."""
_SILENT_DELAY = 2.0
"""Seconds; the first longer delay is announced."""


_T = TypeVar("_T")
_V = TypeVar("_V")


class Stop(threading.Event):
    """Ends requests and the pauses between attempts. It is also set when the interpreter shuts down."""

    def __init__(self) -> None:
        super().__init__()
        _at_exit(os.getpid()).add(self)

    def close(self) -> None:
        """Set it."""
        self.set()


@cache
def _at_exit(process: int) -> weakref.WeakSet[Any]:
    """What to close when the interpreter of this process shuts down; a forked process has none of the threads."""
    found: weakref.WeakSet[Any] = weakref.WeakSet()

    def close() -> None:
        for each in list(found) if os.getpid() == process else []:
            each.close()

    import concurrent.futures.thread  # registered first, its hook runs last; it waits for the threads  # noqa: F401

    # Hooks of `atexit` run after the threads of executors have been joined, which would wait for all further attempts.
    with suppress(RuntimeError):  # the interpreter is shutting down already
        threading._register_atexit(close)  # type: ignore[attr-defined]
    return found


@dataclass(frozen=True)
class RemoteFile:
    """A file that is not on this machine. The attributes that `Path` has as well mean the same.

    Attributes:
        url: URL without credentials.
        stat: size and version when it was found.
    """

    url: str
    stat: Stat
    key: str = field(repr=False)
    store: Store = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.url

    def __lt__(self, other: RemoteFile) -> bool:
        return str(self) < str(other)

    @cached_property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(urlsplit(self.url.replace("#", "%23").replace("?", "%3f")).path)

    @property
    def name(self) -> str:
        """Name without the folder."""
        return self._path.name

    @property
    def suffix(self) -> str:
        """Extension of the name."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """Extensions of the name."""
        return self._path.suffixes

    def resolve(self) -> RemoteFile:
        """Return the file itself."""
        return self

    def current(self, stop: Stop | None = None) -> Stat:
        """Size and version now.

        Args:
            stop: ends all attempts once it is set.

        Raises:
            UserError: the file cannot be reached.
        """
        stat, _ = attempted(self.url, lambda: self.store.open(self.key), stop)
        return stat

    def blocks(self, pool: Executor, stop: Stop, start: int = 0, end: int | None = None) -> Generator[bytes]:
        """The content in order, in blocks that are read ahead on the threads of `pool`.

        Args:
            pool: reads blocks.
            stop: ends all attempts once it is set.
            start: first byte.
            end: end of the last byte; None for the end of the file.

        Raises:
            UserError: the file cannot be read, or changed since it was found.
        """
        end = self.stat.size if end is None else end
        if start >= end:
            return
        read = self._reader(stop)
        pending: deque[Future[bytes]] = deque()
        for at in range(start, end, BLOCK_BYTES):
            if len(pending) == AHEAD:
                yield pending.popleft().result()
            pending.append(pool.submit(self._block, read, at, min(BLOCK_BYTES, end - at), stop))
        while pending:
            yield pending.popleft().result()

    def open(self, stop: Stop) -> io.RawIOBase:
        """Open the file for random access. Long reads use concurrent requests.

        Args:
            stop: ends all attempts once it is set.
        """
        return _RandomAccess(self, stop)

    def _reader(self, stop: Stop) -> Read:
        now, read = attempted(self.url, lambda: self.store.open(self.key), stop)
        if now != self.stat:
            raise UserError(changed(self, now))
        return read

    def _block(self, read: Read, start: int, length: int, stop: Stop) -> bytes:
        """Read a range. After a failure, reading resumes at the first byte that is missing."""
        parts: list[bytes] = []
        end = start + length
        while start < end:
            at = start

            def attempt(at: int = at) -> bytes:
                if part := read(at, end - at):
                    return part
                raise Temporary(f"the data ended at byte {at} of {self.stat.size}")

            parts.append(attempted(self.url, attempt, stop))
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


File: TypeAlias = "Path | RemoteFile"


def find(url: str, keep: Callable[[RemoteFile], bool]) -> list[RemoteFile]:
    """The files that a URL names: one file, the matches of a glob, or the files in a folder.

    Args:
        url: what the user wrote.
        keep: selects the files of a folder.

    Raises:
        UserError: the place cannot be reached, or a package is missing.
    """
    name = shown(url)
    store = _store(urlsplit(url).scheme.lower())
    keys = attempted(name, lambda: list(store.find(url)))
    found = [RemoteFile(store.url(key), Stat(0, ""), key, store) for key in keys]
    if len(found) > 1 and not has_magic(url):
        found = list(filter(keep, found))
    return sorted(replace(file, stat=stat) for file, stat in zip(found, current(found), strict=True))


class Missing(UserError):
    """No file has this URL."""


def at(url: str, stop: Stop | None = None) -> RemoteFile:
    """The file with this URL.

    Args:
        url: its name, which is not a glob.
        stop: ends all attempts once it is set.

    Raises:
        Missing: there is none.
        UserError: it cannot be reached.
    """
    store = _store(urlsplit(url).scheme.lower())
    file = RemoteFile(shown(url), Stat(0, ""), shown(url).partition("://")[2], store)
    return replace(file, stat=file.current(stop))


def names(url: str) -> list[str]:
    """The URLs of the files that a glob matches, of any kind; empty if there is none."""
    store = _store(urlsplit(url).scheme.lower())
    return sorted(map(store.url, attempted(shown(url), lambda: list(store.find(url)))))


def upload(path: Path, url: str, stop: Stop | None = None) -> None:
    """Write a local file to object storage; what is there under this URL is replaced.

    Args:
        path: the file.
        url: s3:// or gs:// URL.
        stop: ends the upload once it is set.

    Raises:
        UserError: it cannot be written.
    """
    stop = stop or Stop()
    attempted(url, lambda: _arrow(url).write(url.partition("://")[2], path, stop), stop, what="written")


def delete(url: str) -> None:
    """Delete an object, or all objects in a folder, if there are any."""
    attempted(url, lambda: _arrow(url).delete(url.partition("://")[2]), what="deleted")


def current(files: Sequence[RemoteFile]) -> list[Stat]:
    """Size and version of several files now."""
    return concurrently(RemoteFile.current, files)


def changed(file: RemoteFile, now: Stat) -> str:
    """Error message for a file that changed."""
    before = file.stat
    return (
        f"{file} changed while it was in use: it had {before.size} bytes and version {before.version or 'unknown'}, "
        f"and has {now.size} bytes and version {now.version or 'unknown'}. The unfinished result is discarded. "
        "Wait until the program that writes the file has finished, then run the same command again"
    )


class Fed(Protocol):
    """A file or a part of one whose bytes are read in Python."""

    def blocks(self, pool: Executor, stop: Stop) -> Generator[bytes]:
        """See `RemoteFile.blocks`."""


@contextmanager
def feeding(files: Sequence[Path | Fed], readers: int) -> Iterator[list[_native.Feed | None]]:
    """Feeds of all `files` but local ones, filled in their order by background threads; None for local files.

    Memory is at most `BLOCK_BYTES` times `AHEAD + 1` per file that is being read.

    Args:
        files: files in the order in which they are read.
        readers: number of files that the consumer reads at the same time.
    """
    feeds = [None if isinstance(file, Path) else _native.Feed() for file in files]
    if not any(feeds):
        yield feeds
        return
    remote = [(file, feed) for file, feed in zip(files, feeds, strict=True) if not isinstance(file, Path) and feed]
    # Files are fed in order, so the files that the consumer reads have a thread if there is one for each reader.
    with closing(_Pumps(remote, max(FILES_AHEAD, readers + 1))):
        yield feeds


class _Pumps:
    """Threads that fill feeds."""

    def __init__(self, files: list[tuple[Fed, _native.Feed]], threads: int) -> None:
        self._left, self._feeds, self._stop = deque(files), [feed for _, feed in files], Stop()
        from concurrent.futures import ThreadPoolExecutor

        threads = min(threads, len(files))
        self._pool = ThreadPoolExecutor(threads * AHEAD, "remote-block")
        _at_exit(os.getpid()).add(self)
        for _ in range(threads):
            threading.Thread(target=self._run, name="remote-file").start()

    def _run(self) -> None:
        while True:
            try:
                file, feed = self._left.popleft()
            except IndexError:
                return
            try:
                with closing(file.blocks(self._pool, self._stop)) as blocks:
                    if all(map(feed.put, blocks)):
                        feed.end()
            except BaseException as error:  # reported where the file is read
                feed.end(without_credentials(error).removeprefix(f"{file}: "))

    def close(self) -> None:
        """End the threads."""
        self._left.clear()
        self._stop.set()
        for feed in self._feeds:
            feed.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class _RandomAccess(io.RawIOBase):
    """A remote file as a Python file."""

    def __init__(self, file: RemoteFile, stop: Stop) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._file, self._at, self._stop = file, 0, stop
        self._read = file._reader(self._stop)
        self._pool = ThreadPoolExecutor(AHEAD, "remote-block")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.stat.size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._file.stat.size - self._at)
        size = left if size < 0 else min(size, left)
        starts = range(self._at, self._at + size, BLOCK_BYTES)
        lengths = [min(BLOCK_BYTES, self._at + size - start) for start in starts]
        self._at += size
        blocks = map(self._block, starts, lengths) if len(starts) < 2 else self._pool.map(self._block, starts, lengths)
        return b"".join(blocks)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _block(self, start: int, length: int) -> bytes:
        return self._file._block(self._read, start, length, self._stop)

    def close(self) -> None:
        if not self.closed:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()


def concurrently(call: Callable[[_V, Stop], _T], values: Sequence[_V], threads: int = 32) -> list[_T]:
    """Results of a call for several values, on threads. If one fails, or on Ctrl-C, the others stop.

    Args:
        call: gets a value, and what ends its attempts.
        values: the values.
        threads: calls at the same time.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed  # loads logging, a tenth of the time to import all

    if len(values) < 2:
        return [call(value, Stop()) for value in values]
    with ThreadPoolExecutor(min(threads, len(values)), "remote") as pool, closing(Stop()) as stop:
        calls = [pool.submit(call, value, stop) for value in values]
        for each in as_completed(calls):
            each.result()
        return [each.result() for each in calls]


def attempted(name: str, call: Callable[[], _T], stop: Stop | None = None, *, what: str = "read") -> _T:
    """Result of a call, repeated with growing random delays after failures that may be temporary.

    Args:
        name: URL, the start of messages.
        call: makes one attempt.
        stop: ends all attempts once it is set.
        what: what the call does, for messages: the URL "cannot be read".

    Raises:
        UserError: the call failed for good.
    """
    stop, warned = stop or Stop(), False
    for attempt in range(ATTEMPTS):
        try:
            if not stop.is_set():
                return call()
            break
        except FileNotFoundError:
            raise Missing(f"{name}: no such file") from None
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        except OSError as error:
            if attempt == ATTEMPTS - 1 or not _is_temporary(error, name):
                tries = f" after {attempt + 1} attempts" if attempt else ""
                why = shortened(without_credentials(error))
                raise UserError(f"{name}: cannot be {what}{tries}: {why}; {_REMEDY}") from None
            delay = min(FIRST_DELAY * 2**attempt, LONGEST_DELAY) * random.uniform(0.5, 1.0)
            delay = max(delay, min(getattr(error, "delay", 0.0), LONGEST_DELAY))
            if delay > _SILENT_DELAY and not warned:
                warned = True
                why = shortened(without_credentials(error))
                left = f"attempts {attempt + 2} to {ATTEMPTS} follow"
                warnings.warn(f"{name}: cannot be {what} yet: {why}; {left}", stacklevel=2)
            stop.wait(delay)
    raise UserError(f"{name}: cannot be {what}: it was stopped")


_REMEDY = "check the URL, the network and the credentials, then run the same command again"
_FINAL = re.compile(
    "ACCESS_DENIED|NO_SUCH|NOT_FOUND|INVALID_ACCESS_KEY|INVALID_BUCKET|SIGNATURE_DOES_NOT_MATCH|EXPIRED|PERMANENT|"
    "HTTP status 40[0134]|Permission|credentials|UNAUTHENTICATED|PERMISSION_DENIED|INVALID_ARGUMENT",
    re.IGNORECASE,
)


def _is_temporary(error: OSError, name: str) -> bool:
    """Whether another attempt may succeed. Arrow reports the reason only in the message, which contains the name."""
    if isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError):
        return False
    place, _, key = name.partition("://")[2].partition("/")
    return isinstance(error, Temporary) or not _FINAL.search(str(error).replace(key, "").replace(place, ""))


def _arrow(url: str) -> ArrowStore:
    from tokenizer.corpus.remote_arrow import ArrowStore

    return ArrowStore(urlsplit(url).scheme.lower())


@cache
def _store(scheme: str) -> Store:
    if scheme in ("s3", "gs"):
        return _arrow(f"{scheme}://")
    from tokenizer.corpus.remote_web import HubStore, WebStore

    return HubStore() if scheme == "hf" else WebStore()
