"""List the artifacts in a folder, with their origin and cost: `python -m experiments.status [artifacts=FOLDER]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from experiments.cli.console import Reporter, console, duration, finish, si, stderr
from experiments.cli.options import Parser, command
from experiments.store import inventory, registry
from experiments.store.artifacts import Store
from experiments.store.inventory import DAMAGED, OUTDATED, WHOLE, Item
from tokenizer.errors import UserError
from tokenizer.progress import Progress
from tokenizer.urls import without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "status",
        "Lists artifacts by the command that made them, with cost, state and inputs.",
    )
    add_store(options)
    options.add_argument("--verify", action="store_true", help="compare every file with its checksum")
    options.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return options


def add_store(options: argparse.ArgumentParser) -> None:
    """Add the argument for the folder, written as in the other commands."""
    options.add_argument(
        "store",
        nargs="*",
        metavar="artifacts=FOLDER",
        help="folder or URL of the artifacts (artifacts=artifacts); for a URL, artifacts_cache=FOLDER may follow",
    )


def store_of(arguments: argparse.Namespace, progress: Progress | None = None) -> Store:
    """Return the store that the command line names."""
    values = {"artifacts": "artifacts", "artifacts_cache": None}
    for text in arguments.store:
        key, _, value = text.partition("=") if "=" in text else ("artifacts", "", text)
        if key not in values:
            raise UserError(f"cannot parse {without_credentials(text)}; write artifacts=FOLDER")
        values[key] = value
    return Store.at(values["artifacts"] or "", values["artifacts_cache"], progress=progress)


def _run(arguments: argparse.Namespace) -> None:
    reporter = Reporter(stderr)
    with reporter.stage("status"):
        items = inventory.take(store_of(arguments, reporter.progress), verify=arguments.verify)
    if arguments.json:
        print(json.dumps([_row(item) for item in items], indent=2, ensure_ascii=False))
    else:
        _print(items, registry.arm_labels(store_of(arguments)))
        finish(then=["clean", *arguments.store])
    damaged = [item.name for item in items if item.state == DAMAGED]
    if arguments.verify and damaged:
        raise UserError(
            f"{len(damaged)} of {len(items)} artifacts are damaged: {', '.join(damaged)}; delete their folders and "
            "repeat the commands that made them"
        )


def _print(items: list[Item], labels: Mapping[str, Sequence[str]]) -> None:
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        groups[_first_made(items, item), item.command].append(item)
    for (made, typed), group in sorted(groups.items()):
        console.print(
            Text.assemble((made.replace("T", " ")[:16] or "unfinished", "bold"), f"  {typed}"), soft_wrap=True
        )
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
        table.add_row(
            Text("\n  ".join(_origin(item, labels))),  # one per line, so that names fit any terminal
            "" if item.seconds is None else duration(item.seconds),
            f"{si(item.n_bytes)}B",
            "" if memory is None else f"{si(memory)}B",
            state(item),
        )
    return table


def _origin(item: Item, labels: Mapping[str, Sequence[str]]) -> list[str]:
    """Name of an artifact, the arms that used it, and its inputs."""
    used = [f"of {', '.join(labels[item.name])}"] if item.name in labels else []
    return [item.name, *used, *(f"needs {name}" for name in item.needs)]


def state(item: Item) -> str:
    """Describe the state of an artifact and whether it is needed."""
    if item.state == WHOLE:
        return "" if item.needed else "not needed"
    return "other format" if item.state == OUTDATED else item.state


def _total(items: list[Item]) -> str:
    total = sum(item.n_bytes for item in items)
    seconds = sum(item.seconds or 0.0 for item in items)
    free = [item for item in items if not item.needed]
    told = f"{len(items)} artifacts, {si(total)}B, {duration(seconds)} of work"
    if free:
        told += (
            f"; {len(free)} of them are not needed or not usable ({si(sum(item.n_bytes for item in free))}B): "
            "`superbpe clean` lists and removes them"
        )
    return told


def _row(item: Item) -> dict[str, Any]:
    row = dataclasses.asdict(item)
    del row["manifest"]
    memory = None if item.manifest is None else item.manifest.peak_memory_bytes
    facts = {"made": item.made, "command": item.command, "peak_memory_bytes": memory}
    return {**row, "path": str(item.path), "stage": item.stage, **facts}


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
