"""Inventory of a folder of artifacts, with the state, cost and inputs of each."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.results import Folder
from experiments.store import registry, runs
from experiments.store.artifacts import DAMAGE, NAME, PARTIAL, Store, seconds_so_far
from experiments.store.manifest import FORMAT, MANIFEST, Manifest
from tokenizer.errors import UserError

if TYPE_CHECKING:
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
        stage: The prefix of the name.
        state: One of the states above.
        seconds: Time to make the artifact, if known.
        n_bytes: Size on disk.
        manifest: Contents of `manifest.json`; None if it cannot be read.
        made: Time when it was made (UTC); empty if unknown.
        command: The command that made it; empty if unknown.
        note: What is wrong.
        needs: Names of its existing inputs.
        needed: Whether a report, or a run whose folder exists, needs it.
    """

    path: Path
    name: str
    stage: str
    state: str
    seconds: float | None
    n_bytes: int
    manifest: Manifest | None = None
    made: str = ""
    command: str = ""
    note: str = ""
    needs: list[str] = field(default_factory=list)
    needed: bool = False


def take(store: Store, *, verify: bool = False) -> list[Item]:
    """Return everything in a store, in the order of stages and time.

    Args:
        store: The store.
        verify: Compare every file with its checksum.
    """
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    names = [name for name in store.names("") if re.fullmatch(NAME, name) or (store.root / name / MANIFEST).exists()]
    items = [_item(store, store.root / name, verify) for name in names]
    items += [_unfinished(store, path) for path in store.root.glob(".*") if path.suffix == PARTIAL]
    _link(items)
    _mark(store, items)
    order = {stage: place for place, stage in enumerate(STAGES)}
    return sorted(items, key=lambda item: (order.get(item.stage, len(order)), item.made or "~"))


def _item(store: Store, path: Path, verify: bool) -> Item:
    item = Item(path, path.name, path.name.partition("-")[0], WHOLE, None, _n_bytes(path))
    try:
        artifact = store.find(path.name, Folder)
        assert artifact is not None
        item.manifest = artifact.manifest
        if verify:
            store.check(artifact, "always")
    except UserError as error:
        item.state, item.note = DAMAGED, str(error)
        with suppress(OSError, *DAMAGE):
            item.manifest = Manifest.read(path)
    if (manifest := item.manifest) is not None:
        item.seconds, item.made, item.command = manifest.seconds, manifest.made, manifest.command
        if item.state == WHOLE and manifest.format != FORMAT:
            item.state, item.note = OUTDATED, f"format {manifest.format}; the current format is {FORMAT}"
    return item


def _unfinished(store: Store, path: Path) -> Item:
    name = path.name.removeprefix(".").removesuffix(path.suffix)
    with store.if_free(name) as free:
        state = UNFINISHED if free else BUSY
    return Item(path, name, name.partition("-")[0], state, seconds_so_far(path), _n_bytes(path), needed=True)


def _n_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _link(items: list[Item]) -> None:
    """Find the inputs of each artifact, which are recorded by hash.

    A tokenizer is named by its content, and its training record points to it. So an artifact that needs the tokenizer
    also needs the record, and the merge list that the tokenizer was cut from.
    """
    whole = {item.name: item.manifest for item in items if item.state in (WHOLE, OUTDATED) and item.manifest}
    by_hash = {manifest.hash: name for name, manifest in whole.items()}
    for item in items:
        if (manifest := whole.get(item.name)) is not None:
            needs = {by_hash.get(hash_, "") for hash_ in manifest.inputs.values()}
            needs.add(str(manifest.contents.get("tokenizer")))
            for name, training in whole.items() if item.stage == "tokenizer" else ():
                points = training.contents.get("tokenizer") == item.name or training.inputs == manifest.inputs
                if "bpe" in name.partition("-")[0] and points:
                    needs.add(name)
            item.needs = sorted((needs & whole.keys()) - {item.name})


def _mark(store: Store, items: list[Item]) -> None:
    """Mark everything that can be reached from existing runs and reports as needed."""
    by_name = {item.name: item for item in items if item.state == WHOLE}
    waiting = [name for name, item in by_name.items() if item.stage == "report"]
    for entry in registry.entries(store):
        if entry.record.exists():
            waiting += runs.load(entry.record).artifacts
    while waiting:
        item = by_name.get(waiting.pop())
        if item is not None and not item.needed:
            item.needed = True
            waiting += item.needs
