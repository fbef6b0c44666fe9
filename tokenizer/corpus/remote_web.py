"""Files over https://, and those of the Hugging Face Hub, which come over https:// as well."""

from __future__ import annotations

import base64
import http.client
import os
import re
import urllib.error
import urllib.request
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from tokenizer.corpus import remote_store
from tokenizer.corpus.remote_store import Stat, Temporary, has_magic
from tokenizer.errors import UserError, shortened
from tokenizer.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenizer.corpus.remote_store import Read

_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


class WebStore:
    """Files of servers that support range requests. Keys are the URLs as the user wrote them."""

    def find(self, url: str) -> Iterator[str]:
        """See `Store.find`."""
        yield url

    def open(self, key: str) -> tuple[Stat, Read]:
        """See `Store.open`."""
        return open_url(key, {})

    def url(self, key: str) -> str:
        """See `Store.url`."""
        return shown(key)


class HubStore:
    """Data sets of the Hugging Face Hub, at the commit that their revision has now.

    Keys are `datasets/ORGANISATION/NAME@COMMIT/PATH`.
    """

    @cached_property
    def _system(self) -> Any:
        from huggingface_hub import HfFileSystem

        return HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT"))

    def find(self, url: str) -> Iterator[str]:
        """See `Store.find`."""
        path = url.partition("://")[2].rstrip("/")
        if not path.startswith("datasets/") or path.count("/") < 2:
            raise UserError("data sets are named hf://datasets/ORGANISATION/NAME/PATH")
        with _hub_errors():
            where = self._system.resolve_path(path)
            about = self._system._api.dataset_info(where.repo_id, revision=where.revision)
            path = f"datasets/{where.repo_id}@{about.sha}/{where.path_in_repo}".rstrip("/")
            if has_magic(url):
                yield from self._system.glob(path)
            elif self._system.info(path)["type"] == "file":
                yield path
            else:
                yield from self._system.find(path)

    def open(self, key: str) -> tuple[Stat, Read]:
        """See `Store.open`."""
        from huggingface_hub.utils import build_hf_headers

        with _hub_errors():
            about = self._system.info(key)
            version = (about.get("lfs") or {}).get("sha256") or about["blob_id"]
            url, headers = self._system.url(key), build_hf_headers()
        size = about["size"]
        return Stat(size, version), lambda start, length: _get(url, headers, start, length)[0]

    def url(self, key: str) -> str:
        """See `Store.url`."""
        return f"hf://{key}"


@contextmanager
def _hub_errors() -> Iterator[None]:
    """Turn errors of `huggingface_hub` into those that `remote` knows."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        why = f"HTTP status {status}: {shortened(error)}; run `hf auth login` if it is private"
        raise (Temporary if status in _TEMPORARY else OSError)(why) from None
    except errors.HTTPError as error:  # of httpx: no answer
        raise Temporary(f"the hub cannot be reached: {shortened(error)}") from None


def open_url(url: str, headers: Mapping[str, str]) -> tuple[Stat, Read]:
    """Size, version and reader of a URL."""
    url, headers = _authorized(url, headers)
    _, stat = _get(url, headers, 0, 1)

    def read(start: int, length: int) -> bytes:
        content, now = _get(url, headers, start, length)
        if now != stat:
            raise UserError(
                f"it changed while it was read, from {stat.size} bytes and version {stat.version or 'unknown'} to "
                f"{now.size} bytes and version {now.version or 'unknown'}; run the same command again"
            )
        return content

    return stat, read


def _authorized(url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The URL without user name and password, which become a header."""
    parts = urlsplit(url)
    user, found, host = parts.netloc.rpartition("@")
    if not found:
        return url, headers
    basic = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {**headers, "Authorization": f"Basic {basic}"}


def _get(url: str, headers: Mapping[str, str], start: int, length: int) -> tuple[bytes, Stat]:
    """At most `length` bytes from `start` on, fewer if the connection is cut; size and version of the file."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-{start + length - 1}"})  # noqa: S310
    for name, value in headers.items():
        request.add_unredirected_header(name, value)  # redirects may lead to another host
    try:
        with urllib.request.urlopen(request, timeout=remote_store.TIMEOUT) as response:  # noqa: S310
            size = _RANGE.match(response.headers.get("Content-Range") or "")
            if response.status != 206 or size is None:
                if response.headers.get("Content-Length") == "0":
                    return b"", _stat(0, response.headers)
                raise UserError("the server does not support range requests; download the file and read it from disk")
            if int(size[1] or 0) != start:
                raise Temporary(f"the server sent another range than byte {start} and those after it")
            stat = _stat(int(size[2]), response.headers)
            try:
                return response.read(length), stat
            except http.client.IncompleteRead as error:
                return error.partial, stat
    except urllib.error.HTTPError as error:
        with error:
            size = _RANGE.match(error.headers.get("Content-Range") or "")
            if error.code == 416 and size is not None:  # the file is empty, or became shorter
                return b"", _stat(int(size[2]), error.headers)
            if error.code == 404:
                raise FileNotFoundError(url) from None
            delay = error.headers.get("Retry-After") or ""
            if error.code in _TEMPORARY:
                raise Temporary(f"HTTP status {error.code}", float(delay) if delay.isdigit() else 0.0) from None
            raise OSError(f"HTTP status {error.code} {error.reason}") from None
    except http.client.InvalidURL:  # its message contains the query
        raise UserError("the URL is malformed; percent-encode spaces and special characters") from None
    except http.client.HTTPException as error:
        raise Temporary(f"the server's answer is damaged: {error!r}") from None


def _stat(size: int, headers: Any) -> Stat:
    return Stat(size, headers.get("ETag") or headers.get("Last-Modified") or "")
