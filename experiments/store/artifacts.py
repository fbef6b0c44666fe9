"""Artifacts: one folder per result, named by the hash of its inputs and written atomically.

A stage's folder is called `<stage>-<12 hex>`, after the hash of the stage's configuration, the hashes of its inputs
and the format version. Its `manifest.json` records origin, contents, cost, and the size and checksum of every file. The
folder is written as `.<name>.partial` under a lock that is released when its holder dies, so two processes never do the
same work.

Files are flushed to disk first, then the manifest is written, then the folder is renamed: a killed process loses at
most one stage's unfinished work. Files are compared with their checksums before they are used.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from experiments.results import Contents
from experiments.store import bucket
from experiments.store.manifest import FORMAT, MANIFEST, Manifest, origin, remedied
from tokenizer import system
from tokenizer.corpus import remote
from tokenizer.durable import locked, naming, remove_at_once, remove_folder, remove_leftovers, sync, sync_all
from tokenizer.errors import UserError
from tokenizer.files import Verify, check_files, check_sizes, confined, digest, is_remote, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tokenizer.progress import Progress

NAME = r"[a-z]+-[0-9a-f]{12}(-\d+)?"
PARTIAL = ".partial"
"""Suffix of unfinished folders."""

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
    check: Callable[[Artifact[Any]], None] = field(default=lambda _: None, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder, after its files have been compared with their checksums (by default once per process).

        Raises:
            UserError: If a file is damaged or missing.
        """
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


class Wanted(NamedTuple):
    """An artifact of `Store.make_all`; see `Store.make`."""

    result: type[Contents]
    stage: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]


@dataclass(eq=False)
class Store:
    """A folder of artifacts.

    Attributes:
        root: The folder; created with the first artifact.
        verify: When files are compared with their checksums.
        url: The bucket (`experiments.store.bucket`) whose copy the folder is; empty if it is not one.
        on_wait: Called with an artifact's name when another process is making it and this one has to wait.
        on_use: Called with every artifact that is made or reused.
        progress: Called while files are transferred, or compared with their checksums.
    """

    root: Path
    verify: Verify = "once"
    url: str = ""
    on_wait: Callable[[str], object] = lambda _: None
    on_use: Callable[[Artifact[Any]], object] = lambda _: None
    progress: Progress = lambda *_: None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the store without the callbacks, which belong to this process."""
        return Store, (self.root, self.verify, self.url)

    @staticmethod
    def at(where: str | Path, **options: Any) -> Store:
        """Return the store that a user named.

        Args:
            where: Folder, or URL of a bucket.
            options: Attributes of the class.

        Raises:
            UserError: If the URL cannot be used.
        """
        if is_remote(str(where)):
            url = str(where).rstrip("/")
            return Store(bucket.copies(url), url=url, **options)
        return Store(Path(where).absolute(), **options)

    def make(
        self,
        result: type[C],
        stage: str,
        *,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Path], C],
        resumable: bool = False,
        name: str | None = None,
        key: str | None = None,
    ) -> Artifact[C]:
        """Return the artifact of this stage, configuration and inputs; build it if it does not exist.

        Args:
            result: Class of the stage's result.
            stage: Name of the stage, the first half of the folder's name.
            config: All of the stage's own settings that change its result.
            inputs: The hash of everything it reads, by name.
            build: Fills the given folder and returns the result.
            resumable: Keep the unfinished folder when `build` is interrupted, and pass it to the next attempt.
            name: Name of the folder; None for `<stage>-<12 hex>` by configuration and inputs.
            key: Hash that later stages record; None for the hash of configuration and inputs.

        Raises:
            UserError: If the folder exists but is damaged.
        """
        usual, identity = self.identify(stage, config, inputs)
        name = name or usual
        identity = {**identity, "hash": key or identity["hash"]}
        artifact = self._find_or_build(name, identity, result, build, resumable)
        self.use(artifact)
        return artifact

    def _find_or_build(
        self, name: str, identity: dict[str, Any], result: type[C], build: Callable[[Path], C], resumable: bool
    ) -> Artifact[C]:
        if (artifact := self.find(name, result)) is None:
            with self.lock(name):
                artifact = self.find(name, result) or self._build(name, identity, build, resumable)
        return artifact

    def make_all(
        self,
        wanted: Mapping[str, Wanted],
        build: Callable[[Mapping[str, Path]], Mapping[str, Contents]],
        *,
        resumable: bool = False,
    ) -> dict[str, Artifact[Any]]:
        """`make` for several artifacts; those that do not exist are built together.

        Args:
            wanted: The artifacts, by names of the caller's choice.
            build: Fills the given folders and returns the results, by these names.
            resumable: As for `make`.

        Raises:
            UserError: As for `make`.
        """
        identities = {name: self.identify(one.stage, one.config, one.inputs) for name, one in wanted.items()}
        folder_of = {name: folder for name, (folder, _) in identities.items()}
        name_of = {folder: name for name, folder in reversed(folder_of.items())}
        folders: dict[str, Path] = {}
        built: dict[str, Contents] = {}
        made: dict[str, Artifact[Any]] = {}

        def make(missing: Sequence[str]) -> None:
            """Make the artifacts of these folders. The innermost call builds, under the locks of all."""
            if not missing:
                built.update(build(folders) if folders else {})
                return
            name, rest = name_of[missing[0]], missing[1:]

            def build_one(folder: Path) -> Contents:
                folders[name] = folder
                make(rest)
                return built[name]

            made[missing[0]] = self._find_or_build(*identities[name], wanted[name].result, build_one, resumable)
            if name not in folders:
                make(rest)

        make(sorted(name_of))  # so two processes never wait for each other
        for artifact in made.values():  # after all are built: an error of an upload may not cost another's text
            self.use(artifact)
        return {name: made[folder] for name, folder in folder_of.items()}

    def use(self, artifact: Artifact[Any]) -> None:
        """Report that an artifact is used, and upload it if it is not in the bucket."""
        self.on_use(artifact)
        if self.url and artifact.folder.exists():
            self.check(artifact)
            with self.lock(artifact.name):
                bucket.upload(artifact.folder, artifact.manifest, f"{self.url}/{artifact.name}", self.progress)

    @staticmethod
    def identify(stage: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Name of an artifact, and the first entries of its manifest; takes arguments of `make`."""
        identity = {"stage": stage, "config": dict(config), "inputs": dict(inputs), "format": FORMAT}
        key = digest(identity)
        return f"{stage}-{key[:12]}", {**identity, "hash": key}

    def _build(self, name: str, identity: dict[str, Any], build: Callable[[Path], C], resumable: bool) -> Artifact[C]:
        partial = self.root / f".{name}{PARTIAL}"
        if not resumable:
            remove_folder(partial)
        partial.mkdir(parents=True, exist_ok=True)
        (partial / MANIFEST).unlink(missing_ok=True)  # of a killed process
        remove_leftovers(self.root, name)
        for folder in (partial, *filter(Path.is_dir, partial.rglob("*"))):
            remove_leftovers(folder)
        started = time.perf_counter()
        system.peak_memory()  # so that the next call returns the stage's peak
        try:
            with naming(partial):
                contents = build(partial)
        except BaseException:
            if not resumable:
                remove_folder(partial, ignore_errors=True)
            raise
        cost: dict[str, Any] = {
            "seconds": round(time.perf_counter() - started, 3),
            "peak_memory_bytes": system.peak_memory(),
        }
        names = [path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file()]
        files = recorded(partial, names)
        self._finish(name, partial, Manifest(contents=contents.save(), files=files, **identity, **cost, **origin()))
        return Artifact(self.root / name, Manifest.read(self.root / name), contents, fresh=True, check=self.check)

    def _finish(self, name: str, partial: Path, manifest: Manifest) -> None:
        sync_all(partial)
        manifest.write(partial)
        partial.rename(self.root / name)
        sync(self.root)

    def find(self, name: str, result: type[C]) -> Artifact[C] | None:
        """Return the finished artifact of this name, or None. Sizes are checked now, checksums when it is used.

        Args:
            name: Name of the folder.
            result: Class of the stage's result; `Folder` to read only the manifest.

        Raises:
            UserError: If the manifest is damaged, or a file that it lists is missing or has another size.
        """
        folder = confined(self.root, name)
        local = folder.exists()  # checked first, because another process may rename the folder at any time
        manifest = bucket.read_manifest(f"{self.url}/{name}") if self.url and not local else None
        if not local and manifest is None:
            return None
        with remedied(folder if local else f"{self.url}/{name}"):
            if manifest is None:
                manifest = Manifest.read(folder)
                check_sizes(folder, manifest.files)
            return Artifact(folder, manifest, result.load(manifest.contents), check=self.check)

    def open_all(self, names: Sequence[str], result: type[C]) -> list[Artifact[C]]:
        """Return the artifacts of these names.

        Raises:
            UserError: If one does not exist or is damaged.
        """
        artifacts = []
        for name in names:
            if (artifact := self.find(name, result)) is None:
                raise UserError(
                    f"{self.url or self.root.resolve()}/{name} does not exist; run the command of its run again to "
                    "rebuild it, or name the folder that it was moved to with --artifacts"
                )
            artifacts.append(artifact)
        return artifacts

    def check(self, artifact: Artifact[Any]) -> None:
        """Compare an artifact's files with the checksums in its manifest; download them if they are not here.

        Raises:
            UserError: If a file is damaged or missing.
        """
        if self.url and not artifact.folder.exists():
            with self.lock(artifact.name):
                if not artifact.folder.exists():
                    partial = self.root / f".{artifact.name}.download{PARTIAL}"
                    bucket.download(f"{self.url}/{artifact.name}", artifact.manifest, partial, self.progress)
                    self._finish(artifact.name, partial, artifact.manifest)
        with remedied(artifact.folder):
            check_files(artifact.folder, artifact.manifest.files, self.verify, self.progress)

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of artifacts that start with `prefix`. Those in a bucket may be unfinished."""
        names = {path.name for path in self.root.glob("[!.]*")} | (remote.entries(self.url) if self.url else set())
        return sorted(name for name in names if name.startswith(prefix))

    def remove(self, name: str) -> None:
        """Delete an artifact."""
        remove_at_once(self.root / name, ignore_errors=True)

    @contextmanager
    def lock(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of an artifact, which the kernel releases when its holder dies.

        The block gets True; without `wait`, it gets False if another process holds the lock.
        """
        lock = self.root / ".locks" / f"{name}.lock"
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError as error:
            raise UserError(f"cannot write to artifacts={self.root} ({error.strerror}); name another folder") from None
        with locked(lock, (lambda: self.on_wait(name)) if wait else None) as held:
            yield held


def artifact_at(folder: Path, result: type[C]) -> Artifact[C] | None:
    """Return the artifact in a folder that the user named; None if the folder is not an artifact.

    Args:
        folder: The folder.
        result: Class of the stage's result; `Folder` to read only the manifest.

    Raises:
        UserError: If the artifact is damaged.
    """
    folder = folder.resolve()
    is_artifact = re.fullmatch(NAME, folder.name) and (folder / MANIFEST).is_file()
    return Store(folder.parent).find(folder.name, result) if is_artifact else None
