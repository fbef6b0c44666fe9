"""Artifacts in a bucket of object storage: s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.

`NAME/manifest.json` is written last: an artifact without one is unfinished, and the next upload completes it. Other
objects are named by their content, `NAME/CHECKSUM`, so machines that upload an artifact together cannot disagree.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.store.manifest import MANIFEST, Manifest, remedied
from tokenizer.corpus import remote
from tokenizer.errors import UserError
from tokenizer.files import check_files, checksum, confined, shown, temporary_folder

if TYPE_CHECKING:
    from tokenizer.progress import Progress

CACHE = "SUPERBPE_CACHE"  # environment variable: the folder of local copies, by default ~/.cache/superbpe


def copies(url: str) -> Path:
    """Return the local folder of the artifacts in a bucket that this machine made or read.

    Raises:
        UserError: If the URL is not a bucket's, or the bucket cannot be reached.
    """
    scheme, _, place = url.partition("://")
    if scheme not in ("s3", "gs") or not place or shown(url) != url or remote.has_magic(url):
        raise UserError(f"artifacts={shown(url)}: write a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    remote.entries(url, attempts=2)
    return confined(Path(os.environ.get(CACHE) or Path.home() / ".cache/superbpe").absolute(), f"{scheme}/{place}")


def read_manifest(url: str) -> Manifest | None:
    """Read the manifest of an artifact; None if it is not in the bucket, or unfinished."""
    if MANIFEST not in remote.entries(url):
        return None
    with temporary_folder(None) as folder, remedied(url):
        _download(f"{url}/{MANIFEST}", folder / MANIFEST)
        return Manifest.read(folder)


def download(url: str, manifest: Manifest, folder: Path, progress: Progress) -> None:
    """Write the files of an artifact into a local folder, except for those that are there, and check them."""
    folder.mkdir(parents=True, exist_ok=True)

    def fetch(name: str) -> None:
        path = confined(folder, name)
        content = manifest.files[name]["xxh3_128"]
        if not path.exists() or checksum(path) != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            _download(f"{url}/{content}", path)

    with remedied(url):
        for done, _ in enumerate(remote.concurrently(fetch, list(manifest.files), 4), 1):
            progress("files downloaded", done, len(manifest.files))
        check_files(folder, manifest.files)


def _download(url: str, path: Path) -> None:
    (source,) = remote.find(url, list)
    with path.open("wb") as file:
        file.writelines(source.blocks())


def upload(folder: Path, manifest: Manifest, url: str, progress: Progress) -> None:
    """Write a local artifact to the bucket, except for what is there."""
    if MANIFEST in (present := remote.entries(url)):
        return
    names = {entry["xxh3_128"]: name for name, entry in manifest.files.items()}
    missing = sorted(names.keys() - present)
    sent = remote.concurrently(lambda content: remote.upload(folder / names[content], f"{url}/{content}"), missing, 4)
    for done, _ in enumerate(sent, 1):
        progress("files uploaded", done, len(missing))
    remote.upload(folder / MANIFEST, f"{url}/{MANIFEST}")
