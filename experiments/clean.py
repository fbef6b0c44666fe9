"""Remove artifacts that are not needed: `python -m experiments.clean [artifacts=FOLDER] [--yes]`.

An artifact is needed if a report shows it, or if a run used it whose folder (in `outputs/`) still exists. To clean up,
delete the folders of old runs, name old reports with `--drop`, check the list, and add `--yes`.
"""

from __future__ import annotations

import argparse
import sys

from rich.text import Text

from experiments.cli.console import console, duration, finish, si
from experiments.cli.options import Parser, command
from experiments.status import add_store, store_of
from experiments.store import inventory, registry
from experiments.store.artifacts import Store
from experiments.store.inventory import BUSY, DAMAGED, LEFTOVER, OUTDATED, UNFINISHED, WHOLE, Item
from tokenizer import storage
from tokenizer.errors import UserError

_WHY = {
    WHOLE: "not needed by any run or report",
    DAMAGED: "damaged",
    OUTDATED: "written in another format, not usable",
    LEFTOVER: "left by a killed process",
    UNFINISHED: "unfinished",
}


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "clean",
        "Removes artifacts that are not needed. An artifact is needed if a report shows it, or if a run "
        "used it whose folder (in outputs/) still exists: delete folders of old runs first. Without --yes, lists them.",
    )
    add_store(options)
    options.add_argument("--yes", action="store_true", help="remove the listed artifacts")
    options.add_argument("--drop", nargs="+", default=[], metavar="NAME", help="artifacts to remove, such as reports")
    options.add_argument("--keep", nargs="+", default=[], metavar="NAME", help="artifacts to keep, with their inputs")
    options.add_argument(
        "--unfinished", action="store_true", help="also remove unfinished stages, which could still be resumed"
    )
    return options


def _run(arguments: argparse.Namespace) -> None:
    store = store_of(arguments)
    if not store.root.is_dir():
        raise UserError(f"artifacts={store.root}: no such folder; write artifacts=FOLDER")
    with registry.no_new_runs(store):
        alive = [entry for entry in registry.entries(store) if entry.alive]
        if alive and arguments.yes:
            raise UserError(
                f"{len(alive)} runs are using {store.root} (in {alive[0].folder}); wait for them or stop them"
            )
        items = inventory.take(store, arguments.keep, arguments.drop)
        doomed = [item for item in items if _goes(item, unfinished=arguments.unfinished)]
        for item in doomed:
            cost = "" if item.seconds is None else f"{duration(item.seconds)} to make"
            why = "you named it with --drop" if item.name in arguments.drop else _WHY[item.state]
            line = f"{item.name:<28} {si(item.n_bytes) + 'B':>8}  {cost:>20}  {why}"
            console.print(Text(line), soft_wrap=True)
        if arguments.yes:
            doomed = [item for item in doomed if _remove(store, item)]
            _forget(store)
    if doomed:
        told = f"{len(doomed)} artifact{'s' * (len(doomed) > 1)}, {si(sum(item.n_bytes for item in doomed))}B"
        console.print(f"removed {told}" if arguments.yes else f"{told} can be removed")
    else:
        console.print("nothing to remove")
    waiting = [item for item in items if item.state == UNFINISHED and item not in doomed]
    if waiting:
        n_bytes = si(sum(item.n_bytes for item in waiting))
        stages = f"{len(waiting)} unfinished stage{'s' * (len(waiting) > 1)}"
        console.print(f"{stages} ({n_bytes}B) can be resumed with the same command; --unfinished removes them too")
    left = doomed and not arguments.yes
    finish(then=["clean", *arguments.store, "--yes"] if left else ["status", *arguments.store])


def _goes(item: Item, *, unfinished: bool) -> bool:
    return item.state != BUSY and (not item.needed or (unfinished and item.state == UNFINISHED))


def _remove(store: Store, item: Item) -> bool:
    """Remove one folder unless another process is writing it."""
    with store.if_free(item.name) as free:
        if not free:
            console.print(f"{item.name} is in use and was not removed", style="yellow")
        elif item.path.name.startswith("."):
            storage.disk.remove_folder(item.path)
        else:
            store.remove(item.name)
        return free


def _forget(store: Store) -> None:
    """Remove runs whose folders no longer exist from the registry."""
    for entry in registry.entries(store):
        if not entry.record.exists():
            registry.forget(store, entry)


run = command(parser, _run, "some artifacts may have been removed; the others are intact")


if __name__ == "__main__":
    sys.exit(run())
