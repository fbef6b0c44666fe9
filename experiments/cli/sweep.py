"""Sweeps (`--multirun`): how cells share the cores, and the table of their results."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from experiments.cli.console import finish
from experiments.numbers import duration, signed
from experiments.progress import Table, console, line, print_table, stderr
from experiments.store import records
from experiments.store.manifest import command_line
from tokenizer.durable import write_json
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.store.records import Record


def share_out(launcher: Mapping[str, Any], name: str, n_cells: int, threads: int | None) -> list[str]:
    """Return the overrides that divide a machine's cores among the cells of a sweep that run at the same time.

    Args:
        launcher: Hydra's settings of the launcher.
        name: Name of the launcher; only `joblib` runs cells at the same time on this machine.
        n_cells: Number of cells of the sweep.
        threads: `runner.threads`; None for all cores.
    """
    if name != "joblib":
        return []
    cores, jobs = thread_count(None), int(launcher["n_jobs"])
    if jobs < 0:  # -1 is all cores, -2 all but one
        jobs = max(1, min(cores + 1 + jobs, cores // (threads or 1)))
    jobs = min(jobs, n_cells)
    return [f"hydra.launcher.n_jobs={jobs}", f"runner.threads={threads or max(1, cores // jobs)}"]


def summarize(folder: Path, n_cells: int, *, stopped: bool = False) -> list[Record]:
    """Print the results of a sweep, and write them to `sweep.json`.

    Args:
        folder: Folder of the sweep.
        n_cells: Number of cells that the sweep should have.
        stopped: Whether the user stopped the sweep and thereby its cells.

    Returns:
        The cells that were started.
    """
    cells = records.cells(folder)
    for cell in cells:
        if cell.status == "running" and stopped:
            cell.status, cell.exit_code = "interrupted", 130
        elif cell.status == "running":  # the process ended without writing its status
            cell.status, cell.exit_code, cell.error = "failed", 1, "the process of this cell was killed"
    if not cells:
        return cells
    summary = {"command": command_line(), "n_cells": n_cells, "cells": [dataclasses.asdict(cell) for cell in cells]}
    path = folder / "sweep.json"
    write_json(path, summary)
    _print_cells(cells)
    finish(path, then=["compare", folder] if any(cell.results for cell in cells) else ())
    failed = [cell for cell in cells if cell.status == "failed"]
    for cell in failed:
        why = f"cell {cell.number} ({' '.join(cell.swept)}): {cell.error} (exit code {cell.exit_code})"
        stderr.print(line(why, "red"), soft_wrap=True)
    unfinished = n_cells - sum(cell.status in ("done", "failed") for cell in cells)
    facts = [f"{len(failed)} of {n_cells} cells failed"] if failed else []
    facts += [f"{unfinished} of {n_cells} cells did not finish"] if unfinished else []
    if facts:
        facts[-1] += "; the same command repeats only what is missing"
        stderr.print(line("; ".join(facts), "red"), soft_wrap=True)
    return cells


def _print_cells(cells: Sequence[Record]) -> None:
    keys = list(dict.fromkeys(text.partition("=")[0] for cell in cells for text in cell.swept))
    arms = [arm for cell in cells if cell.results for arm in cell.results.arms]
    numbers = ["bytes per token", "bits per byte", "against the reference, %", "verdict"] if arms else []
    rows, printed = [], set[tuple[Any, ...]]()
    for cell in cells:
        values = dict(text.split("=", 1) for text in cell.swept)
        settings = [str(cell.number), *(values.get(key, "") for key in keys)]
        # An arm that cells share, and its difference, are printed once.
        told = {(*arm.evaluations, arm.percent, arm.verdict): arm for arm in cell.results.arms} if cell.results else {}
        fresh = [arm for key, arm in told.items() if key not in printed]
        printed |= told.keys()
        if not fresh:
            state: str = cell.status
            if state == "done":
                state = "as above" if told else duration(cell.seconds or 0)
            rows.append([*settings, state, *([""] * len(numbers))])
        for place, arm in enumerate(fresh):
            change = "" if arm.percent is None else signed(arm.percent, 2)
            if arm.percent_interval is not None:
                change += " ({} to {})".format(*(signed(end, 2) for end in arm.percent_interval))
            measured = [f"{arm.bytes_per_token:.3f}", f"{arm.bits_per_byte:.4f}", change, arm.verdict]
            rows.append([*([""] * len(settings) if place else settings), arm.label, *measured])
    last = [key.rpartition(".")[2] for key in keys]
    names = [name if last.count(name) == 1 else key for name, key in zip(last, keys, strict=True)]
    print_table(Table("Sweep", ["", *names, "", *numbers], rows, text=range(len(keys) + 2)))
    for reason in dict.fromkeys(arm.withheld for arm in arms if arm.withheld):
        console.print(line(f"no verdict about the tokenizers: {reason}"), soft_wrap=True)
    for cell in (cell for cell in cells if cell.report):
        console.print(line(f"report of cell {cell.number}: {cell.report}"), soft_wrap=True)
