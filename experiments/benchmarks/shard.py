"""From files to shards beside encoding in memory: `python -m experiments.benchmarks.shard FILES [--tokenizers NAMES]`.

The text is written in every form first. Then, in processes of their own and in turn, its documents are encoded out of a
list in memory; read out of the files and no more; and written as shards, in order and shuffled. "One core" holds all
threads: the process may use no other. Shares are rates as shares of the one in memory on as many cores: by the clock,
and by the CPU time of the whole process, kernel included, which a busy neighbour changes less. All shards must be the
same to the byte.

Tokenizers are folders, or names of `encode.RECIPES`, which are trained on the text first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from experiments.benchmarks import common, encode
from experiments.cli.console import complain
from lm.data.sharding import ShardConfig, reading_threads, write_shards
from tokenizer import Corpus, CorpusConfig, Tokenizer, UserError

FORMS = (".jsonl", ".jsonl.zst", ".parquet")
MEMORY, READ, SHARDS, SHUFFLED = "in memory", "read", "shards", "shuffled"
_SHUFFLE_SEED = 1


@dataclass(frozen=True)
class Run:
    """What one process does.

    Attributes:
        work: `MEMORY`, `READ`, `SHARDS` or `SHUFFLED`.
        form: of the files; in memory there are none.
        cores: that the process may use.
    """

    work: str
    form: str
    cores: int


def runs(cores: int) -> list[Run]:
    """All runs with one tokenizer, in order."""
    found = []
    for n in dict.fromkeys((1, cores)):
        found.append(Run(MEMORY, FORMS[0], n))
        found += [Run(work, form, n) for form in FORMS for work in (READ, SHARDS)]
        found.append(Run(SHUFFLED, FORMS[0], n))
    return found


def written(corpus: Corpus, cache: Path) -> Path:
    """The folder with the text in every form, `text.jsonl` and so on, below `cache`."""
    key = sha256(repr(corpus.identity()).encode()).hexdigest()[:16]
    folder = cache / f"forms-{key}"
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        table = pa.table({"text": pa.array(list(corpus.documents()), pa.large_string())})
        pq.write_table(table, unfinished / "text.parquet", compression="zstd", row_group_size=4096)
        lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in table.to_pylist())
        (unfinished / "text.jsonl").write_bytes(lines)
        with pa.CompressedOutputStream(str(unfinished / "text.jsonl.zst"), "zstd") as file:
            file.write(lines)
        unfinished.rename(folder)
    return folder


def job(arguments: argparse.Namespace) -> dict[str, Any]:
    """One run, in its own process."""
    run: Run = arguments.run
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: run.cores])
    tokenizer = Tokenizer.load(arguments.folder)
    corpus = Corpus(CorpusConfig(paths=[str(arguments.text / f"text{run.form}")]))
    batches = partial(corpus.batches, readers=reading_threads(run.cores))
    tokenizer.encode_batch(["What is built at first use"], threads=run.cores)
    next(batches())  # imports
    with tempfile.TemporaryDirectory(dir=arguments.text) as folder:
        works: dict[str, Callable[[], Any]] = {
            READ: lambda: sum(batch.n_bytes for batch in batches()),
            SHARDS: lambda: write_shards(Path(folder) / "s", tokenizer, batches(), threads=run.cores),
            SHUFFLED: lambda: write_shards(
                Path(folder) / "s", tokenizer, batches(), ShardConfig(shuffle_seed=_SHUFFLE_SEED), threads=run.cores
            ),
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
    """Prints a tokenizer's table."""
    cores = list(dict.fromkeys(run.cores for run in results))
    table = Table(
        title=title,
        caption="medians; CPU: of the whole process, nanoseconds for each byte of text; kernel: its part of that, in "
        "memory for new pages, which hangs on how many large ones are free",
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
            shares = (f"{clock:.2f}", f"{cpu:.2f}") if work in (SHARDS, SHUFFLED) else ("", "")
            cells += [f"{n_bytes / result.median('seconds') / 1e6:.1f}", shares[0]]
            cells += [*(f"{result.median(key) / n_bytes * 1e9:.2f}" for key in ("cpu seconds", "kernel")), shares[1]]
        table.add_row(work if work == MEMORY else f"{work}, {form}", *cells)
    common.CONSOLE.print(table)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    options = common.parser("From files to shards beside encoding in memory.")
    options.add_argument(
        "--tokenizers", nargs="+", default=["superwords", "gpt2"], help="as `encode` takes them (default %(default)s)"
    )
    options.add_argument("--vocab-size", type=common.positive, help="of those that are trained (default: each its own)")
    options.add_argument("--cores", type=common.positive, default=2, help="beside one (default 2)")
    options.add_argument("--cache", type=Path, default=Path("artifacts/benchmarks"), help="for text and tokenizers")
    return options.parse_args(argv)


def main(argv: list[str]) -> int:
    """Runs all and prints the tables; 1 if shards of the same documents differ, 2 for a user's mistake."""
    options = parse(argv)
    same = True
    try:
        corpus = common.corpus(options.paths, options.field, options.max_bytes)
        text = written(corpus, options.cache)
        n_bytes = sum(batch.n_bytes for batch in corpus.batches())
        for name in options.tokenizers:
            folder = encode.trained(name, options) if name in encode.RECIPES else Path(name)
            Tokenizer.load(folder)  # before hours of work: a mistake
            calls = {
                run: partial(common.run, job, argparse.Namespace(run=run, folder=folder, text=text))
                for run in runs(options.cores)
            }
            named = {f"{run.work}, {run.form}, {run.cores}": call for run, call in calls.items()}
            results = dict(zip(calls, common.in_turn(named, options.rounds), strict=True))
            show(f"{name}, {n_bytes / 1e6:.1f} MB", results, n_bytes)
            for work in (SHARDS, SHUFFLED):
                files = [facts["files"] for run, one in results.items() if run.work == work for facts in one.rounds]
                same = same and all(found == files[0] for found in files)
    except UserError as error:
        complain(error)
        return 2
    if not same:
        common.CONSOLE.print("shards of the same documents differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
