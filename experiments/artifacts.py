"""Artifacts: one folder per result, named by what went into it, written whole or not at all.

A stage's folder is called `<stage>-<12 hex>` after the hash of the stage's own configuration, the hashes of
what it read and the format version. Its `manifest.json` says where it came from, what is in it and what it
cost. The folder is written beside its final name, flushed to disk and renamed, under a lock that dies with
its holder: two processes never do the same work, and `kill -9` loses at most one stage's unfinished work.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from tokenizer.errors import UserError
from tokenizer.files import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Raised when the layout of artifacts, or what a stage means, changes: older folders are then not reused.
FORMAT = 2
MANIFEST = "manifest.json"
SECONDS = ".seconds"
# Environment variable with the user's command, for processes that a launcher starts with one of its own.
COMMAND = "SUPERBPE_COMMAND"
_PACKAGES = ("superbpe-framework", "numpy", "torch", "pyarrow", "botocore")


def digest(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of a JSON-able value, whatever the order of its keys.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON beside its final name and rename it, so that a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


@dataclass(frozen=True)
class Artifact:
    """A finished folder and its manifest.

    Attributes:
        path: The folder.
        manifest: What `manifest.json` says.
        fresh: True if this process has just made it, False if it was there already.
    """

    path: Path
    manifest: dict[str, Any]
    fresh: bool = False

    @property
    def name(self) -> str:
        """`<stage>-<12 hex>`."""
        return self.path.name

    @property
    def hash(self) -> str:
        """The whole hash (64 hex digits), which the name abbreviates and later stages record as an input."""
        return str(self.manifest["hash"])

    @property
    def contents(self) -> dict[str, Any]:
        """What the stage said about its result: sizes, counts, names."""
        contents: dict[str, Any] = self.manifest["contents"]
        return contents

    @property
    def seconds(self) -> float:
        """What it took to make, over all sittings, in seconds."""
        return float(self.manifest["seconds"])


class Store:
    """A folder of artifacts.

    Args:
        root: The folder; made when the first artifact is.
        on_wait: Called with an artifact's name when another process is making it and this one has to wait.
        on_use: Called with every artifact that is made or reused.
    """

    def __init__(
        self,
        root: Path,
        *,
        on_wait: Callable[[str], None] | None = None,
        on_use: Callable[[Artifact], None] | None = None,
    ) -> None:
        self.root = root
        self._on_wait = on_wait
        self._on_use = on_use

    def make(
        self,
        stage: str,
        *,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        build: Callable[[Path], dict[str, Any]],
        resumable: bool = False,
    ) -> Artifact:
        """Return the artifact of this stage, configuration and inputs; build it if it is not there.

        Args:
            stage: Name of the stage, the first half of the folder's name.
            config: All of the stage's own settings that change its result.
            inputs: The hash of everything it reads, by name.
            build: Fills the folder that it is given and returns the manifest's `contents`.
            resumable: Keep the unfinished folder when `build` is interrupted, and hand it to the next
                attempt.

        Raises:
            UserError: If the folder exists but is damaged.
        """
        identity = {"stage": stage, "config": dict(config), "inputs": dict(inputs), "format": FORMAT}
        key = digest(identity)
        return self.write(f"{stage}-{key[:12]}", {**identity, "hash": key}, build, resumable=resumable)

    def write(
        self,
        name: str,
        identity: Mapping[str, Any],
        build: Callable[[Path], dict[str, Any]],
        *,
        resumable: bool = False,
        check_files: bool = True,
    ) -> Artifact:
        """Like `make`, for a name that the caller has chosen (a tokenizer is named by its content).

        Args:
            name: Of the folder.
            identity: The first entries of the manifest; `hash` must be one of them.
            build: As for `make`.
            resumable: As for `make`.
            check_files: Refuse the artifact later if a file's size changed; False where its reader knows better
                which changes matter.
        """
        artifact = self.find(name) or self._write(name, identity, build, resumable, check_files)
        self.use(artifact)
        return artifact

    def use(self, artifact: Artifact) -> None:
        """Let it be known that an artifact is used which `find` has found."""
        if self._on_use is not None:
            self._on_use(artifact)

    def _write(
        self,
        name: str,
        identity: Mapping[str, Any],
        build: Callable[[Path], dict[str, Any]],
        resumable: bool,
        check_files: bool,
    ) -> Artifact:
        with self.lock(name):
            if (found := self.find(name)) is not None:
                return found
            partial = self.root / f".{name}.{'resumable' if resumable else 'partial'}"
            if not resumable:
                shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(exist_ok=True)
            with _measured(partial) as cost:
                try:
                    contents = build(partial)
                except BaseException:
                    if not resumable:
                        shutil.rmtree(partial, ignore_errors=True)
                    raise
            manifest = {
                **identity,
                "contents": contents,
                **cost,
                **_origin(),
                "files": _sizes(partial) if check_files else {},
            }
            write_json(partial / MANIFEST, manifest)
            _flush(partial)
            final = self.root / name
            partial.rename(final)
            _fsync(self.root)
            return Artifact(final, manifest, fresh=True)

    def find(self, name: str) -> Artifact | None:
        """Return the finished artifact of this name, or None.

        Raises:
            UserError: If a file that the manifest lists is missing or has another size.
        """
        path = self.root / name
        try:
            manifest = read_json(path / MANIFEST)
            for file, size in manifest["files"].items():
                if (path / file).stat().st_size != size:
                    raise UserError(f"{path / file} is not {size} bytes long as its manifest says; {_remake(path)}")
        except (FileNotFoundError, NotADirectoryError) as error:
            if not path.exists():
                return None
            raise UserError(f"{error.filename} is missing; {_remake(path)}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path / MANIFEST} is not a manifest; {_remake(path)}") from None
        return Artifact(path, manifest)

    def names(self, prefix: str) -> list[str]:
        """Return the sorted names of finished artifacts that start with `prefix`."""
        if not self.root.is_dir():
            return []
        return sorted(p.name for p in self.root.iterdir() if p.name.startswith(prefix))

    def remove(self, name: str) -> None:
        """Delete an artifact: renamed away first, so that it is either whole or gone."""
        doomed = self.root / f".{name}.partial"
        shutil.rmtree(doomed, ignore_errors=True)
        (self.root / name).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of an artifact. It is the kernel's: when its holder dies, it is free."""
        lock = self.filelock(name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if self._on_wait is not None:
                self._on_wait(name)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def clean(self) -> list[str]:
        """Delete what killed processes left half-made, except what can be continued; return the names."""
        stale = []
        for partial in sorted(self.root.glob(".*.partial")):
            name = partial.name.removeprefix(".").removesuffix(".partial")
            with self.if_free(name) as free:  # else its maker lives
                if free:
                    shutil.rmtree(partial, ignore_errors=True)
                    stale.append(name)
        return stale

    @contextmanager
    def if_free(self, name: str) -> Iterator[bool]:
        """Hold the lock of an artifact in the block, or say False if another process holds it."""
        lock = self.filelock(name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def filelock(self, name: str) -> FileLock:
        """Return the lock of this name, not held yet.

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
        return FileLock(folder / f"{name}.lock")


@contextmanager
def _measured(folder: Path) -> Iterator[dict[str, float | int]]:
    """Measure seconds (earlier sittings of a resumed stage included) and peak memory of a block."""
    cost: dict[str, float | int] = {}
    record = folder / SECONDS
    before = float(record.read_text()) if record.exists() else 0.0
    _reset_peak_memory()
    start = time.perf_counter()
    try:
        yield cost
    finally:
        cost["seconds"] = round(before + time.perf_counter() - start, 3)
        cost["peak_memory_bytes"] = peak_memory()
        if folder.exists():
            record.write_text(str(cost["seconds"]))
    record.unlink(missing_ok=True)


def _reset_peak_memory() -> None:
    with suppress(OSError):  # not Linux, or not allowed: the peak is then that of the process so far
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes, since the stage began where Linux can say."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def command_line() -> str:
    """Return the command that this process was started with, or the sweep that it belongs to."""
    return os.environ.get(COMMAND) or " ".join(["python", *sys.orig_argv[1:]])


def _origin() -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "command": command_line(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": versions,
    }


def _remake(path: Path) -> str:
    return f"delete the folder {path} and run the same command again to have it made anew"


def _sizes(folder: Path) -> dict[str, int]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {p.relative_to(folder).as_posix(): p.stat().st_size for p in files}


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        _fsync(path)
    _fsync(folder)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
