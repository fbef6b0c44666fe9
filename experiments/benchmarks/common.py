"""What the benchmarks share: contenders in processes of their own, in turn, and a table of medians and ratios."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

Job = Callable[[argparse.Namespace], dict[str, Any]]
"""Does the work and returns what it measured: at least `seconds`, for `bytes` of text."""


@dataclass(frozen=True)
class Result:
    """One contender's medians over the rounds."""

    name: str
    seconds: float
    cpu_seconds: float
    peak_mb: float
    facts: dict[str, Any]


def _child(job: Job, arguments: argparse.Namespace, out: Any) -> None:
    facts = job(arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    out.send(facts | {"cpu": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024})


def run(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs a job in a fresh process, so that neither memory nor caches of another one count for it."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(job, arguments, send))
    process.start()
    send.close()
    try:
        facts: dict[str, Any] = receive.recv()
    except EOFError:
        process.join()
        message = f"the contender {job.__name__} died with exit code {process.exitcode}"
        raise RuntimeError(message) from None
    process.join()
    return facts


def compare(jobs: dict[str, Job], arguments: argparse.Namespace) -> list[Result]:
    """All contenders in turn, as often as `arguments.rounds` says, so that drift of the machine hits all alike."""
    console = Console(stderr=True)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for number in range(arguments.rounds):
        for name, job in jobs.items():
            started = time.perf_counter()
            rounds[name].append(run(job, arguments))
            console.print(f"round {number + 1}: {name} ({time.perf_counter() - started:.1f} s)", style="dim")

    def median(name: str, key: str) -> float:
        return float(statistics.median(facts[key] for facts in rounds[name]))

    return [
        Result(name, median(name, "seconds"), median(name, "cpu"), median(name, "peak_mb"), rounds[name][-1])
        for name in jobs
    ]


CONSOLE = Console(width=max(Console().width, 140))
"""Wide enough for the tables, also where output goes to a file."""


def table(title: str, results: Sequence[Result], extra: Sequence[str] = ()) -> Table:
    """Medians, and each contender's time per byte as a multiple of the first one's (ours)."""
    rows = Table(title=title, caption=f"{os.cpu_count()} cores; medians; seconds by the clock, without imports")
    per_byte = [result.seconds / result.facts["bytes"] for result in results]
    for column in ("", "MB", "seconds", "per byte, times ours", "CPU seconds", "peak MB", *extra):
        rows.add_column(column, justify="left" if column == "" else "right")
    for result, time_per_byte in zip(results, per_byte, strict=True):
        rows.add_row(
            result.name,
            f"{result.facts['bytes'] / 1e6:.1f}",
            f"{result.seconds:.2f}",
            f"{time_per_byte / per_byte[0]:.2f}",
            f"{result.cpu_seconds:.1f}",
            f"{result.peak_mb:.0f}",
            *(str(result.facts.get(column, "")) for column in extra),
        )
    return rows


def parser(description: str) -> argparse.ArgumentParser:
    """Options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs")
    options.add_argument("--rounds", type=int, default=3, help="runs of each contender, in turn (default 3)")
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    options.add_argument("--max-bytes", type=int, default=None, help="use only so much text")
    return options
