"""What every kind of remote storage provides."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT = 60.0
"""Seconds without data after which a request over https:// is repeated."""
Read: TypeAlias = "Callable[[int, int], bytes]"
"""Function of (start, length) that returns the bytes from `start` on, possibly fewer than `length`."""


class Stat(NamedTuple):
    """Size of a file in bytes, and what changes with its content: ETag, version or hash ("" if the server has none)."""

    size: int
    version: str


class Temporary(OSError):
    """A failure that another attempt may not have, such as an overloaded server."""

    def __init__(self, message: str, delay: float = 0.0) -> None:
        super().__init__(message)
        self.delay = delay


class Store(Protocol):
    """A kind of remote storage. Methods make one attempt; keys are the store's own names of files."""

    def find(self, url: str) -> Iterator[str]:
        """Keys of the file, of the files that match a glob, or of all files in a folder."""

    def open(self, key: str) -> tuple[Stat, Read]:
        """Size and version of a file, and a thread-safe function that reads it."""

    def url(self, key: str) -> str:
        """URL of a file."""


def has_magic(url: str) -> bool:
    """Whether a URL is a glob. A question mark starts the query of https:// URLs, so these are never globs."""
    return glob.has_magic(url) and urlsplit(url).scheme.lower() not in ("https", "http")
