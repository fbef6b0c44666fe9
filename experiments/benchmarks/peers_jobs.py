"""One contender in a separate process: `python peers_jobs.py CONTENDER ARGUMENTS`, prints a JSON object.

It runs in the peers' environment and in ours, so it imports only the standard library before a contender imports its
own library. The measurement covers the library call with reading, without imports; the kernel reports memory. The
merges are written to a file after the measurement: one per line, `left right` in hexadecimal, or the whole token if a
library does not expose its parts.
"""

# ruff: noqa: PTH123 (pathlib would add to what counts as the bare interpreter)

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Merges = Iterable[tuple[bytes, ...]]
Call = Callable[[], tuple[Callable[[], Merges], dict[str, Any]]]
"""The work. Returns a function that converts the merges after the measurement, and facts for the table."""


def memory_mb(key: str) -> float:
    """Memory of this process in MB: `VmRSS` (now) or `VmHWM` (its peak).

    `ru_maxrss` cannot be used: on Linux a child inherits it from its parent.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            found = next(line for line in status if line.startswith(f"{key}:"))
    except OSError:  # not Linux: peaks are not inherited there, and the current size is not available
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return int(found.split()[1]) * 1024 / 1e6


def ours(arguments: dict[str, Any]) -> Call:
    """This framework, with files in any format that it reads."""
    from tokenizer import Corpus, CorpusConfig, count_pretokens, train_bpe

    def call() -> tuple[Callable[[], Merges], dict[str, Any]]:
        started = time.perf_counter()
        corpus = Corpus(
            CorpusConfig(
                paths=arguments["paths"],
                field=arguments["field"],
                separator=arguments["separator"],
                max_bytes=arguments["max_bytes"],
            )
        )
        counts = count_pretokens(corpus, arguments["pattern"], unit=arguments["unit"], threads=arguments["threads"])
        counted = time.perf_counter()
        trained = train_bpe(counts, arguments["vocab_size"], special_tokens=())
        ended = time.perf_counter()
        facts = {
            "counting": counted - started,
            "merging": ended - counted,
            "bytes": counts.n_bytes,
            "distinct": counts.n_distinct,
        }
        return lambda: trained.merges, facts

    return call


def gigabpe(arguments: dict[str, Any]) -> Call:
    """Reads plain text itself, line by line.

    It divides its threads between scanning and counting. Twice as many threads as cores were faster than its default
    (1.5 to 1.7 s against 1.7 to 2.4 s, 94 MB, two cores).
    """
    library: Any = importlib.import_module("gigabpe")

    def call() -> tuple[Callable[[], Merges], dict[str, Any]]:
        _, merges = library.train_bpe(
            arguments["paths"],
            vocab_size=arguments["vocab_size"],
            pretokenizer="bytelevel",
            special_tokens=[],
            threads=2 * (os.cpu_count() or 1),
        )
        return lambda: _from_printable(merges), {}

    return call


def gigatoken(arguments: dict[str, Any]) -> Call:
    """Reads files itself: memory-mapped plain text with separators (faster than its file source), or JSON lines."""
    library: Any = importlib.import_module("gigatoken")

    def call() -> tuple[Callable[[], Merges], dict[str, Any]]:
        if arguments["separator"] is None:
            source, separator = library.JsonlFileSource(arguments["paths"], field=arguments["field"]), None
        else:
            (source,), separator = arguments["paths"], arguments["separator"].encode()
        _, merges = library.train_bpe(source, arguments["vocab_size"], special_tokens=[], separator=separator)
        return lambda: merges, {}

    return call


def rustbpe(arguments: dict[str, Any]) -> Call:
    """Takes an iterator of strings and buffers 8,192 of them; documents are faster than lines (5.5 s against 7.0 s)."""
    library: Any = importlib.import_module("rustbpe")

    def call() -> tuple[Callable[[], Merges], dict[str, Any]]:
        trained = library.Tokenizer()
        trained.train_from_iterator(
            _documents(arguments["paths"], arguments["separator"]),
            vocab_size=arguments["vocab_size"],
            pattern=arguments["regex"],
        )
        ranks = trained.get_mergeable_ranks()
        return lambda: ((bytes(token),) for token, rank in sorted(ranks, key=lambda pair: pair[1]) if rank >= 256), {}

    return call


def tokenizers(arguments: dict[str, Any]) -> Call:
    """HF: reads plain text itself, line by line."""
    library: Any = importlib.import_module("tokenizers")
    byte_level = library.pre_tokenizers.ByteLevel

    def call() -> tuple[Callable[[], Merges], dict[str, Any]]:
        trained = library.Tokenizer(library.models.BPE())
        trained.pre_tokenizer = library.pre_tokenizers.Sequence(
            [
                library.pre_tokenizers.Split(library.Regex(arguments["regex"]), "isolated"),
                byte_level(add_prefix_space=False, use_regex=False),
            ]
        )
        trainer = library.trainers.BpeTrainer(
            vocab_size=arguments["vocab_size"], show_progress=False, initial_alphabet=byte_level.alphabet()
        )
        trained.train(arguments["paths"], trainer)
        return lambda: _from_printable(json.loads(trained.to_str())["model"]["merges"]), {}

    return call


CONTENDERS = {job.__name__: job for job in (ours, gigabpe, gigatoken, rustbpe, tokenizers)}


def _documents(paths: Iterable[str], separator: str) -> Iterator[str]:
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            rest = ""
            while block := file.read(1 << 20):
                *whole, rest = (rest + block).split(separator)
                yield from whole
            yield rest


def _from_printable(merges: Iterable[Iterable[str]]) -> Merges:
    """Convert from HF's notation, in which every byte is a printable character."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(kept)]
    byte_of = {chr(byte): byte for byte in kept} | {chr(256 + i): byte for i, byte in enumerate(others)}
    return (tuple(bytes(map(byte_of.__getitem__, part)) for part in merge) for merge in merges)


def main() -> None:
    """Run the contender that the command line names."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's own output must not mix with the answer
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    bare = memory_mb("VmRSS")
    call = CONTENDERS[name](arguments)
    imported = memory_mb("VmRSS")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    merges, facts = call()
    seconds = time.perf_counter() - started
    peak = memory_mb("VmHWM")
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(arguments["out"], "w", encoding="ascii") as file:
        file.writelines(" ".join(part.hex() for part in merge) + "\n" for merge in merges())
    facts |= {
        "seconds": seconds,
        "cpu": used.ru_utime - usage.ru_utime + used.ru_stime - usage.ru_stime,
        "bare_mb": bare,
        "imports_mb": imported - bare,
        "peak_mb": peak,
    }
    json.dump(facts, answer)
    answer.close()


if __name__ == "__main__":
    main()
