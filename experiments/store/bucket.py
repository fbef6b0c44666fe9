"""A store of artifacts on object storage, with local copies.

`PREFIX/NAME/manifest.json` is written last: an artifact without one is unfinished, and the next attempt overwrites it.
The other files are in `PREFIX/NAME/<12 hex>/`, after the hash of the manifest. So two machines that upload the same
artifact at the same time do not mix their files.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.store.artifacts import DOWNLOAD, Artifact, C, Store
from experiments.store.manifest import MANIFEST, Manifest
from tokenizer.corpus import remote
from tokenizer.durable import remove_folder, replacing, write_whole
from tokenizer.errors import UserError
from tokenizer.files import check_files, confined, n_bytes_of, shown, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokenizer.files import Verify

CACHE = "SUPERBPE_CACHE"
"""Environment variable with the folder of local copies, instead of `superbpe` in the user's cache folder."""
_FILES = 4
"""Files that are transferred at the same time."""


class BucketStore(Store):
    """A folder of artifacts on object storage. Its `root` has the local copies.

    Args:
        url: `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
        options: Attributes of `Store`.

    Raises:
        UserError: If the URL cannot be used, or the folder of copies cannot be written.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self._read = shown(url).rstrip("/"), set[str]()
        scheme, _, place = self.url.partition("://")
        if without_credentials(url) != url or scheme not in ("s3", "gs") or not place or re.search(r"[*?\[]", place):
            raise UserError(f"artifacts={self.url}: write a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "superbpe"
        slug = re.sub(r"[^A-Za-z0-9]+", "-", self.url)[-60:].strip("-")
        name = f"{slug}-{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"
        super().__init__(Path(os.environ.get(CACHE) or usual) / name, **options)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {self.root} ({error.strerror}); set {CACHE} to another folder") from None

    @property
    def where(self) -> str:
        """The URL."""
        return self.url

    def names(self, prefix: str) -> list[str]:
        """See `Store.names`; those that are only in the bucket too."""
        remote_names = [name for name in remote.subfolders(self.url) if name.startswith(prefix) and name[0] != "."]
        manifests = remote.concurrently(self._manifest, remote_names)
        complete = {name for name, about in zip(remote_names, manifests, strict=True) if about is not None}
        return sorted({*super().names(prefix), *complete})

    def exists(self, name: str) -> bool:
        """See `Store.exists`."""
        return super().exists(name) or self._manifest(name) is not None

    def find(self, name: str, result: type[C]) -> Artifact[C] | None:
        """See `Store.find`; an artifact without a local copy is downloaded when its files are used."""
        if super().exists(name) or (about := self._manifest(name)) is None:
            return super().find(name, result)
        manifest = Manifest.read(about)
        return Artifact(self.root / name, manifest, result.load(manifest.contents), check=self.check)

    def check(self, artifact: Artifact[Any], verify: Verify | None = None) -> None:
        """See `Store.check`; downloads the files first if there is no local copy."""
        if not super().exists(artifact.name):
            with self.lock(artifact.name):
                if not super().exists(artifact.name):
                    self._download(artifact)
        super().check(artifact, verify)

    def use(self, artifact: Artifact[Any]) -> None:
        """See `Store.use`; uploads the artifact, its manifest last, if it is not in the bucket.

        Raises:
            UserError: If it cannot be written.
        """
        super().use(artifact)
        if self._manifest(artifact.name) is not None:
            return
        folder, target = artifact.folder, self._files(artifact.folder)
        try:
            self._transfer(
                "bytes uploaded",
                lambda name: remote.upload(folder / name, f"{target}/{name}"),
                artifact.manifest.files,
            )
            remote.upload(folder / MANIFEST, f"{self.url}/{artifact.name}/{MANIFEST}")
        except UserError as error:
            raise UserError(f"{error}; it resumes with the upload, because {folder} is complete") from None

    def remove(self, name: str) -> None:
        """See `Store.remove`; deletes it from the bucket too, its manifest first."""
        self._read.discard(name)
        remote.delete(f"{self.url}/{name}/{MANIFEST}")
        remote.delete(f"{self.url}/{name}")
        super().remove(name)

    def _manifest(self, name: str) -> Path | None:
        """A local folder with the manifest of an artifact in the bucket, read once per process; None if not there."""
        folder = confined(self.root / ".manifests", name)
        if name not in self._read:
            try:
                _download(f"{self.url}/{name}/{MANIFEST}", folder / MANIFEST)
            except remote.Missing:
                return None
            self._read.add(name)
        return folder

    def _files(self, about: Path) -> str:
        """URL of the files of the artifact whose manifest is in a local folder."""
        return f"{self.url}/{about.name}/{hashlib.sha256((about / MANIFEST).read_bytes()).hexdigest()[:12]}"

    def _download(self, artifact: Artifact[Any]) -> None:
        """Write an artifact into the local folder. Complete files of an interrupted attempt are not read again."""
        name, about = artifact.name, self.root / ".manifests" / artifact.name
        partial, source = self.root / f".{name}{DOWNLOAD}", self._files(about)
        for unfinished in partial.rglob(".*.partial"):
            unfinished.unlink()

        def fetch(file: str) -> None:
            if not (path := confined(partial, file)).exists():
                _download(f"{source}/{file}", path)

        self._transfer("bytes downloaded", fetch, artifact.manifest.files)
        try:
            check_files(partial, artifact.manifest.files)
        except UserError as error:
            remove_folder(partial)
            raise UserError(
                f"{error}; delete {self.url}/{name} in the bucket and run the same command again to rebuild it"
            ) from None
        write_whole(partial / MANIFEST, (about / MANIFEST).read_bytes())
        self.finish(partial, name)

    def _transfer(self, what: str, call: Callable[[str], None], files: Mapping[str, Any]) -> None:
        """Call a function for every file, several at a time, and report the bytes of those that are done."""
        done = 0
        for name, _ in zip(files, remote.concurrently(call, list(files), _FILES), strict=True):
            done += n_bytes_of({name: files[name]})
            if self.progress is not None:
                self.progress(what, done, n_bytes_of(files))


def _download(url: str, path: Path) -> None:
    """Write an object to disk, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as target:
        target.writelines(remote.at(url).blocks())
