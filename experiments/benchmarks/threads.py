"""Threads against processes, by kind of text: `python -m experiments.benchmarks.threads [FILES] --cores 2`.

Encoding in one call, encoding from a file, and counting, with one thread, with several threads, and with as many
processes of one thread, each of which has its share of the documents. Threads and processes are pinned to the same
cores. Where threads are slower than processes, a lock or the allocator limits them. Where both are slower than the
number of cores, the machine does: its caches, its memory, or other programs. The text is that of `kinds`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks import common, encode, kinds
from tokenizer import Corpus, CorpusConfig, Tokenizer, count_pretokens

CALLS = ("batch", "file", "count")

WARM_UP = "The first words. " * 20_000
"""Text for each thread, so that its caches exist before the first pass."""


def work_of(call: str, folder: Path, file: Path, threads: int) -> Callable[[], object]:
    """Return what is timed: a call on the documents of a file."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.encode_batch([WARM_UP] * threads, threads=threads)
    config = CorpusConfig(paths=[str(file)], separator=common.SEPARATOR)
    if call == "batch":
        texts = file.read_text(encoding="utf-8").split(common.SEPARATOR)
        return lambda: tokenizer.encode_batch(texts, threads=threads)
    if call == "file":

        def encode_file() -> None:
            for batch in Corpus(config).batches():
                tokenizer.encode_batch(batch, threads=threads)

        return encode_file
    batches = list(Corpus(config).batches())
    return lambda: count_pretokens(batches, tokenizer.pattern, threads=threads)


@dataclass(frozen=True)
class Pass:
    """A pass over the text: its start and end on the clock, and per repetition its page faults and waits.

    Waits are voluntary context switches.
    """

    began: float
    ended: float
    faults: float
    waits: float


def timed(call: str, folder: Path, file: Path, cores: Sequence[int], again: int, start: Any, results: Any) -> None:
    """Do the work on some cores once, and then `again` times, both together with the other processes.

    Puts the two passes, or None after an error.
    """
    passes = []
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        work = work_of(call, folder, file, len(cores))
        for repetitions in (1, again):
            start.wait()
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            for _ in range(repetitions):
                work()
            ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            faults, waits = (getattr(after, name) - getattr(before, name) for name in ("ru_minflt", "ru_nvcsw"))
            passes.append(Pass(began, ended, faults / repetitions, waits / repetitions))
    except BaseException:
        start.abort()  # no process waits for this one
        results.put(None)
        raise
    results.put(passes)


def measure(
    call: str, folder: Path, files: Sequence[Path], cores: Sequence[Sequence[int]], again: int
) -> dict[str, float]:
    """Run one process per file on its cores; return the seconds of both passes, and the events of the second."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(files)), context.SimpleQueue()
    workers = [
        context.Process(target=timed, args=(call, folder, file, own, again, start, results))
        for file, own in zip(files, cores, strict=True)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    if None in found:
        raise RuntimeError("a process failed; its error is above")
    new, known = zip(*found, strict=True)
    return {
        "new": max(one.ended for one in new) - min(one.began for one in new),
        "known": max(one.ended for one in known) - min(one.began for one in known),
        "faults": sum(one.faults for one in known),
        "waits": sum(one.waits for one in known),
    }


def shares(documents: Sequence[str], n: int, folder: Path) -> list[Path]:
    """Write the documents into `n` files of about the same size."""
    parts: list[list[str]] = [[] for _ in range(n)]
    for text in sorted(documents, key=len, reverse=True):
        min(parts, key=lambda part: sum(map(len, part))).append(text)
    files = [folder / f"{i} of {n}.txt" for i in range(n)]
    for file, part in zip(files, parts, strict=True):
        file.write_text(common.SEPARATOR.join(part), encoding="utf-8", newline="")
    return files


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Threads against processes, by kind of text.", paths="*")
    kinds.add_kinds(options)
    options.add_argument("--tokenizer", default="llama3", help="folder, or recipe of encode (default llama3)")
    options.add_argument("--vocab-size", type=common.positive, help="size if it is trained (default: the recipe's)")
    options.add_argument("--cores", type=common.positive, default=2, help="number of threads (default 2)")
    options.add_argument(
        "--again", type=common.size, default="100MB", metavar="SIZE", help="text of the second pass (default 100MB)"
    )
    options.add_argument("--cache", type=Path, default=Path("artifacts/benchmarks"), help="for trained tokenizers")
    options.set_defaults(max_bytes=20_000_000, rounds=5)
    return options.parse_args(argv)


@common.command
def main(argv: list[str]) -> int:
    """Measure in turn and print the table; return 2 for a user error."""
    options = parse(argv)
    n = options.cores
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if n > len(own):
        common.CONSOLE.print(f"--cores={n}: this process may use {len(own)}; the threads share them", style="yellow")
    cores = [own[i % len(own)] for i in range(n)]
    training, texts = kinds.collected(kinds.documents(options), options.max_bytes)
    corpus, _ = kinds.written((training, texts), options.cache)
    name = options.tokenizer
    folder = encode.trained(name, corpus, options) if name in encode.RECIPES else Path(name)
    columns = ("kind", "MB", "call", "1 thread, MB/s", f"{n} threads", f"{n} processes")
    table = Table(
        title=f"{folder.name if name not in encode.RECIPES else name}: {n} cores against one, by the clock",
        caption=f"multiples of the speed of one thread; medians of {options.rounds}; per MB of the second pass with "
        "threads: page faults, and how often a thread waited",
    )
    for column in (*columns, "threads, again", "processes, again", "faults", "waits"):
        table.add_column(column, justify="left" if column in ("kind", "call") else "right")
    with tempfile.TemporaryDirectory() as scratch:
        for kind, documents in kinds.chosen(options, texts).items():
            whole, parts = shares(documents, 1, Path(scratch)), shares(documents, n, Path(scratch))
            megabytes = whole[0].stat().st_size / 1e6
            again = max(1, round(options.again / 1e6 / megabytes))
            for call in CALLS:
                ways = {
                    "one": (whole, [cores[:1]]),
                    "threads": (whole, [cores]),
                    "processes": (parts, [[core] for core in cores]),
                }
                rounds = [
                    {way: measure(call, folder, files, pinned, again) for way, (files, pinned) in ways.items()}
                    for _ in range(options.rounds)
                ]

                def times(way: str, key: str, rounds: list[Any] = rounds) -> str:
                    return f"{statistics.median(found['one'][key] / found[way][key] for found in rounds):.2f}"

                def events(key: str, rounds: list[Any] = rounds, megabytes: float = megabytes) -> str:
                    return f"{statistics.median(found['threads'][key] for found in rounds) / megabytes:.1f}"

                rate = megabytes / statistics.median(found["one"]["new"] for found in rounds)
                table.add_row(
                    *(
                        kind,
                        f"{megabytes:.1f}",
                        call,
                        f"{rate:.0f}",
                        times("threads", "new"),
                        times("processes", "new"),
                    ),
                    *(times("threads", "known"), times("processes", "known"), events("faults"), events("waits")),
                )
    common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
