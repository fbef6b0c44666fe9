"""Load: `python -m tests.load [--calls 10000000] [--loads 1000] [--threads 32]`.

Many threads on one tokenizer, many short calls and many loads, without growth of memory. The slow tests run less of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

from tests import texts
from tokenizer import Batch, Tokenizer, count_pretokens, train_bpe

WARM_UP = 20_000
"""Calls before memory is measured: the caches of the encoder are full then."""


def tokenizer() -> Tokenizer:
    """1,000 tokens."""
    return train_bpe(count_pretokens([Batch.from_texts(texts.sample(100_000))], "gpt2"), 1000)


def memory_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def calls(n: int) -> float:
    """Encode and decode `n` short texts, all different; return the growth of memory in MB."""
    ours = tokenizer()

    def work(first: int, last: int) -> None:
        for i in range(first, last):
            text = f"the cat {i} sat"
            assert ours.decode(ours.encode(text)) == text

    work(0, WARM_UP)
    before = memory_mb()
    work(WARM_UP, WARM_UP + n)
    return memory_mb() - before


def loads(n: int) -> float:
    """Save a tokenizer, and load and use it `n` times; return the growth of memory in MB."""
    ours = tokenizer()
    expected = ours.encode("the cat sat on the mat")
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)

        def work(n: int) -> None:
            for _ in range(n):
                assert Tokenizer.load(folder).encode("the cat sat on the mat") == expected

        work(20)
        before = memory_mb()
        work(n)
        return memory_mb() - before


def threads(n: int, rounds: int) -> float:
    """Encode the same texts on `n` threads, `rounds` times each; return the growth of memory in MB."""
    ours = tokenizer()
    documents = [*texts.various(), texts.code()[:3000]]
    expected = [ours.encode(text) for text in documents]
    failures: list[BaseException] = []

    def work(rounds: int) -> None:
        try:
            for _ in range(rounds):
                assert [ours.encode(text) for text in documents] == expected
                ids, offsets = ours.encode_batch(documents, threads=2)
                assert [ids[start:end].tolist() for start, end in pairwise(offsets.tolist())] == expected
                assert ours.decode_batch(ids, offsets) == documents
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    def on_threads(rounds: int) -> None:
        workers = [threading.Thread(target=work, args=(rounds,)) for _ in range(n)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]

    on_threads(2)
    before = memory_mb()
    on_threads(rounds)
    return memory_mb() - before


def encoded(ours: Tokenizer, batch: list[str]) -> list[int]:
    """Ids of a batch, on two threads; the work of other processes."""
    ids: list[int] = ours.encode_batch(batch, threads=2)[0].tolist()
    return ids


def started(method: str) -> bool:
    """Whether a process that is started after use of a tokenizer gives the same ids.

    Args:
        method: fork, forkserver or spawn.
    """
    ours = tokenizer()
    batch = texts.various() * 3
    expected = encoded(ours, batch)
    with multiprocessing.get_context(method).Pool(2) as pool:
        return all(found == expected for found in pool.starmap(encoded, [(ours, batch)] * 4))


def main(argv: list[str]) -> int:
    """Run everything and print figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=10_000_000, help="default 10000000")
    options.add_argument("--loads", type=int, default=1000, help="default 1000")
    options.add_argument("--threads", type=int, default=32, help="default 32")
    options.add_argument("--rounds", type=int, default=1000, help="rounds of each thread (default 1000)")
    arguments = options.parse_args(argv)
    for name, run in {
        f"{arguments.threads} threads, {arguments.rounds:,} rounds each": lambda: threads(
            arguments.threads, arguments.rounds
        ),
        f"{arguments.loads:,} loads": lambda: loads(arguments.loads),
        f"{arguments.calls:,} calls": lambda: calls(arguments.calls),
    }.items():
        began = time.perf_counter()
        growth = run()
        print(f"{name}: {growth:+.1f} MB, {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
