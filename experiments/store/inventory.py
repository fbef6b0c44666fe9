"""Inventory of a folder of artifacts, with the state, cost and inputs of each."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.results import Folder
from experiments.store import registry, runs
from experiments.store.artifacts import DAMAGE, DOWNLOAD, NAME, PARTIAL, Store, seconds_so_far
from experiments.store.manifest import FORMAT, MANIFEST, Manifest
from tokenizer.errors import UserError
from tokenizer.files import n_bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

STAGES = ("corpus", "count", "bpe", "superbpe", "tokenizer", "documents", "shards", "lm", "evaluation", "report")
"""Prefixes of artifact names, in the order in which a run makes them."""

WHOLE, DAMAGED, OUTDATED, UNFINISHED, BUSY = "whole", "damaged", "outdated", "unfinished", "in work"
"""States of an artifact. `outdated`: in another format, never reused. `unfinished`: left by an interrupted process.
`in work`: being made now."""


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
        note: What is wrong.
        needs: Names of its existing inputs.
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
    if path.name.startswith("."):
        return path.is_dir() and path.suffix in (PARTIAL, DOWNLOAD)
    return re.fullmatch(NAME, path.name) is not None or (path / MANIFEST).exists()


def _item(store: Store, path: Path, verify: bool) -> Item:
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if path.name.startswith("."):
        name = path.name.removeprefix(".").removesuffix(path.suffix)
        with store.if_free(name) as free:
            return Item(path, name, UNFINISHED if free else BUSY, None, seconds_so_far(path), n_bytes)
    try:
        found = store.find(path.name, Folder)
        assert found is not None
        if verify:
            store.check(found, "always")
    except UserError as error:
        item = Item(path, path.name, DAMAGED, None, None, n_bytes, note=str(error))
        with suppress(OSError, *DAMAGE):
            item.manifest = Manifest.read(path)
            item.seconds = item.manifest.seconds
        return item
    manifest = found.manifest
    item = Item(path, path.name, WHOLE, manifest, found.seconds, n_bytes or n_bytes_of(manifest.files))
    if manifest.format != FORMAT:
        item.state, item.note = OUTDATED, f"format {manifest.format}; the current format is {FORMAT}"
    return item


def _link(items: list[Item]) -> None:
    """Find the inputs of each artifact, which are recorded by hash.

    A tokenizer is named by its content, and its training record points to it. So an artifact that needs the tokenizer
    also needs the record, and the merge list that the tokenizer was cut from.
    """
    whole = {item.name: item.manifest for item in items if item.state in (WHOLE, OUTDATED) and item.manifest}
    by_hash = {manifest.hash: name for name, manifest in whole.items()}
    trainings = {item.name: whole[item.name] for item in items if item.name in whole and "bpe" in item.stage}
    for item in items:
        if (manifest := whole.get(item.name)) is not None:
            needs = {by_hash[hash_] for hash_ in manifest.inputs.values() if hash_ in by_hash}
            needs.add(str(manifest.contents.get("tokenizer")))
            for name, training in trainings.items() if item.stage == "tokenizer" else ():
                if training.contents.get("tokenizer") == item.name or training.inputs == manifest.inputs:
                    needs.add(name)
            item.needs = sorted((needs & whole.keys()) - {item.name})


def _mark(store: Store, items: list[Item], keep: set[str], drop: set[str]) -> None:
    """Mark everything that can be reached from existing runs and reports as needed."""
    unknown = sorted((keep | drop) - {item.name for item in items})
    if unknown:
        raise UserError(f"{store.root} contains no artifact {unknown[0]}")
    by_name = {item.name: item for item in items if item.state == WHOLE and item.name not in drop}
    waiting = [*keep, *(name for name, item in by_name.items() if item.stage == "report")]
    for entry in registry.entries(store):
        if entry.record.exists():
            waiting += runs.load(entry.record).artifacts
    while waiting:
        item = by_name.get(waiting.pop())
        if item is not None and not item.needed:
            item.needed = True
            waiting += item.needs
    for item in items:
        item.needed = item.needed or item.state in (UNFINISHED, BUSY)
