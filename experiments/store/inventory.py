"""Inventory of a folder of artifacts, with the state, cost and inputs of each."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.results import Folder
from experiments.store import registry, runs
from experiments.store.artifacts import NAME, Artifact, Store
from experiments.store.manifest import FORMAT, MANIFEST, Manifest
from experiments.store.measured import seconds_so_far
from tokenizer.errors import UserError
from tokenizer.files import n_bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

STAGES = ("corpus", "count", "bpe", "superbpe", "tokenizer", "documents", "shards", "lm", "evaluation", "report")
"""Prefixes of artifact names, in the order in which a run makes them."""

WHOLE, DAMAGED, OUTDATED, UNFINISHED, LEFTOVER, BUSY = (
    "whole",
    "damaged",
    "outdated",
    "unfinished",
    "leftover",
    "in work",
)
"""States of an artifact. `outdated`: in another format, never reused. `unfinished`: resumes when its command is
repeated. `leftover`: of a killed process, cannot be resumed. `in work`: being made now."""


_RESUMABLE = (".resumable", ".download")


@dataclass
class Item:
    """One folder of a store.

    Attributes:
        path: The folder.
        name: Name of the artifact, also for an unfinished folder.
        state: One of the states above.
        manifest: Contents of `manifest.json`; None if it cannot be read.
        seconds: Time to make the artifact, if known.
        n_bytes: Size on disk, or in the bucket if it is only there.
        note: What is wrong, or which software versions differ from the installed ones.
        needs: Names of its existing inputs.
        perhaps: Names of corpora that it may have read: the hash of a corpus is not that of the folder containing it.
        needed: Whether a report, or a run whose folder exists, needs it.
    """

    path: Path
    name: str
    state: str
    manifest: Manifest | None
    seconds: float | None
    n_bytes: int
    note: str = ""
    needs: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    needed: bool = False

    @property
    def stage(self) -> str:
        """Name of the stage: the prefix of its name."""
        return self.name.partition("-")[0]

    @property
    def made(self) -> str:
        """Time when it was made (UTC); empty if unknown."""
        return "" if self.manifest is None else self.manifest.made

    @property
    def command(self) -> str:
        """The command that made it; empty if unknown."""
        return "" if self.manifest is None else self.manifest.command


def take(store: Store, keep: Iterable[str] = (), drop: Iterable[str] = (), *, verify: bool = False) -> list[Item]:
    """Return everything in a store, in the order of stages and time.

    Args:
        store: The store.
        keep: Names of artifacts to mark as needed.
        drop: Names of reports and other artifacts to mark as not needed, even if a run used them.
        verify: Compare every file with its checksum.
    """
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    paths = [path for path in sorted(store.root.iterdir()) if _is_artifact(path)]
    if store.bucket is not None:
        elsewhere = sorted(set(store.bucket.names()) - {path.name for path in paths})
        store.bucket.fetch_manifests(elsewhere)
        paths += [store.root / name for name in elsewhere]
    items = [_item(store, path, verify) for path in paths]
    _link(items)
    _mark(store, items, set(keep), set(drop))
    order = {stage: place for place, stage in enumerate(STAGES)}
    return sorted(items, key=lambda item: (order.get(item.stage, len(order)), item.made or "~"))


def _is_artifact(path: Path) -> bool:
    if not path.is_dir():
        return False
    if path.name.startswith("."):
        return path.suffix in (".partial", *_RESUMABLE)
    return re.fullmatch(NAME, path.name) is not None or (path / MANIFEST).exists()


def _item(store: Store, path: Path, verify: bool) -> Item:
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if path.name.startswith("."):
        name = path.name.removeprefix(".").removesuffix(path.suffix)
        with store.if_free(name) as free:
            state = BUSY if not free else UNFINISHED if path.suffix in _RESUMABLE else LEFTOVER
        return Item(path, name, state, None, seconds_so_far(path), n_bytes)
    try:
        found = store.find(path.name, Folder)
        assert found is not None
        n_bytes = n_bytes or n_bytes_of(found.manifest.files)
        if verify:
            store.check(found, "always")
    except UserError as error:
        manifest = _readable(path)
        seconds = None if manifest is None else manifest.seconds
        return Item(path, path.name, DAMAGED, manifest, seconds, n_bytes, note=str(error))
    state, note = WHOLE, _versions(found)
    if found.manifest.format != FORMAT:
        state, note = OUTDATED, f"format {found.manifest.format}; the current format is {FORMAT}"
    return Item(path, path.name, state, found.manifest, found.seconds, n_bytes, note=note)


def _readable(folder: Path) -> Manifest | None:
    try:
        return Manifest.read(folder)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _versions(artifact: Artifact[Folder]) -> str:
    """Describe which packages had other versions when an artifact was made."""
    differ = []
    for package, version in artifact.manifest.versions.items():
        if package == "python":
            continue
        try:
            here = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            here = "none"
        if here != version:
            differ.append(f"{package} {version} (here {here})")
    return f"made with {', '.join(differ)}" if differ else ""


def _link(items: list[Item]) -> None:
    """Find the inputs of each artifact.

    Inputs are recorded by hash. A tokenizer is named by its content, and its training record points to it. So an
    artifact that needs the tokenizer also needs the record, and the merge list that the tokenizer was cut from. The
    hash of a corpus differs from the hash of its folder, so an artifact that reads a corpus keeps all corpus folders.
    """
    whole = {item.name: item.manifest for item in items if item.state in (WHOLE, OUTDATED) and item.manifest}
    by_hash = {manifest.hash: name for name, manifest in whole.items()}
    corpora = [item.name for item in items if item.name in whole and item.stage == "corpus"]
    trainings = [item.name for item in items if item.name in whole and item.stage in ("bpe", "superbpe")]
    points = {name: str(whole[name].contents.get("tokenizer")) for name in trainings}
    for item in items:
        if item.name not in whole:
            continue
        inputs = whole[item.name].inputs
        needs = {by_hash[hash_] for hash_ in inputs.values() if hash_ in by_hash}
        if "corpus" in inputs:
            item.perhaps = [name for name in corpora if name != item.name]
        if item.name in points:
            needs.add(points[item.name])
        if item.stage == "tokenizer":
            needs |= {name for name in trainings if points[name] == item.name or whole[name].inputs == inputs}
        item.needs = sorted((needs & whole.keys()) - {item.name})


def _mark(store: Store, items: list[Item], keep: set[str], drop: set[str]) -> None:
    """Mark everything that can be reached from existing runs and reports as needed."""
    by_name = {item.name: item for item in items if item.state == WHOLE}
    unknown = sorted((keep | drop) - set(by_name) - {item.name for item in items})
    if unknown:
        raise UserError(f"{store.root} contains no artifact {unknown[0]}")
    roots = set(keep) | {name for name, item in by_name.items() if item.stage == "report"}
    for entry in registry.entries(store):
        if entry.record.exists():
            roots.update(runs.load(entry.record).artifacts)
    waiting = sorted(roots - drop)
    while waiting:
        item = by_name.get(waiting.pop())
        if item is not None and not item.needed and item.name not in drop:
            item.needed = True
            waiting.extend([*item.needs, *item.perhaps])
    for item in items:
        item.needed = item.needed or item.state in (UNFINISHED, BUSY)
