"""Shared by the benchmarks: contenders in separate processes, run in turn, their text, and a table of medians."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from experiments.benchmarks.peers_jobs import memory_mb
from experiments.cli.console import exit_code
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError

T = TypeVar("T")
Job = Callable[[argparse.Namespace], dict[str, Any]]
"""Does the work and returns its measurements: at least `seconds`, and `bytes` of text."""

CONSOLE = Console(width=max(Console().width, 160))
"""Wide enough for the tables, even if the output goes to a file."""

SEPARATOR = "<|endoftext|>"
"""Separator between documents in plain text."""


@dataclass(frozen=True)
class Result:
    """One contender's measurements, round by round."""

    name: str
    rounds: list[dict[str, Any]]

    def median(self, key: str) -> float:
        """Median over the rounds."""
        return float(statistics.median(facts[key] for facts in self.rounds))

    def least(self, key: str) -> float:
        """Minimum over the rounds."""
        return float(min(facts[key] for facts in self.rounds))

    @property
    def facts(self) -> dict[str, Any]:
        """Measurements of the last round."""
        return self.rounds[-1]


def _measured(job: Callable[..., T], arguments: tuple[Any, ...]) -> tuple[T, dict[str, float]]:
    result = job(*arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return result, {"cpu": usage.ru_utime + usage.ru_stime, "peak_mb": memory_mb("VmHWM")}


def fresh(job: Callable[..., T], *arguments: Any) -> tuple[T, dict[str, float]]:
    """Run a job in a fresh process, so that memory and caches of other jobs do not affect it.

    Returns:
        The job's result, and its CPU seconds and peak memory.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, job, arguments).result()


def run(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run a job in a fresh process; return its measurements with `cpu` and `peak_mb`."""
    facts, usage = fresh(job, arguments)
    return facts | usage


def in_turn(contenders: Mapping[str, Callable[[], dict[str, Any]]], rounds: int) -> list[Result]:
    """Run all contenders in turn, round after round, so that drift of the machine affects all of them equally."""
    console = Console(stderr=True)
    results = [Result(name, []) for name in contenders]
    for number in range(rounds):
        for result, contender in zip(results, contenders.values(), strict=True):
            started = time.perf_counter()
            result.rounds.append(contender())
            console.print(f"round {number + 1}: {result.name} ({time.perf_counter() - started:.1f} s)", style="dim")
    return results


def table(title: str, results: Sequence[Result], extra: Sequence[str] = ()) -> Table:
    """Return medians, and each contender's time per byte relative to the first one (ours)."""
    rows = Table(title=title, caption=f"{os.cpu_count()} cores; medians; seconds by the clock, without imports")
    per_byte = [result.median("seconds") / result.facts["bytes"] for result in results]
    for column in ("", "MB", "seconds", "per byte, times ours", "CPU seconds", "peak MB", *extra):
        rows.add_column(column, justify="left" if column == "" else "right")
    for result, time_per_byte in zip(results, per_byte, strict=True):
        rows.add_row(
            result.name,
            f"{result.facts['bytes'] / 1e6:.1f}",
            f"{result.median('seconds'):.2f}",
            f"{time_per_byte / per_byte[0]:.2f}",
            f"{result.median('cpu'):.1f}",
            f"{result.median('peak_mb'):.0f}",
            *(str(result.facts.get(column, "")) for column in extra),
        )
    return rows


def parser(description: str, *, several_sizes: bool = False, paths: str = "+") -> argparse.ArgumentParser:
    """Return the options of all benchmarks, `paths` times a path; `--max-bytes` is a list with `several_sizes`."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument(
        "paths", nargs=paths, help="text: .txt, .jsonl[.gz|.zst] or .parquet files, directories, globs"
    )
    options.add_argument("--rounds", type=positive, default=3, help="runs of each contender, in turn (default 3)")
    options.add_argument("--field", default="text", help="field that holds the text (default text)")
    sizes: dict[str, Any] = {"nargs": "+", "default": [None]} if several_sizes else {"default": None}
    words = "; several give a table by size" if several_sizes else ""
    options.add_argument("--max-bytes", type=size, metavar="SIZE", help=f"10MB, or all (default){words}", **sizes)
    return options


def command(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Make a user error in a benchmark's entry point one line and exit code 2, as in the commands."""
    return functools.wraps(main)(lambda argv: exit_code(lambda: main(argv)))


def add_peers(options: argparse.ArgumentParser, names: Sequence[str], words: str, cached: str) -> None:
    """Add the options of benchmarks that compare with other software; `parse_peers` reads them.

    Args:
        options: Options from `parser`.
        names: Names of the peers.
        words: Text before the names in the help.
        cached: What is stored in `--cache`.
    """
    options.add_argument(
        "--peers", nargs="*", default=list(names), choices=[*names, "none"], help=f"{words} (default {' '.join(names)})"
    )
    options.add_argument("--cache", type=Path, default=Path("artifacts/benchmarks"), help=f"for {cached}")
    options.add_argument("--peers-venv", type=Path, default=None, help="for the peers (default CACHE/peers-venv)")


def parse_peers(options: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; `peers` is empty for `--peers none`."""
    arguments = options.parse_args(argv)
    arguments.peers = [peer for peer in arguments.peers if peer != "none"]
    arguments.peers_venv = arguments.peers_venv or arguments.cache / "peers-venv"
    return arguments


def positive(text: str) -> int:
    """Parse a positive integer option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number


def size(text: str) -> int | None:
    """Parse a size in bytes: 5000000, 5MB, 5e6; `all` is None.

    >>> size("1.5MB")
    1500000
    """
    if text == "all":
        return None
    number, unit = (text[:-2], text[-2:]) if text[-2:] in ("kB", "MB", "GB") else (text, "")
    try:
        value = int(float(number) * {"": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit])
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; use for example 100MB, or all")
    return value


def cached(cache: Path, name: str, key: Any, write: Callable[[Path], object]) -> Path:
    """Return the folder of a JSON-able key in `cache`; `write` fills it if it does not exist."""
    folder = cache / f"{name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        unfinished = folder.with_suffix(f".{os.getpid()}")
        unfinished.mkdir(parents=True)
        try:
            write(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class PlainText:
    """Documents as plain text, for contenders that cannot read other formats.

    Every document ends with a line feed. `lines` contains them end to end, for contenders that read line by line;
    `documents` contains them with `SEPARATOR` in between.
    """

    lines: Path
    documents: Path
    n_bytes: int

    @classmethod
    def of(cls, corpus: Corpus, cache: Path) -> PlainText:
        """Write the text into `cache`, unless it exists.

        Raises:
            UserError: If the corpus cannot be read, or the separator occurs in it.
        """
        folder = cached(cache, "text", [corpus.identity(), SEPARATOR], lambda folder: cls._write(corpus, folder))
        lines = folder / "lines.txt"
        return cls(lines, folder / "documents.txt", lines.stat().st_size)

    @staticmethod
    def _write(corpus: Corpus, folder: Path) -> None:
        separator = SEPARATOR.encode()
        with (folder / "lines.txt").open("wb") as lines, (folder / "documents.txt").open("wb") as documents:
            between = b""
            for batch in corpus.batches():
                data, offsets = batch.data.tobytes(), batch.offsets
                if separator in data:
                    raise UserError(
                        f"the text contains {SEPARATOR}, which separates documents here; remove those documents"
                    )
                for start, end in pairwise(offsets):
                    document = data[start:end] if data[end - 1 : end] == b"\n" else data[start:end] + b"\n"
                    lines.write(document)
                    documents.write(between + document)
                    between = separator


def corpus(paths: Sequence[str], field: str, max_bytes: int | None) -> Corpus:
    """Return the text that the command line names."""
    return Corpus(CorpusConfig(paths=list(paths), field=field, max_bytes=max_bytes))
