"""`superbpe status [artifacts=FOLDER]`: artifacts with origin and cost; `--clean` removes unneeded ones.

An artifact is needed if a report shows it, or if a run used it whose folder (in `outputs/`) still exists; an unfinished
stage, if an unfinished run still has its folder. To clean up, delete the folders of old runs and reports, check the
list of `--clean`, and add `--yes`.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.arguments import Parser
from experiments.cli.console import finish
from experiments.numbers import duration, si
from experiments.progress import Lines, Reporter, Table, console, line, print_table, stderr
from experiments.store import inventory, records
from experiments.store.artifacts import Store
from experiments.store.inventory import DAMAGED, UNFINISHED, WHOLE, Item
from tokenizer.durable import remove_leftovers
from tokenizer.errors import UserError, counted, listed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tokenizer.progress import Progress


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser("status", __doc__, "some artifacts may have been removed; the others are intact")
    add = options.add_argument
    add("store", nargs="?", default="artifacts", metavar="artifacts=FOLDER", help="folder, or bucket: its copies here")
    add("--verify", action="store_true", help="compare every file with its checksum")
    add("--clean", action="store_true", help="list the artifacts that are not needed")
    add("--yes", action="store_true", help="with --clean: remove them")
    return options


def run(arguments: argparse.Namespace) -> None:
    """List the artifacts, or remove those that are not needed."""
    if arguments.yes and not arguments.clean:
        raise UserError("--yes removes what --clean lists; add --clean")
    if arguments.clean:
        _clean(arguments, _store(arguments))
        return
    reporter = Reporter(stderr)
    with reporter.stage("status"):
        store = _store(arguments, reporter.progress)
        items = inventory.take(store, verify=arguments.verify)
    _print(items, records.arm_labels(store))
    if not items:
        console.print("Runs keep their artifacts in artifacts/ unless artifacts=FOLDER chose another folder.")
    finish(then=[*_again(arguments), "--clean"] if _unneeded(items, _unfinished_runs(store)) else [])
    damaged = [item.name for item in items if item.state == DAMAGED]
    if arguments.verify and damaged:
        raise UserError(
            f"{len(damaged)} of {len(items)} artifacts are damaged: {', '.join(damaged)}; delete their folders and "
            "repeat the commands that made them"
        )


def _store(arguments: argparse.Namespace, progress: Progress | None = None) -> Store:
    """Return the store that the command line names."""
    key, equals, value = arguments.store.partition("=")
    if equals and key != "artifacts" and not Path(arguments.store).exists():
        raise UserError(f"cannot parse {arguments.store}; write artifacts=FOLDER")
    return Store.at(value if key == "artifacts" and equals else arguments.store, progress=progress)


def _again(arguments: argparse.Namespace) -> list[str]:
    return ["status", f"artifacts={arguments.store.removeprefix('artifacts=')}"]


def _print(items: list[Item], labels: Mapping[str, Sequence[str]]) -> None:
    """Print a table for each command, in the order in which they made their first artifact."""
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[item.manifest.command].append(item)
    for typed, group in sorted(groups.items(), key=lambda entry: min(item.manifest.made for item in entry[1])):
        started = min(item.manifest.made for item in group).replace("T", " ")[:16] or "unfinished"
        rows = [_cells(item, labels.get(item.name, ())) for item in group]
        header = ["artifact", "took", "disk", "memory", *(["state"] if any(row[4] for row in rows) else [])]
        print_table(Table(f"{started}  {typed}", header, rows, text=(0, 4)).cut(columns=len(header)))
        for item in group:
            if item.note:
                console.print(line(f"{item.name}: {item.note}", "yellow"), soft_wrap=True)
    console.print(_total(items), soft_wrap=True)


def _cells(item: Item, labels: Sequence[str]) -> list[str]:
    seconds, memory = item.manifest.seconds, item.manifest.peak_memory_bytes
    used = [f"of {', '.join(labels)}"] if labels else []
    origin = [item.name, *(f"  {text}" for text in (*used, *(f"needs {name}" for name in item.needs)))]
    state = ("" if item.needed else "not needed") if item.state == WHOLE else item.state
    took, peak = duration(seconds) if item.manifest.made else "", f"{si(memory)}B" if memory else ""
    return [Lines(*origin), took, f"{si(item.n_bytes)}B", peak, state]


def _total(items: list[Item]) -> str:
    total = sum(item.n_bytes for item in items)
    seconds = sum(item.manifest.seconds for item in items)
    free = [item for item in items if not item.needed]
    text = f"{len(items)} artifacts, {si(total)}B, {duration(seconds)} of work"
    if free:
        text += f"; {len(free)} of them are not needed or not usable ({si(sum(item.n_bytes for item in free))}B)"
    return text


def _clean(arguments: argparse.Namespace, store: Store) -> None:
    """List the artifacts that nothing needs, and with `--yes` remove them."""
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    with store.lock(records.CLEANING):
        living = list(records.living(store))
        if living and arguments.yes:
            raise UserError(f"{len(living)} runs are using {store.root} (in {living[0]}); wait for them or stop them")
        items = inventory.take(store)
        unneeded = _unneeded(items, runs := _unfinished_runs(store))
        for item in [*unneeded, *(item for item in items if item.state == UNFINISHED and runs)]:
            cost = f"{duration(item.manifest.seconds)} to make" if item.manifest.made else ""
            why = item.state if item.state in (DAMAGED, UNFINISHED) else "not needed by any run or report"
            if item.state == UNFINISHED and runs:
                why += f", kept: the commands of {listed(runs)} may resume it; delete these folders to remove it"
            size = f"{si(item.n_bytes)}B"
            console.print(line(f"{item.folder.name:<28} {size:>8}  {cost:>20}  {why}"), soft_wrap=True)
        if arguments.yes:
            remove_leftovers(store.root)
            unneeded = [item for item in unneeded if _remove(store, item)]
            for path, record in records.entries(store).items():
                if not record.exists():
                    path.unlink()
    total = f"{counted(len(unneeded), 'artifact')}, {si(sum(item.n_bytes for item in unneeded))}B"
    removed = f"removed {total}" if arguments.yes else f"{total} can be removed"
    console.print(removed if unneeded else "nothing to remove")
    if unneeded and not arguments.yes:
        finish(then=[*_again(arguments), "--clean", "--yes"])


def _unneeded(items: Sequence[Item], runs: Sequence[str]) -> list[Item]:
    return [item for item in items if not item.needed or (item.state == UNFINISHED and not runs)]


def _unfinished_runs(store: Store) -> list[str]:
    """Folders of the unfinished runs, any of which may have left an unfinished stage."""
    runs = [records.load(path) for path in records.entries(store).values() if path.exists()]
    return [run.folder for run in runs if run.status != "done"]


def _remove(store: Store, item: Item) -> bool:
    """Remove one folder unless another process is writing it."""
    with store.lock(item.name, wait=False) as free:
        if not free:
            console.print(line(f"{item.name} is in use and was not removed", "yellow"))
        else:
            store.remove(item.folder.name)
        return free
