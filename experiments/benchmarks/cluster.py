"""Counting and encoding on Ray and on threads: `python -m experiments.benchmarks.cluster FILES`.

FILES are uncompressed JSON lines or Parquet, which can be cut. Ray's workers have one thread each; there are as many
workers as threads in the other runs. The time to start Ray and to load the package in its workers is reported apart.
The best round counts, because other processes can only slow one down.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from experiments.cli.console import complain, console
from experiments.cluster import connect
from experiments.cluster.counting import count
from experiments.cluster.sharding import encoded_by
from experiments.cluster.tasks import Cluster
from experiments.config import RunnerConfig
from lm.data.sharding import reading_threads, write_encoded, write_shards
from tokenizer import Corpus, CorpusConfig, count_pretokens, train_bpe
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizer import Tokenizer

_SETTINGS = {"pattern": "gpt2", "threads": 1}


def _encode(corpus: Corpus, tokenizer: Tokenizer, threads: int, folder: Path) -> None:
    batches = corpus.batches(readers=reading_threads(threads))
    write_shards(folder / "shards", tokenizer, batches, threads=threads)


def _encode_on(cluster: Cluster, corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    source = partial(encoded_by, cluster, corpus, "train", tokenizer, folder / "parts")
    write_encoded(folder / "shards", tokenizer, source)


def _started(runner: RunnerConfig, corpus: Corpus, folder: Path) -> tuple[Cluster, float]:
    """The cluster, and the seconds that it takes to start and to run first tasks."""
    start = time.perf_counter()
    cluster = connect(runner)
    assert cluster is not None
    corpus = Corpus(CorpusConfig(paths=[str(file) for file, _ in corpus.files[:1]], max_bytes=1000))
    count(cluster, corpus, folder, _SETTINGS)
    return cluster, time.perf_counter() - start


def main(argv: list[str]) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--part-mb", type=int, default=64)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--address")
    options = parser.parse_args(argv)
    try:
        corpus = Corpus(CorpusConfig(paths=options.paths))
        runner = RunnerConfig("ray", 1, address=options.address, workers=options.workers, part_mb=options.part_mb)
        with tempfile.TemporaryDirectory() as name:
            _measure(corpus, runner, options, Path(name))
    except UserError as error:
        complain(error)
        return 2
    return 0


def _measure(corpus: Corpus, runner: RunnerConfig, options: argparse.Namespace, folder: Path) -> None:
    threads = options.workers
    cluster, start_up = _started(runner, corpus, folder / "first")
    counts = count_pretokens(corpus, **{**_SETTINGS, "threads": threads})
    tokenizer = train_bpe(counts, options.vocab_size)
    ways: dict[tuple[str, str], Callable[[Path], object]] = {
        ("count", "threads"): lambda _: count_pretokens(corpus, **{**_SETTINGS, "threads": threads}),
        ("count", "ray"): lambda to: count(cluster, corpus, to, _SETTINGS),
        ("encode", "threads"): lambda to: _encode(corpus, tokenizer, threads, to),
        ("encode", "ray"): lambda to: _encode_on(cluster, corpus, tokenizer, to),
    }
    best = dict.fromkeys(ways, float("inf"))
    for number in range(options.rounds):
        for way, run in ways.items():
            with tempfile.TemporaryDirectory(dir=folder) as to:
                start = time.perf_counter()
                run(Path(to))
                seconds = time.perf_counter() - start
            best[way] = min(best[way], seconds)
            console.print(f"round {number + 1}: {' '.join(way)} {seconds:.1f} s")
    table = Table("", f"{threads} threads: MB/s", f"{threads} Ray workers: MB/s", "Ray / threads")
    for stage in ("count", "encode"):
        local, ray = best[stage, "threads"], best[stage, "ray"]
        rates = [f"{counts.n_bytes / seconds / 1e6:,.0f}" for seconds in (local, ray)]
        table.add_row(stage, *rates, f"{local / ray:.0%}")
    console.print(table)
    console.print(f"{counts.n_bytes / 1e6:,.0f} MB of text; Ray's start and first task took {start_up:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
