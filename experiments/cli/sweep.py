"""Sweeps (`--multirun`): how cells share the cores, and the table of their results."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from experiments.cli.console import console, duration, print_table, signed, stderr
from experiments.store import runs
from experiments.store.manifest import command_line
from tokenizer import storage
from tokenizer.durable import write_json, write_whole
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.store.runs import Run

_INTERVALS = {"interval": ("low", "high"), "difference_interval": ("difference_low", "difference_high")}
_NOT_NUMBERS = ("key", "label", "settings")
SUMMARY, TABLE = "sweep.json", "sweep.csv"


class Shares(NamedTuple):
    """How the cells of a sweep share a machine's cores.

    Attributes:
        overrides: Overrides to add to the command line.
        warning: Warning for the user, or empty.
    """

    overrides: list[str]
    warning: str = ""


def share_out(
    launcher: Mapping[str, Any],
    name: str,
    n_cells: int,
    threads: int | None,
    *,
    explicit: bool,
    cores: int | None = None,
) -> Shares:
    """Choose how many cells run at a time and how many threads each has, without exceeding the number of cores.

    Args:
        launcher: Hydra's settings of the launcher.
        name: Name of the launcher: `basic`, `joblib`, `submitit_local`, `submitit_slurm`.
        n_cells: Number of cells of the sweep.
        threads: `runner.threads`; None for all cores.
        explicit: Whether the user chose `hydra.launcher.n_jobs`.
        cores: Number of cores; None for those that this process may use.
    """
    cores = cores or thread_count(None)
    if name == "joblib":
        jobs = int(launcher["n_jobs"])
        jobs = max(1, cores + 1 + jobs) if jobs < 0 else jobs  # -1 is all cores, -2 all but one
        if threads is not None and not explicit:
            jobs = min(jobs, max(1, cores // threads))
        jobs = min(jobs, n_cells)
        each = threads or max(1, cores // jobs)
        warning = (
            f"{jobs} cells with {each} threads each compete for {cores} cores; leave out hydra.launcher.n_jobs or "
            "runner.threads to divide the cores automatically"
        )
        overrides = [f"hydra.launcher.n_jobs={jobs}", f"runner.threads={each}"]
        return Shares(overrides, warning if jobs * each > cores else "")
    if name.startswith("submitit") and threads is None:
        if (asked := launcher.get("cpus_per_task")) is not None:
            return Shares([f"runner.threads={asked}"])
        if name == "submitit_local":  # starts all cells at once
            return Shares([f"runner.threads={max(1, cores // n_cells)}"])
    return Shares([])


def number_of_cells(swept: Mapping[str, Sequence[str]]) -> int:
    """Return the number of combinations of all swept values."""
    return math.prod(len(values) for values in swept.values())


def begin(folder: Path) -> None:
    """Remove the records of an earlier sweep into the same folder."""
    for path in folder.rglob(runs.RECORD):
        storage.disk.remove(path)


def finish(folder: Path, n_cells: int, *, stopped: bool = False) -> list[Run]:
    """Print the results of a sweep, and write them to `sweep.json` and `sweep.csv`.

    Args:
        folder: Folder of the sweep.
        n_cells: Number of cells that the sweep should have.
        stopped: Whether the user stopped the sweep and thereby its cells.

    Returns:
        The cells that were started.
    """
    cells = runs.find(folder)
    for cell in cells:
        if cell.status == "running" and stopped:
            cell.status, cell.exit_code = "interrupted", 130
        elif cell.status == "running":  # the process ended without writing its status
            cell.status, cell.exit_code, cell.error = "failed", 1, "the process of this cell was killed"
    if not cells:
        return cells
    write_json(
        folder / SUMMARY,
        {"command": command_line(), "n_cells": n_cells, "cells": [dataclasses.asdict(cell) for cell in cells]},
    )
    rows = [flat(cell) for cell in cells]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows(rows)
    write_whole(folder / TABLE, table.getvalue())
    _show(cells, folder, n_cells)
    return cells


def flat(cell: Run) -> dict[str, Any]:
    """Return a cell as a row of the CSV table: a column per swept key, and several per tokenizer."""
    row: dict[str, Any] = {"cell": cell.number}
    row |= {key: value for key, _, value in (text.partition("=") for text in cell.swept)}
    row |= {"status": cell.status, "exit_code": cell.exit_code, "seconds": cell.seconds, "error": cell.error}
    if cell.results is not None:
        for arm in cell.results.arms:
            found = dataclasses.asdict(arm)
            numbers = {name: value for name, value in found.items() if name not in (*_NOT_NUMBERS, *_INTERVALS)}
            for interval, ends in _INTERVALS.items():
                numbers |= dict(zip(ends, found[interval] or (None, None), strict=True))
            row |= {f"{arm.key}.{name}": value for name, value in numbers.items()}
    return {**row, "report": cell.report, "folder": cell.folder}


def _show(cells: Sequence[Run], folder: Path, n_cells: int) -> None:
    keys = list(dict.fromkeys(text.partition("=")[0] for cell in cells for text in cell.swept))
    numbers = (
        ["bytes per token", "bits per byte", "interval", "against first"] if any(cell.results for cell in cells) else []
    )
    rows = []
    for cell in cells:
        values = dict(text.split("=", 1) for text in cell.swept)
        settings = [str(cell.number), *(values.get(key, "") for key in keys)]
        if not cell.results:
            state = duration(cell.seconds or 0) if cell.status == "done" else cell.status
            rows.append([*settings, state, *([""] * len(numbers))])
        for place, found in enumerate(cell.results.arms if cell.results else []):
            measured = [
                f"{found.bytes_per_token:.3f}",
                f"{found.bits_per_byte:.4f}",
                "{:.4f}–{:.4f}".format(*found.interval) if found.interval else "–",
                "" if found.difference is None else signed(found.difference) + ("*" if found.withheld else ""),
            ]
            rows.append([*([""] * len(settings) if place else settings), found.label, *measured])
    console.print()
    print_table("Sweep", ["", *_names(keys), "", *numbers], rows, text=range(len(keys) + 2), compact=True)
    arms = [arm for cell in cells if cell.results for arm in cell.results.arms]
    for reason in dict.fromkeys(arm.withheld for arm in arms if arm.withheld):
        console.print(Text(f"* no verdict about the tokenizers: {reason}"), soft_wrap=True)
    for cell in cells:
        if cell.report:
            console.print(Text(f"report of cell {cell.number}: {cell.report}"), soft_wrap=True)
    console.print(Text(f"the table as data: {folder / SUMMARY}, {folder / TABLE}"), soft_wrap=True)
    _complain(cells, n_cells)


def _names(keys: Sequence[str]) -> list[str]:
    """Shorten keys to their last part where that is unambiguous."""
    last = [key.rpartition(".")[2] for key in keys]
    return [name if last.count(name) == 1 else key for name, key in zip(last, keys, strict=True)]


def _complain(cells: Sequence[Run], n_cells: int) -> None:
    """Print which cells failed, and why."""
    failed = [cell for cell in cells if cell.status == "failed"]
    for cell in failed:
        where = f"cell {cell.number} ({' '.join(cell.swept)}): {cell.error} (exit code {cell.exit_code})"
        stderr.print(Text(where), style="red", soft_wrap=True)
    unfinished = n_cells - sum(cell.status in ("done", "failed") for cell in cells)
    facts = [f"{len(failed)} of {n_cells} cells failed"] if failed else []
    facts += [f"{unfinished} of {n_cells} cells did not finish"] if unfinished else []
    if facts:
        told = f"{'; '.join(facts)}; the same command repeats only what is missing"
        stderr.print(told, style="red", soft_wrap=True)
