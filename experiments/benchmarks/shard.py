"""Sharding files against encoding in memory: `python -m experiments.benchmarks.shard FILES [--tokenizers NAMES]`.

The text is first written in every format. Then its documents are encoded from a list in memory, only read from the
files, and written as shards, each in a separate process and in turn. With "1 core", all threads
of the process are pinned to one core. Shares are rates relative to encoding in memory on the same number of cores: by
the clock, and by the CPU time of the whole process including the kernel, which other processes affect less. All shards
must be identical.

Tokenizers are folders, or names of `encode.RECIPES`, which are trained on the text first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from experiments.benchmarks import common, encode
from lm.data.sharding import reading_threads, write_shards
from tokenizer import Corpus, CorpusConfig, Tokenizer

FORMS = (".jsonl", ".jsonl.zst", ".parquet")
MEMORY, READ, SHARDS = "in memory", "read", "shards"


@dataclass(frozen=True)
class Run:
    """Work of one process.

    Attributes:
        work: `MEMORY`, `READ`, `SHARDS` or `SHUFFLED`.
        form: Format of the files; not used in memory.
        cores: Number of cores that the process may use.
    """

    work: str
    form: str
    cores: int


def runs(cores: int) -> list[Run]:
    """Return all runs with one tokenizer, in order."""
    found = []
    for n in dict.fromkeys((1, cores)):
        found.append(Run(MEMORY, FORMS[0], n))
        found += [Run(work, form, n) for form in FORMS for work in (READ, SHARDS)]
    return found


def written(corpus: Corpus, cache: Path) -> Path:
    """Return the folder in `cache` with the text in every format (`text.jsonl` and so on)."""

    def write(folder: Path) -> None:
        table = pa.table({"text": pa.array(list(corpus.documents()), pa.large_string())})
        pq.write_table(table, folder / "text.parquet", compression="zstd", row_group_size=4096)
        lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in table.to_pylist())
        (folder / "text.jsonl").write_bytes(lines)
        with pa.CompressedOutputStream(str(folder / "text.jsonl.zst"), "zstd") as file:
            file.write(lines)

    return common.cached(cache, "forms", corpus.identity(), write)


def job(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do one run, in its own process."""
    run: Run = arguments.run
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: run.cores])
    tokenizer = Tokenizer.load(arguments.folder)
    corpus = Corpus(CorpusConfig(paths=[str(arguments.text / f"text{run.form}")]))
    batches = partial(corpus.batches, readers=reading_threads(run.cores))
    tokenizer.encode_batch(["warm-up"], threads=run.cores)  # builds the encoder
    next(batches())  # imports
    with tempfile.TemporaryDirectory(dir=arguments.text) as folder:
        works: dict[str, Callable[[], Any]] = {
            READ: lambda: sum(batch.n_bytes for batch in batches()),
            SHARDS: lambda: write_shards(Path(folder) / "s", tokenizer, batches(), threads=run.cores),
        }
        if run.work == MEMORY:
            texts = list(corpus.documents())
            works[MEMORY] = lambda: tokenizer.encode_batch(texts, threads=run.cores)
        clock, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        made = works[run.work]()
        seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_SELF)
        kernel = after.ru_stime - before.ru_stime
        facts: dict[str, Any] = {"seconds": seconds, "kernel": kernel}
        facts["cpu seconds"] = after.ru_utime - before.ru_utime + kernel
        facts["files"] = [shard["xxh3_128"] for shard in made["shards"]] if isinstance(made, dict) else []
    return facts


def show(title: str, results: dict[Run, common.Result], n_bytes: int) -> None:
    """Print a tokenizer's table."""
    cores = list(dict.fromkeys(run.cores for run in results))
    table = Table(
        title=title,
        caption="medians; CPU: nanoseconds of the whole process per byte of text; kernel: part of that in the kernel; "
        "in memory, this is for new pages and depends on the number of free huge pages",
    )
    table.add_column("")
    for n in cores:
        for column in (f"MB/s, {n} core{'s'[: n > 1]}", "share", "CPU ns/B", "kernel", "share of CPU"):
            table.add_column(column, justify="right", no_wrap=True)
    for work, form in dict.fromkeys((run.work, run.form) for run in results):
        cells = []
        for n in cores:
            result, memory = results[Run(work, form, n)], results[Run(MEMORY, FORMS[0], n)]
            clock, cpu = (memory.median(key) / result.median(key) for key in ("seconds", "cpu seconds"))
            shares = (f"{clock:.2f}", f"{cpu:.2f}") if work == SHARDS else ("", "")
            cells += [f"{n_bytes / result.median('seconds') / 1e6:.1f}", shares[0]]
            cells += [*(f"{result.median(key) / n_bytes * 1e9:.2f}" for key in ("cpu seconds", "kernel")), shares[1]]
        table.add_row(work if work == MEMORY else f"{work}, {form}", *cells)
    common.CONSOLE.print(table)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    options = common.parser("Sharding files against encoding in memory.")
    options.add_argument(
        "--tokenizers", nargs="+", default=["superwords", "gpt2"], help="as in `encode` (default %(default)s)"
    )
    options.add_argument(
        "--vocab-size", type=common.positive, help="size of trained tokenizers (default: the recipe's)"
    )
    options.add_argument("--cores", type=common.positive, default=2, help="number of cores besides one (default 2)")
    options.add_argument("--cache", type=Path, default=Path("artifacts/benchmarks"), help="for text and tokenizers")
    return options.parse_args(argv)


@common.command
def main(argv: list[str]) -> int:
    """Do all runs and print the tables; return 1 if shards of the same documents differ, 2 for a user error."""
    options = parse(argv)
    same = True
    corpus = common.corpus(options.paths, options.field, options.max_bytes)
    text = written(corpus, options.cache)
    n_bytes = sum(batch.n_bytes for batch in corpus.batches())
    for name in options.tokenizers:
        folder = encode.trained(name, corpus, options) if name in encode.RECIPES else Path(name)
        Tokenizer.load(folder)  # fails early
        calls = {
            run: partial(common.run, job, argparse.Namespace(run=run, folder=folder, text=text))
            for run in runs(options.cores)
        }
        named = {f"{run.work}, {run.form}, {run.cores}": call for run, call in calls.items()}
        results = dict(zip(calls, common.in_turn(named, options.rounds), strict=True))
        show(f"{name}, {n_bytes / 1e6:.1f} MB", results, n_bytes)
        for work in (SHARDS,):
            files = [facts["files"] for run, one in results.items() if run.work == work for facts in one.rounds]
            same = same and all(found == files[0] for found in files)
    if not same:
        common.CONSOLE.print("shards of the same documents differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
