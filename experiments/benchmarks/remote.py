"""Counting text from a URL and from local files: `python -m experiments.benchmarks.remote LOCAL URL`.

LOCAL and URL are a folder, file or glob and the same files elsewhere. "reading" fetches all bytes and discards them, to
show what the endpoint can deliver. Rates are bytes of text per second, or bytes of the files for "reading". The best
round counts, because other processes can only slow one down.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import console
from tokenizer import Corpus, CorpusConfig, count_pretokens
from tokenizer.corpus.remote import AHEAD, RemoteFile, Stop


def counting(path: str, threads: int) -> int:
    """Count the pretokens; return the bytes of text."""
    return count_pretokens(Corpus(CorpusConfig(paths=[path])), "gpt2", threads=threads).n_bytes


def reading(path: str) -> int:
    """Fetch every byte; return the bytes of the files."""
    done = 0
    with ThreadPoolExecutor(AHEAD) as pool:
        for file, _ in Corpus(CorpusConfig(paths=[path])).files:
            assert isinstance(file, RemoteFile)
            done += sum(map(len, file.blocks(pool, Stop())))
    return done


@common.command
def main(argv: list[str]) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("local")
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    ways: dict[str, Callable[[], int]] = {
        "counting local files": lambda: counting(options.local, options.threads),
        "counting from the URL": lambda: counting(options.url, options.threads),
        "reading from the URL": lambda: reading(options.url),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    sizes: dict[str, int] = {}
    for _ in range(options.rounds):
        for name, run in ways.items():
            start = time.perf_counter()
            sizes[name] = run()
            seconds[name].append(time.perf_counter() - start)
    table = Table("", "MB", "seconds (best)", "MB/s")
    for name, each in seconds.items():
        table.add_row(name, f"{sizes[name] / 1e6:,.0f}", f"{min(each):.2f}", f"{sizes[name] / min(each) / 1e6:,.0f}")
    console.print(table)
    near, far, _ = (min(each) for each in seconds.values())
    console.print(f"from the URL at {near / far:.0%} of the speed of local files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
