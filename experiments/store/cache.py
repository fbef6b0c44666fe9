"""The local folder for artifacts on object storage."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from tokenizer.durable import write_json
from tokenizer.errors import UserError
from tokenizer.files import read_json, shown, without_credentials

_MARK = ".bucket.json"
FOLDER = "SUPERBPE_CACHE"
"""Environment variable with the folder of all caches, instead of `superbpe` in the user's cache folder."""


def cache_of(url: str, folder: str | None = None) -> Path:
    """Return the local folder for the artifacts at a URL, made if it does not exist.

    Args:
        url: Folder on object storage.
        folder: The local folder; None for one in the user's cache folder.

    Raises:
        UserError: If the URL cannot be used, or the folder belongs to another URL.
    """
    name = shown(url).rstrip("/")
    scheme, _, place = name.partition("://")
    if without_credentials(url) != url or scheme not in ("s3", "gs") or not place or re.search(r"[*?\[]", place):
        raise UserError(f"artifacts={name}: write a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "superbpe"
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[-60:].strip("-")
    default = Path(os.environ.get(FOLDER) or usual) / f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    path = default if folder is None else Path(folder)
    belongs = bucket_of(path)
    if belongs is None and path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise UserError(f"artifacts_cache={path} contains other files; name a new folder")
    if belongs not in (None, name):
        raise UserError(f"artifacts_cache={path} is the cache of {belongs}; name another folder")
    if belongs is None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_json(path / _MARK, {"url": name})
        except OSError as error:
            raise UserError(
                f"cannot write to the cache {path} ({error.strerror}); set artifacts_cache=FOLDER"
            ) from None
    return path


def bucket_of(folder: Path) -> str | None:
    """Return the URL whose artifacts a folder holds; None if it is not a cache."""
    path = folder / _MARK
    return str(read_json(path)["url"]) if path.exists() else None
