"""The benchmarks' harness: jobs in fresh processes, run in turn, beside other software in an environment of its own.

The peers do not share this framework's environment, because they could change its dependencies, and users of the
framework do not have to install them. Every job of `jobs.py` runs in its own process, ours as well.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from experiments import progress
from experiments.cli import console
from experiments.cli.arguments import size, whole
from tokenizer import Corpus, CorpusConfig, UserError

PEERS = {"fastokens": "0.3.5", "gigabpe": "0.1.0", "gigatoken": "0.10.0", "tokenizers": "0.23.3"}
"""Distribution and version of each peer."""
PEERS_VENV = Path("artifacts/benchmarks/peers-venv")

SEPARATOR = "<|endoftext|>"
"""Separator between documents in plain text."""


@dataclass
class Job:
    """A job of `jobs.py` and the measurements of its runs.

    Attributes:
        name: Name in the table.
        job: Key in `jobs.JOBS`.
        arguments: Arguments of the job, JSON-able.
        python: Interpreter with the library.
        rounds: Measurements of each run: the job's own, and `wall` seconds of the whole process; or why there are
            none (`refused`).
        lines: What the last run wrote: merges, or digests of ids.
    """

    name: str
    job: str
    arguments: dict[str, Any]
    python: Path = Path(sys.executable)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run once more, in a separate process.

        Raises:
            RuntimeError: If the process fails.
        """
        # Our own jobs must import the packages of this process; a peer must not see them.
        flag = "-P" if self.python == Path(sys.executable) else "-I"
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [str(self.python), flag, str(Path(__file__).with_name("jobs.py")), self.job]
        command.append(json.dumps(self.arguments))
        began = time.perf_counter()
        done = subprocess.run(command, env=variables, capture_output=True, encoding="utf-8", check=False)
        wall = time.perf_counter() - began
        if done.returncode != 0:
            message = f"the job {self.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
            raise RuntimeError(message)
        facts = json.loads(done.stdout)
        self.lines = facts.pop("lines")
        self.rounds.append(facts | {"wall": wall})

    @property
    def facts(self) -> dict[str, Any]:
        """Measurements of the last run."""
        return self.rounds[-1]

    @property
    def refused(self) -> str:
        """Why a run has no measurements; "" if all have."""
        return next((facts["refused"] for facts in self.rounds if "refused" in facts), "")

    def median(self, key: str) -> float:
        """Median over the runs."""
        return float(statistics.median(facts[key] for facts in self.rounds))


def in_turn(jobs: Sequence[Job], rounds: int) -> None:
    """Run all jobs in turn, round after round, so that drift of the machine affects all of them equally."""
    for number in range(rounds):
        for job in jobs:
            job.run()
            progress.stderr.print(f"round {number + 1}: {job.name} ({job.facts['wall']:.1f} s)", style="dim")


def agreement(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Number of merges before the first difference."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(expected, actual, strict=False))))


def print_table(title: str, rows: Sequence[Mapping[str, str]], caption: str) -> None:
    """Print a table of rows with the same columns, of which the first is left-aligned."""
    progress.print_table(progress.Table(title, list(rows[0]), [list(row.values()) for row in rows]))
    progress.console.print(f"{os.cpu_count()} cores; {caption}")


# The command line.


def parser(description: str, peers: Sequence[str]) -> argparse.ArgumentParser:
    """Return the options of the benchmarks that read text beside other software."""
    options = argparse.ArgumentParser(description=description)
    add = options.add_argument
    add("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, folders, globs")
    add("--rounds", type=whole(), default=3, help="runs of each contender, in turn (default 3)")
    add("--field", default="text", help="field that holds the text (default text)")
    add("--max-bytes", type=size, metavar="SIZE", help="10MB (default: all)")
    add("--peers", nargs="*", default=peers, choices=[*peers, "none"], help=f"(default {' '.join(peers)})")
    add("--peers-venv", type=Path, default=PEERS_VENV, help=f"environment of the peers (default {PEERS_VENV})")
    return options


def parse_peers(options: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; `peers` is empty for `--peers none`, and `python` is the peers' interpreter.

    Raises:
        UserError: If the peers have no environment.
    """
    arguments = options.parse_args(argv)
    arguments.peers = [peer for peer in arguments.peers if peer != "none"]
    venv = arguments.peers_venv
    arguments.python = Path(sys.executable)
    if arguments.peers:
        arguments.python = venv / "bin/python"
        if not arguments.python.is_file():
            wanted = " ".join(f"{name}=={version}" for name, version in PEERS.items())
            raise UserError(
                f"{venv} has no environment with the other software; use --peers none, or make it with: "
                f"python -m venv {venv} && {arguments.python} -m pip install {wanted}"
            )
    return arguments


def command(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Make a user error one line and exit code 2, as in the commands."""
    return functools.wraps(main)(lambda argv: console.exit_code(lambda: main(argv)))


def corpus(paths: Sequence[str], field: str, max_bytes: int | None) -> Corpus:
    """Return the text that the command line names."""
    return Corpus(CorpusConfig(paths=list(paths), field=field, max_bytes=max_bytes))


def plain_text(text: Corpus, folder: Path) -> tuple[Path, Path]:
    """Write documents, each with a final line feed, end to end into a file, and with `SEPARATOR` between into another.

    Raises:
        UserError: If the corpus cannot be read, or the separator occurs in it.
    """
    paths = folder / "lines.txt", folder / "documents.txt"
    with paths[0].open("wb") as lines, paths[1].open("wb") as documents:
        for number, document in enumerate(text.documents()):
            if SEPARATOR in document:
                raise UserError(f"the text contains {SEPARATOR}, which separates documents; remove those documents")
            line = document.removesuffix("\n") + "\n"
            lines.write(line.encode())
            documents.write((SEPARATOR * (number > 0) + line).encode())
    return paths
