"""URLs of text, and texts that contain them, without credentials."""

from __future__ import annotations

import re

SCHEMES = ("s3", "gs", "hf", "https", "http")
"""Schemes of the URLs that can be read, see `tokenizer.corpus.remote`."""
_URL = re.compile(rf"\b(?:{'|'.join(SCHEMES)})://(?:[^\s/@]*@)?[^\s,'\"\]]+")


def is_remote(path: str) -> bool:
    """Whether a path is a URL of a supported scheme.

    >>> is_remote("s3://bucket/a.jsonl"), is_remote("data/a.jsonl")
    (True, False)
    """
    scheme, found, _ = path.partition("://")
    return bool(found) and scheme.lower() in SCHEMES


def shown(path: str) -> str:
    """A path as it may be stored and printed: URLs without user name, password and query.

    >>> shown("https://me:secret@host/a.jsonl?X-Amz-Signature=abc"), shown("data/*.jsonl")
    ('https://host/a.jsonl', 'data/*.jsonl')
    """
    if not is_remote(path):
        return path
    scheme, _, rest = path.partition("://")
    if scheme.lower() in ("s3", "gs", "hf"):  # their names may contain any character
        place, slash, key = rest.partition("/")
        return f"{scheme}://{place.rpartition('@')[2]}{slash}{key}"
    host, slash, rest = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{rest}"


def without_credentials(message: object) -> str:
    """A text without what its URLs may contain of credentials."""
    return _URL.sub(lambda found: shown(found[0]), str(message))
