"""The benchmarks' harness: jobs in fresh processes, run in turn, beside other software in an environment of its own.

The peers do not share this framework's environment, because they could change its dependencies, and users of the
framework do not have to install them. Every job of `jobs.py` runs in its own process, ours as well.
"""

from __future__ import annotations

import argparse
import base64
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from experiments.cli import console
from experiments.cli.arguments import size, whole
from tokenizer import Corpus, CorpusConfig, UserError
from tokenizer.durable import new_folder
from tokenizer.files import digest

PEERS = {
    "fastokens": "0.3.5",
    "gigabpe": "0.1.0",
    "gigatoken": "0.10.0",
    "tiktoken": "0.14.0",
    "tokenizers": "0.23.3",
}
"""Distribution and version of each peer."""

SEPARATOR = "<|endoftext|>"
"""Separator between documents in plain text."""


def _words(n: int, random: random.Random, alphabet: str, end: str) -> str:
    """About n bytes of words from the alphabet, as often as in a language (Zipf), each followed by `end`."""
    words = ["".join(random.choices(alphabet, k=random.randint(2, 8))) + end for _ in range(5_000)]
    frequencies = [1 / rank for rank in range(1, len(words) + 1)]
    mean = sum(f * len(word.encode()) for f, word in zip(frequencies, words, strict=True)) / sum(frequencies)
    return "".join(random.choices(words, frequencies, k=int(n / mean)))


_LETTERS, _THAI = "abcdefghijklmnopqrstuvwxyz", "".join(map(chr, range(0xE01, 0xE2F)))
DEGENERATE: dict[str, Callable[[int, random.Random], str]] = {
    "one letter": lambda n, _: "a" * n,
    "spaces": lambda n, _: " " * n,
    "line feeds": lambda n, _: "\n" * n,
    "digits": lambda n, _: "7" * n,
    "emoji with modifiers": lambda n, _: "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}" * (n // 8),
    "random bytes, replaced": lambda n, random: random.randbytes(n // 2).decode(errors="replace"),
    "distinct words": lambda n, random: " ".join(random.randbytes(4).hex() for _ in range(n // 9)),
    "DNA in one line": lambda n, random: "".join(random.choices("ACGT", k=n)),
    "DNA in lines": lambda n, random: "\n".join("".join(random.choices("ACGT", k=70)) for _ in range(n // 71)),
    "base64": lambda n, random: base64.b64encode(random.randbytes(n * 3 // 4)).decode(),
    "UUIDs in lines": lambda n, random: "\n".join(str(uuid.UUID(bytes=random.randbytes(16))) for _ in range(n // 37)),
    "JSON in one line": lambda n, random: _words(n, random, _LETTERS, '":[1,20],"'),
    "minified JavaScript": lambda n, random: _words(n, random, _LETTERS, "=function(e,t){return e+t};"),
    "lines that end with CR": lambda n, random: _words(n, random, _LETTERS + " ", " a\r"),
    "Thai without spaces": lambda n, random: _words(n, random, _THAI, "\N{THAI CHARACTER SARA AA}"),
}
"""Text of about n bytes that is constructed to be slow, by name."""


@dataclass
class Job:
    """A job of `jobs.py` and the measurements of its runs.

    Attributes:
        name: Name in the table.
        job: Key in `jobs.JOBS`.
        arguments: Arguments of the job, JSON-able.
        python: Interpreter with the library.
        limit: Seconds after which a run is stopped.
        rounds: Measurements of each run: those of the job, and `wall` seconds of the whole process; or why there are
            none (`refused`).
        lines: What the last run wrote: merges, or digests of ids.
    """

    name: str
    job: str
    arguments: dict[str, Any]
    python: Path = Path(sys.executable)
    limit: float | None = None
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
        with tempfile.NamedTemporaryFile("r", encoding="ascii") as out:
            arguments = json.dumps(self.arguments | {"out": out.name})
            command = [str(self.python), flag, str(Path(__file__).with_name("jobs.py")), self.job, arguments]
            began = time.perf_counter()
            try:
                done = subprocess.run(
                    command, env=variables, capture_output=True, text=True, check=False, timeout=self.limit
                )
            except subprocess.TimeoutExpired:
                self.rounds.append({"refused": f"over {self.limit:g} s", "wall": self.limit})
                return
            wall = time.perf_counter() - began
            if done.returncode != 0:
                message = f"the job {self.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
                raise RuntimeError(message)
            self.rounds.append(json.loads(done.stdout) | {"wall": wall})
            self.lines = out.read().splitlines()

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
            console.stderr.print(f"round {number + 1}: {job.name} ({job.facts['wall']:.1f} s)", style="dim")


def agreement(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Number of merges before the first difference."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(expected, actual, strict=False))))


def print_table(title: str, rows: Sequence[Mapping[str, str]], caption: str) -> None:
    """Print a table of rows with the same columns, of which the first is left-aligned."""
    console.print_table(title, list(rows[0]), [list(row.values()) for row in rows])
    console.console.print(f"{os.cpu_count()} cores; {caption}", markup=False)


def environment(folder: Path) -> Path:
    """Return the interpreter of the peers' environment.

    Raises:
        UserError: If there is no environment in the folder.
    """
    python = folder / "bin/python"
    if not python.is_file():
        wanted = " ".join(f"{name}=={version}" for name, version in PEERS.items())
        raise UserError(
            f"{folder} has no environment with the other software; use --peers none, or make it with: "
            f"python -m venv {folder} && {python} -m pip install {wanted}"
        )
    return python


# The command line.


def parser(description: str, peers: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the options of the benchmarks that read text; `parse_peers` reads those about other software."""
    options = argparse.ArgumentParser(description=description)
    add = options.add_argument
    add("paths", nargs="+", help="text: .txt, .jsonl[.gz|.zst] or .parquet files, folders, globs")
    add("--rounds", type=whole(), default=3, help="runs of each contender, in turn (default 3)")
    add("--field", default="text", help="field that holds the text (default text)")
    add("--max-bytes", type=size, metavar="SIZE", help="10MB (default: all)")
    if peers:
        add("--peers", nargs="*", default=peers, choices=[*peers, "none"], help=f"(default {' '.join(peers)})")
        add("--cache", type=Path, default=Path("artifacts/benchmarks"), help="for text and tokenizers")
        add("--peers-venv", type=Path, default=None, help="for the peers (default CACHE/peers-venv)")
    return options


def parse_peers(options: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; `peers` is empty for `--peers none`, and `python` is the peers' interpreter.

    Raises:
        UserError: If the peers have no environment.
    """
    arguments = options.parse_args(argv)
    arguments.peers = [peer for peer in arguments.peers if peer != "none"]
    folder = arguments.peers_venv or arguments.cache / "peers-venv"
    arguments.python = environment(folder) if arguments.peers else Path(sys.executable)
    return arguments


def command(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Make a user error in a benchmark's entry point one line and exit code 2, as in the commands."""
    return functools.wraps(main)(lambda argv: console.exit_code(lambda: main(argv)))


# Text.


def corpus(paths: Sequence[str], field: str, max_bytes: int | None) -> Corpus:
    """Return the text that the command line names."""
    return Corpus(CorpusConfig(paths=list(paths), field=field, max_bytes=max_bytes))


def cached(cache: Path, name: str, key: Any, write: Callable[[Path], object]) -> Path:
    """Return the folder of a JSON-able key in `cache`; `write` fills it if it does not exist."""
    folder = cache / f"{name}-{digest(key)[:16]}"
    if not folder.is_dir():
        with new_folder(folder) as unfinished:
            unfinished.mkdir(parents=True)
            write(unfinished)
    return folder


def degenerate(cache: Path, n_bytes: int) -> dict[str, Path]:
    """Return a file for each text of `DEGENERATE`, by name."""

    def write(folder: Path) -> None:
        for name, text in DEGENERATE.items():
            (folder / f"{name}.txt").write_bytes(text(n_bytes, random.Random(n_bytes)).encode())

    folder = cached(cache, "degenerate", n_bytes, write)
    return {name: folder / f"{name}.txt" for name in DEGENERATE}


def plain_text(text: Corpus, cache: Path) -> tuple[Path, Path]:
    """Write documents as plain text into `cache`, unless they are there; for contenders that read no other format.

    Every document ends with a line feed.

    Returns:
        A file with the documents end to end, for contenders that read line by line, and one with `SEPARATOR` in
        between.

    Raises:
        UserError: If the corpus cannot be read, or the separator occurs in it.
    """

    def write(folder: Path) -> None:
        with (folder / "lines.txt").open("wb") as lines, (folder / "documents.txt").open("wb") as documents:
            for number, document in enumerate(text.documents()):
                if SEPARATOR in document:
                    raise UserError(
                        f"the text contains {SEPARATOR}, which separates documents here; remove those documents"
                    )
                line = document.removesuffix("\n") + "\n"
                lines.write(line.encode())
                documents.write((SEPARATOR * (number > 0) + line).encode())

    folder = cached(cache, "text", [text.identity(), SEPARATOR], write)
    return folder / "lines.txt", folder / "documents.txt"
