"""Artifacts: one folder per result, named by the hash of its inputs and written atomically.

A stage's folder is called `<stage>-<12 hex>`, after the hash of the stage's configuration, the hashes of its inputs
and the format version. Its `manifest.json` records origin, contents, cost, and the size and checksum of every file. The
folder is written next to its final name under a lock that is released when its holder dies, so two processes never do
the same work.

Files are flushed to disk first, then the manifest is written, then the folder is renamed. A folder with a manifest is
therefore complete, whatever its name: a killed process loses at most one stage's unfinished work. Before a process
uses an artifact's files, it compares them with their checksums.

The artifacts may be on object storage. The folder is then a cache: what is made is uploaded once it is complete, and
what is missing is downloaded when its files are first used.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from experiments.results import Contents
from experiments.store import cache
from experiments.store.manifest import FORMAT, MANIFEST, Manifest, origin
from experiments.store.measured import measured
from tokenizer.durable import naming, remove_folder, sync
from tokenizer.errors import UserError
from tokenizer.files import Verify, check_files, check_sizes, digest, is_remote, read_sealed, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from filelock import FileLock

    from experiments.store.bucket import Bucket

NAME = r"[a-z]+-[0-9a-f]{12}(-\d+)?"

C = TypeVar("C", bound=Contents)


@dataclass(frozen=True)
class Artifact(Generic[C]):
    """A finished folder, its manifest, and the result of the stage that made it.

    Attributes:
        folder: The folder; to read its files, use `path`.
        manifest: Contents of `manifest.json`.
        contents: The stage's result.
        fresh: True if this process has just made it, False if it existed already.
        check: Called before files are used; raises a UserError if a file is damaged.
    """

    folder: Path
    manifest: Manifest
    contents: C
    fresh: bool = False
    check: Callable[[Artifact[Any]], None] | None = field(default=None, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder, after its files have been compared with their checksums (by default once per process).

        Raises:
            UserError: If a file is damaged or missing.
        """
        if self.check is not None:
            self.check(self)
        return self.folder

    @property
    def name(self) -> str:
        """Name of the folder: `<stage>-<12 hex>`."""
        return self.folder.name

    @property
    def hash(self) -> str:
        """The full hash (64 hex digits), which later stages record as an input; the name abbreviates it."""
        return self.manifest.hash

    @property
    def seconds(self) -> float:
        """Time to make the artifact in seconds, over all attempts."""
        return self.manifest.seconds


class Store:
    """A folder of artifacts.

    Args:
        root: The folder; created with the first artifact. It may be the cache of a bucket (`experiments.store.cache`).
        on_wait: Called with an artifact's name when another process is making it and this one has to wait.
        on_use: Called with every artifact that is made or reused.
        on_build: Called when an artifact begins to be made.
        verify: When files are compared with their checksums.
        progress: Called while that takes place, as in `tokenizer.files.check_files`.
    """

    def __init__(
        self,
        root: Path,
        *,
        on_wait: Callable[[str], None] | None = None,
        on_use: Callable[[Artifact[Any]], None] | None = None,
        on_build: Callable[[], None] | None = None,
        verify: Verify = "once",
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        self.root = root
        self._on_wait = on_wait
        self._on_use = on_use
        self._on_build = on_build
        self._verify = verify
        self._progress = progress
        self._building = 0
        self._unpublished: list[str] = []
        self.on_upload: Callable[[], None] | None = None
        self.bucket: Bucket | None = None
        if (url := cache.bucket_of(root)) is not None:
            from experiments.store.bucket import Bucket

            self.bucket = Bucket(url, root / ".manifests", progress)

    @classmethod
    def at(cls, where: str | Path, folder: str | None = None, **options: Any) -> Store:
        """Return the store in a folder, or in a bucket with its cache.

        Args:
            where: Folder, or URL.
            folder: For a URL: local folder of the cache; None for one in the user's cache folder.
            options: Arguments of the class.

        Raises:
            UserError: If the URL, or one of the settings, cannot be used.
        """
        if is_remote(str(where)):
            return cls(cache.cache_of(str(where), folder), **options)
        if folder is not None:
            raise UserError(
                f"artifacts_cache={folder} has no effect, because artifacts={where} is a local folder; remove it"
            )
        return cls(Path(where), **options)

    @property
    def where(self) -> str:
        """The URL or the absolute path of the folder, for `at`."""
        return str(self.root.resolve()) if self.bucket is None else self.bucket.url

    def make(
        self,
        result: type[C],
        stage: str,
        *,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Path], C],
        resumable: bool = False,
    ) -> Artifact[C]:
        """Return the artifact of this stage, configuration and inputs; build it if it does not exist.

        Args:
            result: Class of the stage's result.
            stage: Name of the stage, the first half of the folder's name.
            config: All of the stage's own settings that change its result.
            inputs: The hash of everything it reads, by name.
            build: Fills the given folder and returns the result.
            resumable: Keep the unfinished folder when `build` is interrupted, and pass it to the next attempt.

        Raises:
            UserError: If the folder exists but is damaged.
        """
        name, identity = self.identify(stage, config, inputs)
        return self.write(result, name, identity, build, resumable=resumable)

    @staticmethod
    def identify(stage: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Name of an artifact, and the first entries of its manifest; takes arguments of `make`."""
        identity = {"stage": stage, "config": dict(config), "inputs": dict(inputs), "format": FORMAT}
        key = digest(identity)
        return f"{stage}-{key[:12]}", {**identity, "hash": key}

    def write(
        self,
        result: type[C],
        name: str,
        identity: Mapping[str, Any],
        build: Callable[[Path], C],
        *,
        resumable: bool = False,
    ) -> Artifact[C]:
        """Like `make`, but under a name that the caller chooses (a tokenizer is named by its content).

        Args:
            result: Class of the stage's result.
            name: Name of the folder.
            identity: First entries of the manifest, including `hash`.
            build: Fills the given folder and returns the result.
            resumable: Keep the unfinished folder when `build` is interrupted, and pass it to the next attempt.
        """
        artifact = self.find(name, result) or self._write(result, name, identity, build, resumable)
        self.use(artifact)
        return artifact

    def use(self, artifact: Artifact[Any]) -> None:
        """Report that an artifact returned by `find` is used, and upload it if it is not in the bucket.

        What is used while another artifact is built is uploaded after it: a failed upload does not end a build.
        """
        if self._on_use is not None:
            self._on_use(artifact)
        if self.bucket is not None:
            self._unpublished.append(artifact.name)
            while self._unpublished and not self._building:
                self._publish(self._unpublished[0])
                self._unpublished.pop(0)

    def _publish(self, name: str) -> None:
        assert self.bucket is not None
        if not (self.root / name).exists():
            return
        if not self.bucket.has(name):
            with self.lock(name):  # another process may be uploading it
                if not self.bucket.has(name):
                    self.bucket.upload(self.root / name)
            if self.on_upload is not None:
                self.on_upload()

    def _download(self, artifact: Artifact[Any]) -> None:
        """Get an artifact's files. Those of an interrupted attempt are not read again."""
        assert self.bucket is not None
        with self.lock(artifact.name):
            if artifact.folder.exists():
                return
            partial = self.root / f".{artifact.name}.download"
            partial.mkdir(parents=True, exist_ok=True)
            self.bucket.download(artifact.name, partial)
            self._name(partial)

    def _write(
        self,
        result: type[C],
        name: str,
        identity: Mapping[str, Any],
        build: Callable[[Path], C],
        resumable: bool,
    ) -> Artifact[C]:
        with self.lock(name):
            if (found := self.find(name, result)) is not None:
                return found
            partial = self.root / f".{name}.{'resumable' if resumable else 'partial'}"
            if self._complete(partial) and (found := self.find(name, result)) is not None:
                return found
            if self._on_build is not None:
                self._on_build()
            if not resumable:
                remove_folder(partial)
            partial.mkdir(parents=True, exist_ok=True)
            for unfinished in partial.glob(".*.partial"):  # files that a killed process was writing
                if unfinished.is_file():
                    unfinished.unlink()
            with measured(partial) as cost:
                try:
                    self._building += 1
                    with naming(partial):
                        contents = build(partial)
                except BaseException:
                    if not resumable:
                        remove_folder(partial, ignore_errors=True)
                    raise
                finally:
                    self._building -= 1
            _sync_all(partial)
            files = recorded(partial, _files(partial))
            values = {"stage": name.partition("-")[0], "format": FORMAT, "inputs": {}, **identity, **cost, **origin()}
            manifest = Manifest(contents=contents.save(), files=files, **values)
            manifest.write(partial)
            self._name(partial)
            return Artifact(self.root / name, manifest, contents, fresh=True, check=self.check)

    def _complete(self, partial: Path) -> bool:
        """Give a folder its final name if a killed process had finished it; otherwise delete its manifest, if any.

        The manifest is written after everything else is on disk, so a folder with a valid manifest only has to be
        renamed.
        """
        try:
            check_sizes(partial, read_sealed(partial / MANIFEST)["files"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            (partial / MANIFEST).unlink(missing_ok=True)
            return False
        self._name(partial)
        return True

    def _name(self, partial: Path) -> None:
        name = partial.name.removeprefix(".").removesuffix(partial.suffix)
        partial.replace(self.root / name)
        sync(self.root)

    def find(self, name: str, result: type[C]) -> Artifact[C] | None:
        """Return the finished artifact of this name, or None. Sizes are checked now, checksums when it is used.

        Args:
            name: Name of the folder.
            result: Class of the stage's result; `Folder` to read only the manifest.

        Raises:
            UserError: If the manifest is damaged, or a file that it lists is missing or has another size.
        """
        found = self._read(self.root / name, result)
        if found is None and self.bucket is not None and (about := self.bucket.manifest(name)) is not None:
            found = self._read(about, result, whole=False)
        if found is None:
            return None
        return Artifact(self.root / name, *found, check=self.check)

    @staticmethod
    def _read(folder: Path, result: type[C], *, whole: bool = True) -> tuple[Manifest, C] | None:
        """Read the manifest in a folder; unless the folder is `whole`, the other files are elsewhere."""
        if not folder.exists():  # checked first, because another process may rename the folder at any time
            return None
        try:
            manifest = Manifest.read(folder)
            if whole:
                check_sizes(folder, manifest.files)
            return manifest, result.load(manifest.contents)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not folder.exists():  # another process has just removed it
                return None
            raise UserError(f"{error.filename} is missing; {_remake(folder)}") from None
        except UserError as error:
            raise UserError(f"{error}; {_remake(folder)}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{folder / MANIFEST} is damaged ({error}); {_remake(folder)}") from None

    def exists(self, name: str) -> bool:
        """Return whether there is an artifact of this name."""
        return (self.root / name).exists() or (self.bucket is not None and self.bucket.has(name))

    def open_all(self, names: Sequence[str], result: type[C]) -> list[Artifact[C]]:
        """Return the artifacts of these names.

        Raises:
            UserError: If one does not exist or is damaged.
        """
        found = []
        for name in names:
            artifact = self.find(name, result)
            if artifact is None:
                raise UserError(
                    f"{self.where}/{name} does not exist; run the command of its run again to rebuild it, or name the "
                    "folder that it was moved to with --artifacts"
                )
            found.append(artifact)
        return found

    def check(self, artifact: Artifact[Any], verify: Verify | None = None) -> None:
        """Compare an artifact's files with the checksums in its manifest; download them first if necessary.

        Args:
            artifact: The artifact.
            verify: Replaces the store's setting.

        Raises:
            UserError: If a file is damaged or missing.
        """
        if self.bucket is not None and not artifact.folder.exists():
            self._download(artifact)
        try:
            check_files(artifact.folder, artifact.manifest.files, verify or self._verify, self._progress)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} is missing; {_remake(artifact.folder)}") from None
        except UserError as error:
            raise UserError(f"{error}; {_remake(artifact.folder)}") from None

    def names(self, prefix: str) -> list[str]:
        """Return the sorted names of finished artifacts that start with `prefix`."""
        found = {path.name for path in self.root.iterdir()} if self.root.is_dir() else set()
        if self.bucket is not None:
            found.update(self.bucket.names())
        return sorted(name for name in found if name.startswith(prefix))

    def latest(self, prefix: str) -> list[str]:
        """Return the names of artifacts on this machine that start with `prefix`, the last one first."""
        found = [path for path in self.root.iterdir() if path.name.startswith(prefix)] if self.root.is_dir() else []
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]

    def remove(self, name: str) -> None:
        """Delete an artifact."""
        if self.bucket is not None:
            self.bucket.remove(name)
        if (self.root / name).exists():
            self._discard(name)

    def _discard(self, name: str) -> None:
        """Delete a folder. It is renamed first, so that it is never half deleted under its name."""
        doomed = self.root / f".{name}.removed"
        remove_folder(doomed, ignore_errors=True)
        (self.root / name).replace(doomed)
        remove_folder(doomed, ignore_errors=True)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of an artifact. The kernel releases it when its holder dies."""
        lock = self.filelock(name)
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            if self._on_wait is not None:
                self._on_wait(name)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def clean(self) -> list[str]:
        """Delete the leftovers of killed processes, except resumable ones; return the names."""
        for removed in self.root.glob(".*.removed"):
            remove_folder(removed, ignore_errors=True)
        for partial in self.root.glob(".*.download"):
            if (self.root / partial.name.removeprefix(".").removesuffix(".download")).exists():
                remove_folder(partial, ignore_errors=True)
        stale = []
        for partial in sorted(self.root.glob(".*.partial")):
            name = partial.name.removeprefix(".").removesuffix(".partial")
            with self.if_free(name) as free:  # otherwise a live process is writing it
                if free and ((self.root / name).exists() or not self._complete(partial)):
                    remove_folder(partial, ignore_errors=True)
                    stale.append(name)
        return stale

    @contextmanager
    def if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock of an artifact in the block; yield False if another process holds it."""
        lock = self.filelock(name)
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def filelock(self, name: str) -> FileLock:
        """Return the lock of this name without acquiring it.

        Raises:
            UserError: If the store cannot be written.
        """
        folder = self.root / ".locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to artifacts={self.root} ({error.strerror}); choose another folder"
            ) from None
        from filelock import FileLock

        return FileLock(folder / f"{name}.lock")


def artifact_at(folder: Path, result: type[C]) -> Artifact[C] | None:
    """Return the artifact in a folder that the user named; None if the folder is not an artifact.

    Args:
        folder: The folder.
        result: Class of the stage's result; `Folder` to read only the manifest.

    Raises:
        UserError: If the artifact is damaged.
    """
    folder = folder.resolve()
    if not re.fullmatch(NAME, folder.name):
        return None
    store = Store(folder.parent)
    return store.find(folder.name, result) if store.bucket or (folder / MANIFEST).is_file() else None


def _remake(folder: Path) -> str:
    return f"delete the folder {folder} and run the same command again to rebuild it"


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _sync_all(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        sync(path)
    sync(folder)
