"""Artifacts on object storage.

`PREFIX/NAME/manifest.json` is written last: an artifact without one is unfinished, and the next attempt overwrites it.
The other files are in `PREFIX/NAME/<12 hex>/`, after the hash of the manifest. So two machines that upload the same
artifact at the same time, with contents that differ in times or in the last bits, do not mix their files.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

from experiments.store.manifest import MANIFEST, Manifest
from lm.data.shard_files import HashedFile
from tokenizer import storage
from tokenizer.corpus import remote
from tokenizer.durable import replacing_path, write_whole
from tokenizer.errors import UserError
from tokenizer.files import n_bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokenizer.corpus.remote import Stop

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
        self.url = url
        self._manifests = manifests
        self._progress = progress
        self._complete: set[str] = set()
        self._read: set[str] = set()

    def names(self) -> list[str]:
        """Return the names of the artifacts."""
        return [self._name(url) for url in remote.names(f"{self.url}/*/{MANIFEST}")]

    def _name(self, url: str) -> str:
        return url.removeprefix(f"{self.url}/").partition("/")[0]

    def manifest(self, name: str) -> Path | None:
        """Return a local folder with the manifest of an artifact; None if there is no such artifact.

        Manifests that this process has seen are not read again.
        """
        folder = self._manifests / name
        if name not in self._read:
            try:
                file = remote.at(f"{self.url}/{name}/{MANIFEST}")
            except remote.Missing:
                return None
            storage.disk.make_folder(folder)
            _download(file, folder / MANIFEST, lambda _: None, remote.Stop())
            self._read.add(name)
            self._complete.add(name)
        return folder

    def fetch_manifests(self, names: Sequence[str]) -> None:
        """Read several manifests, which `manifest` then returns without a request."""
        remote.concurrently(lambda name, _: self.manifest(name), names)

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
            storage.disk.remove(unfinished)
        files: dict[str, Any] = Manifest.read(about).files
        source = self._folder(name, about)
        advance = self._advancing("bytes downloaded", n_bytes_of(files))

        def fetch(name: str, stop: Stop) -> None:
            entry, path = files[name], folder / name
            if path.exists():  # of an earlier attempt
                advance(n_bytes_of({name: entry}))
                return
            storage.disk.make_folder(path.parent)
            _download(remote.at(f"{source}/{name}", stop), path, advance, stop, entry)

        remote.concurrently(fetch, list(files), _FILES)
        write_whole(folder / MANIFEST, storage.disk.read(about / MANIFEST))

    def upload(self, folder: Path) -> None:
        """Write a complete artifact to the bucket, the manifest last.

        Raises:
            UserError: If a file cannot be written.
        """
        name, files = folder.name, Manifest.read(folder).files
        target = self._folder(name, folder)
        advance = self._advancing("bytes uploaded", n_bytes_of(files))

        def send(name: str, stop: Stop) -> None:
            remote.upload(folder / name, f"{target}/{name}", stop)
            advance(n_bytes_of({name: files[name]}))

        try:
            remote.concurrently(send, list(files), _FILES)
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

    def _advancing(self, what: str, total: int) -> Callable[[int], None]:
        """Return a function that adds to the progress, on any thread."""
        lock, done = threading.Lock(), 0

        def advance(n_bytes: int) -> None:
            nonlocal done
            with lock:
                done += n_bytes
                if self._progress is not None:
                    self._progress(what, done, total)

        return advance


def _download(
    file: remote.RemoteFile, path: Path, advance: Callable[[int], None], stop: Stop, entry: Any = None
) -> None:
    """Write a remote file to disk, and compare it with its entry in a manifest. The file appears as a whole."""
    pool = ThreadPoolExecutor(remote.AHEAD, "remote-block")
    try:
        with replacing_path(path) as partial, closing(HashedFile(partial)) as target:
            with closing(file.blocks(pool, stop)) as blocks:
                for block in blocks:
                    target.write(memoryview(block))
                    advance(len(block))
            found: dict[str, Any] = {"bytes": file.stat.size, "xxh3_128": target.sync()}
            if entry not in (None, found, found["bytes"]):
                raise UserError(
                    f"{file} is damaged: it has {found['bytes']} bytes and checksum {found['xxh3_128']}, not "
                    f"{entry}; delete its artifact in the bucket and run the same command again to rebuild it"
                )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
