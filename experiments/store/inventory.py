"""Inventory of a folder of artifacts, with the state, cost and inputs of each."""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.results import Folder
from experiments.store import records
from experiments.store.artifacts import NAME, PARTIAL, Store
from experiments.store.manifest import DAMAGE, MANIFEST, Manifest
from tokenizer.errors import UserError

WHOLE, DAMAGED, UNFINISHED, BUSY = "whole", "damaged", "unfinished", "in work"
"""States of an artifact. `unfinished`: left by an interrupted process. `in work`: being made now."""


@dataclass
class Item:
    """One folder of a store.

    Attributes:
        folder: The folder, which is hidden if it is unfinished.
        name: Name of the artifact, also for an unfinished folder.
        state: One of the states above.
        n_bytes: Size on disk.
        manifest: Contents of `manifest.json`; an empty one if it cannot be read.
        note: What is wrong.
        needs: Names of its existing inputs.
        needed: Whether a report, or a run whose folder exists, needs it.
    """

    folder: Path
    name: str
    state: str
    n_bytes: int
    manifest: Manifest = field(default_factory=lambda: Manifest("", "", 0, {}, {}, {}))
    note: str = ""
    needs: list[str] = field(default_factory=list)
    needed: bool = False


def take(store: Store, *, verify: bool = False) -> list[Item]:
    """Return everything in the folder of a store, in the order in which it was made.

    Args:
        store: The store.
        verify: Compare every file with its checksum.
    """
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    items = []
    for path in store.root.iterdir():
        hidden = re.fullmatch(rf"\.({NAME})(\.download)?{re.escape(PARTIAL)}", path.name)
        if not path.is_dir():
            if hidden is not None or re.fullmatch(NAME, path.name):
                warnings.warn(f"ignored: {path} is not a folder; remove it", stacklevel=2)
            continue
        n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if hidden is not None:
            with store.lock(hidden[1], wait=False) as free:
                items.append(Item(path, hidden[1], UNFINISHED if free else BUSY, n_bytes, needed=True))
        elif re.fullmatch(NAME, path.name) or (path / MANIFEST).exists():
            items.append(_finished(store, Item(path, path.name, WHOLE, n_bytes), verify))
    whole = {item.name: item for item in items if item.state == WHOLE}
    _link(whole)
    waiting = [name for name, item in whole.items() if item.manifest.stage == "report"]
    for record in records.entries(store).values():
        if record.exists():
            waiting += records.load(record).artifacts
    while waiting:
        item = whole.get(waiting.pop())
        if item is not None and not item.needed:
            item.needed = True
            waiting += item.needs
    return sorted(items, key=lambda item: (item.manifest.made or "~", item.name))


def _finished(store: Store, item: Item, verify: bool) -> Item:
    try:
        (artifact,) = store.open_all([item.name], Folder)
        item.manifest = artifact.manifest
        if verify:
            replace(store, verify="always").check(artifact)
    except UserError as error:
        item.state, item.note = DAMAGED, str(error)
        with suppress(OSError, *DAMAGE):
            item.manifest = Manifest.read(store.root / item.name)
    return item


def _link(whole: dict[str, Item]) -> None:
    """Find the inputs of each artifact, which are recorded by hash.

    A tokenizer is named by its content, and its training record points to it. So an artifact that needs the tokenizer
    also needs the record, and the merge list that the tokenizer was cut from.
    """
    by_hash = {item.manifest.hash: name for name, item in whole.items()}
    for item in whole.values():
        needs = {by_hash.get(hash_, "") for hash_ in item.manifest.inputs.values()}
        needs.add(str(item.manifest.contents.get("tokenizer")))
        for name, other in whole.items() if item.manifest.stage == "tokenizer" else ():
            training = other.manifest
            points = training.contents.get("tokenizer") == item.name or training.inputs == item.manifest.inputs
            if "bpe" in training.stage and points:
                needs.add(name)
        item.needs = sorted((needs & whole.keys()) - {item.name})
