"""`superbpe status [artifacts=FOLDER]`: list artifacts with their origin and cost; `--clean` removes unneeded ones.

An artifact is needed if a report shows it, or if a run used it whose folder (in `outputs/`) still exists. To clean up,
delete the folders of old runs and reports, check the list of `--clean`, and add `--yes`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from experiments.cli.arguments import Parser
from experiments.cli.console import Reporter, console, duration, finish, si, stderr
from experiments.store import inventory, registry
from experiments.store.artifacts import Store
from experiments.store.inventory import DAMAGED, OUTDATED, UNFINISHED, WHOLE, Item
from tokenizer.errors import UserError
from tokenizer.files import without_credentials

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tokenizer.progress import Progress

_WHY = {
    WHOLE: "not needed by any run or report",
    DAMAGED: "damaged",
    OUTDATED: "written in another format, not usable",
}


def parser() -> Parser:
    """Arguments of the command."""
    options = Parser(
        "status",
        "Lists artifacts by the command that made them, with cost, state and inputs; --clean removes those that are "
        "not needed. An artifact is needed if a report shows it, or if a run used it whose folder (in outputs/) still "
        "exists: delete the folders of old runs and reports first.",
        "some artifacts may have been removed; the others are intact",
    )
    add = options.add_argument
    add("store", nargs="?", default="artifacts", metavar="artifacts=FOLDER", help="the folder")
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
    _print(items, registry.arm_labels(store))
    finish(then=["status", arguments.store, "--clean"])
    damaged = [item.name for item in items if item.state == DAMAGED]
    if arguments.verify and damaged:
        raise UserError(
            f"{len(damaged)} of {len(items)} artifacts are damaged: {', '.join(damaged)}; delete their folders and "
            "repeat the commands that made them"
        )


def _store(arguments: argparse.Namespace, progress: Progress | None = None) -> Store:
    """Return the store that the command line names."""
    key, equals, value = arguments.store.partition("=")
    if equals and key != "artifacts":
        raise UserError(f"cannot parse {without_credentials(arguments.store)}; write artifacts=FOLDER")
    return Store.at(value if equals else key, progress=progress)


def _print(items: list[Item], labels: Mapping[str, Sequence[str]]) -> None:
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        groups[_first_made(items, item), item.command].append(item)
    for (made, typed), group in sorted(groups.items()):
        title = made.replace("T", " ")[:16] or "unfinished"
        console.print(Text.assemble((title, "bold"), f"  {typed}"), soft_wrap=True)
        console.print(_table(group, labels))
        for item in group:
            if item.note:
                console.print(Text(f"{item.name}: {item.note}", style="yellow"), soft_wrap=True)
    console.print(_total(items), soft_wrap=True)


def _first_made(items: list[Item], item: Item) -> str:
    """Time when the command made its first artifact; commands are listed in that order."""
    return min((each.made for each in items if item.command and each.command == item.command), default="")


def _table(group: list[Item], labels: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    table.add_column("artifact", no_wrap=True)
    for name in ("took", "disk", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for item in group:
        memory = None if item.manifest is None else item.manifest.peak_memory_bytes
        used = [f"of {', '.join(labels[item.name])}"] if item.name in labels else []
        origin = [item.name, *used, *(f"needs {name}" for name in item.needs)]
        state = "other format" if item.state == OUTDATED else item.state
        if item.state == WHOLE:
            state = "" if item.needed else "not needed"
        table.add_row(
            Text("\n  ".join(origin)),  # one per line, so that names fit any terminal
            "" if item.seconds is None else duration(item.seconds),
            f"{si(item.n_bytes)}B",
            "" if memory is None else f"{si(memory)}B",
            state,
        )
    return table


def _total(items: list[Item]) -> str:
    total = sum(item.n_bytes for item in items)
    seconds = sum(item.seconds or 0.0 for item in items)
    free = [item for item in items if not item.needed]
    text = f"{len(items)} artifacts, {si(total)}B, {duration(seconds)} of work"
    if free:
        text += f"; {len(free)} of them are not needed or not usable ({si(sum(item.n_bytes for item in free))}B)"
    return text


def _clean(arguments: argparse.Namespace, store: Store) -> None:
    """List the artifacts that nothing needs, and with `--yes` remove them."""
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    with registry.no_new_runs(store):
        alive = [entry for entry in registry.entries(store) if entry.alive]
        if alive and arguments.yes:
            raise UserError(
                f"{len(alive)} runs are using {store.root} (in {alive[0].folder}); wait for them or stop them"
            )
        items = inventory.take(store)
        unneeded = [item for item in items if not item.needed]
        for item in unneeded:
            cost = "" if item.seconds is None else f"{duration(item.seconds)} to make"
            line = f"{item.name:<28} {si(item.n_bytes) + 'B':>8}  {cost:>20}  {_WHY[item.state]}"
            console.print(Text(line), soft_wrap=True)
        if arguments.yes:
            unneeded = [item for item in unneeded if _remove(store, item)]
            for entry in registry.entries(store):
                if not entry.record.exists():
                    entry.path.unlink()
    total = f"{len(unneeded)} artifact{'s' * (len(unneeded) > 1)}, {si(sum(item.n_bytes for item in unneeded))}B"
    removed = f"removed {total}" if arguments.yes else f"{total} can be removed"
    console.print(removed if unneeded else "nothing to remove")
    if waiting := [item for item in items if item.state == UNFINISHED]:
        stages = f"{len(waiting)} unfinished stages ({si(sum(item.n_bytes for item in waiting))}B)"
        console.print(f"{stages} can be resumed with the same command; delete their folders to start from scratch")
    left = unneeded and not arguments.yes
    finish(then=["status", arguments.store, *(["--clean", "--yes"] if left else [])])


def _remove(store: Store, item: Item) -> bool:
    """Remove one folder unless another process is writing it."""
    with store.if_free(item.name) as free:
        if not free:
            console.print(f"{item.name} is in use and was not removed", style="yellow")
        else:
            store.remove(item.name)
        return free
