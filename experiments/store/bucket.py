"""Artifacts on object storage.

`PREFIX/NAME/manifest.json` is written last: an artifact without one is unfinished, and the next attempt overwrites it.
The other files are in `PREFIX/NAME/<12 hex>/`, after the hash of the manifest. So two machines that upload the same
artifact at the same time, with contents that differ in times or in the last bits, do not mix their files.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import xxhash

from experiments.store.manifest import MANIFEST, Manifest
from tokenizer.corpus import remote
from tokenizer.durable import replacing, write_whole
from tokenizer.errors import UserError
from tokenizer.files import confined, n_bytes_of, remember_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_FILES = 4
"""Files that are transferred at the same time."""


class Bucket:
    """A folder of artifacts on object storage.

    Args:
        url: Its URL, without credentials.
        manifests: Local folder for manifests.
        progress: Called during transfers, as in `tokenizer.files.check_files`.
    """

    def __init__(self, url: str, manifests: Path, progress: Callable[[str, int, int | None], None] | None) -> None:
        self.url, self._manifests, self._progress = url, manifests, progress
        self._complete: set[str] = set()
        self._read: set[str] = set()

    def names(self) -> list[str]:
        """Return the names of the artifacts."""
        folders = [confined(self._manifests, name).name for name in remote.subfolders(self.url) if name[0] != "."]
        present = remote.concurrently(self.has, folders)
        return [name for name, complete in zip(folders, present, strict=True) if complete]

    def manifest(self, name: str) -> Path | None:
        """Return a local folder with the manifest of an artifact; None if there is no such artifact.

        Manifests that this process has seen are not read again.
        """
        folder = self._manifests / name
        if name not in self._read:
            try:
                _download(f"{self.url}/{name}/{MANIFEST}", folder / MANIFEST)
            except remote.Missing:
                return None
            self._read.add(name)
            self._complete.add(name)
        return folder

    def fetch_manifests(self, names: Sequence[str]) -> None:
        """Read several manifests, which `manifest` then returns without a request."""
        list(remote.concurrently(self.manifest, names))

    def has(self, name: str) -> bool:
        """Return whether the artifact is complete."""
        if name not in self._complete:
            try:
                remote.at(f"{self.url}/{name}/{MANIFEST}")
            except remote.Missing:
                return False
            self._complete.add(name)
        return True

    def download(self, name: str, folder: Path) -> None:
        """Write an artifact into a folder. Files that are in the folder already are kept, the manifest is written last.

        Raises:
            UserError: If a file cannot be read or is damaged.
        """
        about = self.manifest(name)
        if about is None:
            raise UserError(
                f"{self.url}/{name} was deleted while it was in use; run the same command again to rebuild it"
            )
        for unfinished in folder.rglob(".*.partial"):  # files that a killed process was writing
            unfinished.unlink()
        files: dict[str, Any] = Manifest.read(about).files
        source = self._folder(name, about)

        def fetch(name: str) -> None:
            path = confined(folder, name)
            if not path.exists():  # otherwise it is of an earlier attempt
                _download(f"{source}/{name}", path, files[name])

        self._transfer("bytes downloaded", fetch, files)
        write_whole(folder / MANIFEST, (about / MANIFEST).read_bytes())

    def upload(self, folder: Path) -> None:
        """Write a complete artifact to the bucket, the manifest last.

        Raises:
            UserError: If a file cannot be written.
        """
        name, files = folder.name, Manifest.read(folder).files
        target = self._folder(name, folder)
        try:
            self._transfer("bytes uploaded", lambda name: remote.upload(folder / name, f"{target}/{name}"), files)
            remote.upload(folder / MANIFEST, f"{self.url}/{name}/{MANIFEST}")
        except UserError as error:
            raise UserError(f"{error}; it resumes with the upload, because {folder} is complete") from None
        self._complete.add(name)

    def remove(self, name: str) -> None:
        """Delete an artifact, its manifest first."""
        self._complete.discard(name)
        self._read.discard(name)
        remote.delete(f"{self.url}/{name}/{MANIFEST}")
        remote.delete(f"{self.url}/{name}")

    def _folder(self, name: str, about: Path) -> str:
        return f"{self.url}/{name}/{hashlib.sha256((about / MANIFEST).read_bytes()).hexdigest()[:12]}"

    def _transfer(self, what: str, call: Callable[[str], None], files: Mapping[str, Any]) -> None:
        """Call a function for every file, several at a time, and report the bytes of those that are done."""
        done = 0
        for name, _ in zip(files, remote.concurrently(call, list(files), _FILES), strict=True):
            done += n_bytes_of({name: files[name]})
            if self._progress is not None:
                self._progress(what, done, n_bytes_of(files))


def _download(url: str, path: Path, entry: Any = None) -> None:
    """Write an object to disk as a whole, if it is as its entry in a manifest says."""
    file, digest = remote.at(url), xxhash.xxh3_128()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as target:
        for block in file.blocks():
            target.write(block)
            digest.update(block)
        found = {"bytes": file.stat.size, "xxh3_128": digest.hexdigest()}
        if entry not in (None, found, found["bytes"]):
            raise UserError(
                f"{file} is damaged: it has {found['bytes']} bytes and checksum {found['xxh3_128']}, not "
                f"{entry}; delete its artifact in the bucket and run the same command again to rebuild it"
            )
        remember_checksum(target, digest.hexdigest())
