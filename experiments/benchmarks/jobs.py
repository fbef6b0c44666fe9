"""One job in a process of its own: `python jobs.py JOB ARGUMENTS`, prints its measurements as a JSON object.

It runs in the peers' environment and in ours, so it imports only the standard library before a job imports its library.
Imports, loading and a short warm-up text are not measured. `lines` has the result, spelled after the measurement:
merges as `left right` in hexadecimal, or a digest of the ids of each document.
"""

# ruff: noqa: PTH123 (pathlib would add to what counts as the bare interpreter)

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

Arguments = dict[str, Any]
Call = tuple[Callable[[], Any], Callable[[Any], Iterable[str]], dict[str, Any]]
"""The measured work, a function that spells its result after the measurement, and facts for the table."""
Merges = Iterable[tuple[bytes, ...]]


def memory_mb(key: str) -> float:
    """Memory of this process in MB: `VmRSS` (now) or `VmHWM` (its peak).

    `ru_maxrss` cannot be used: on Linux a child inherits it from its parent.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            entry = next(line for line in status if line.startswith(f"{key}:"))
    except OSError:  # not Linux: peaks are not inherited there, and the current size is not available
        peak = float("nan")
        if sys.platform != "win32":
            import resource

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
                1 << 20 if sys.platform == "darwin" else 1 << 10
            )
        return peak
    return int(entry.split()[1]) * 1024 / 1e6


# Trainers.


def _spelled(merges: Merges) -> Iterator[str]:
    return (" ".join(part.hex() for part in merge) for merge in merges)


def _from_printable(merges: Iterable[Iterable[str]]) -> Merges:
    """Convert from HF's notation, in which every byte is a printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    return (tuple(bytes(map(byte_of.__getitem__, part)) for part in merge) for merge in merges)


def train_ours(arguments: Arguments) -> Call:
    """Phase 1 of this framework, and phase 2 if there are rules, from files in any format that it reads."""
    from superbpe import train_superbpe
    from tokenizer import Corpus, CorpusConfig, count_pretokens, train_bpe

    facts: dict[str, Any] = {}

    def train() -> Any:
        started = time.perf_counter()
        corpus = Corpus(CorpusConfig(**arguments["corpus"]))
        counts = count_pretokens(corpus, arguments["pattern"], unit=arguments["unit"])
        counted = time.perf_counter()
        trained = train_bpe(counts, arguments["vocab_size"], special_tokens=())
        ended = time.perf_counter()
        facts.update(bytes=counts.n_bytes, counting=counted - started, merging=ended - counted)
        if arguments["rules"] is not None:
            trained = train_superbpe(
                trained,
                corpus.batches,
                vocab_size=arguments["vocab_size"],
                transition=min(arguments["transition"], trained.vocab_size),  # text can run out of pairs
                rules=arguments["rules"],
                memory_bytes=arguments["memory"],
            )
            facts.update({"phase 2": time.perf_counter() - ended} | trained.provenance["phase2"])
        return trained

    return train, lambda trained: _spelled(trained.merges), facts


def train_gigabpe(arguments: Arguments) -> Call:
    """Reads plain text itself, line by line. Twice as many threads as cores are faster than its default."""
    library: Any = importlib.import_module("gigabpe")
    settings = {"vocab_size": arguments["vocab_size"], "pretokenizer": "bytelevel", "special_tokens": []}
    settings["threads"] = 2 * (os.cpu_count() or 1)
    train = partial(library.train_bpe, arguments["paths"], **settings)
    return train, lambda trained: _spelled(_from_printable(trained[1])), {}


def train_gigatoken(arguments: Arguments) -> Call:
    """Reads memory-mapped plain text with separators."""
    library: Any = importlib.import_module("gigatoken")
    (source,), separator = arguments["paths"], arguments["separator"].encode()
    train = partial(library.train_bpe, source, arguments["vocab_size"], special_tokens=[], separator=separator)
    return train, lambda trained: _spelled(trained[1]), {}


def train_tokenizers(arguments: Arguments) -> Call:
    """HF: reads plain text itself, line by line, and splits it with one regex after the other."""
    library: Any = importlib.import_module("tokenizers")
    pre = library.pre_tokenizers

    def train() -> Any:
        trained = library.Tokenizer(library.models.BPE())
        splits = [pre.Split(library.Regex(regex), "isolated") for regex in arguments["regexes"]]
        trained.pre_tokenizer = pre.Sequence([*splits, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
        trainer = library.trainers.BpeTrainer(
            vocab_size=arguments["vocab_size"], show_progress=False, initial_alphabet=pre.ByteLevel.alphabet()
        )
        trained.train(arguments["paths"], trainer)
        return trained

    return train, lambda trained: _spelled(_from_printable(json.loads(trained.to_str())["model"]["merges"])), {}


# Encoders.

Ids = Any
"""Ids of a document: a list, an array, or bytes of little-endian uint32."""
Encoder = tuple[Callable[[str], Ids], Callable[[list[str]], Any], Callable[[Any], Iterable[Ids]]]
"""A library's fastest public functions: encode a document, encode a list, and the rows of the list's result."""

FIRST = "What is built at first use"


def encoder_ours(arguments: Arguments) -> Encoder:
    """This framework."""
    from tokenizer import Tokenizer

    loaded, threads = Tokenizer.load(arguments["folder"]), arguments["cores"]
    return (
        lambda text: loaded.encode_batch([text])[0],
        lambda texts: loaded.encode_batch(texts, threads=threads),
        lambda batch: _cut(*batch),
    )


def encoder_fastokens(arguments: Arguments) -> Encoder:
    """The flat batch creates no Python object per token, so it is used for single documents too."""
    library: Any = importlib.import_module("fastokens")
    loaded = library.Tokenizer.from_file(arguments["json"])
    return lambda text: loaded.encode_batch_flat([text])[0], loaded.encode_batch_flat, _flat


def encoder_gigatoken(arguments: Arguments) -> Encoder:
    """Its batches are arrays of the package `awkward`."""
    library: Any = importlib.import_module("gigatoken")
    loaded, parallel = library.Tokenizer(arguments["json"]), arguments["cores"] > 1
    return loaded.encode, lambda texts: loaded.encode_batch(texts, parallel=parallel), _arrays


def encoder_tokenizers(arguments: Arguments) -> Encoder:
    """HF: its ids are the reference."""
    library: Any = importlib.import_module("tokenizers")
    loaded = library.Tokenizer.from_file(arguments["json"])
    return (
        lambda text: loaded.encode(text, add_special_tokens=False).ids,
        lambda texts: loaded.encode_batch(texts, add_special_tokens=False),
        lambda encodings: (encoding.ids for encoding in encodings),
    )


def _cut(ids: Any, offsets: Any) -> Iterator[Any]:
    return (ids[start:end] for start, end in pairwise(offsets))


def _flat(batch: tuple[bytes, bytes]) -> Iterator[bytes]:
    """Rows of a pair of byte strings: all ids, and 64-bit offsets."""
    ids, offsets = memoryview(batch[0]).cast("I"), memoryview(batch[1]).cast("Q")
    return (bytes(row) for row in _cut(ids, offsets))


def _arrays(batch: Any) -> Iterator[Any]:
    """Rows of an `awkward.Array`."""
    awkward: Any = importlib.import_module("awkward")
    return _cut(awkward.flatten(batch).to_numpy(), [0, *awkward.num(batch).to_numpy().cumsum().tolist()])


def digest(ids: Ids) -> str:
    """Short hash of a document's ids."""
    spelled = ids if isinstance(ids, bytes) else array("I", ids).tobytes()
    return hashlib.blake2b(spelled, digest_size=8).hexdigest()


def encode(encoder: Callable[[Arguments], Encoder], arguments: Arguments) -> Call:
    """Encode documents of a text file, in one call for all, or in one call per document."""
    with open(arguments["text"], encoding="utf-8", newline="") as file:
        texts = file.read().split(arguments["separator"])
    n_bytes = sum(len(text.encode()) for text in texts)
    one, many, rows = encoder(arguments)
    one(FIRST)
    many([FIRST])

    if arguments["call"] == "batch":
        return partial(many, texts), lambda batch: map(digest, rows(batch)), {"bytes": n_bytes}
    return lambda: [one(text) for text in texts], lambda ids: map(digest, ids), {"bytes": n_bytes}


JOBS: dict[str, Callable[[Arguments], Call]] = {
    "train ours": train_ours,
    "train gigabpe": train_gigabpe,
    "train gigatoken": train_gigatoken,
    "train tokenizers": train_tokenizers,
    "encode ours": partial(encode, encoder_ours),
    "encode fastokens": partial(encode, encoder_fastokens),
    "encode gigatoken": partial(encode, encoder_gigatoken),
    "encode tokenizers": partial(encode, encoder_tokenizers),
}


def measure(name: str, arguments: Arguments) -> dict[str, Any]:
    """Run a job; return its measurements and its result."""
    bare = memory_mb("VmRSS")
    work, lines, facts = JOBS[name](arguments)
    cpu, started = time.process_time(), time.perf_counter()
    result = work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = memory_mb("VmHWM")
    facts |= {"seconds": seconds, "CPU s": cpu, "peak MB": peak, "above bare": peak - bare}
    return facts | {"lines": list(lines(result))}


def main() -> None:
    """Run the job that the command line names, on `arguments["cores"]` cores if it is given."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's own output must not mix with the answer
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    if (cores := arguments.get("cores")) is not None:
        os.environ["RAYON_NUM_THREADS"] = str(cores)
        if sys.platform == "linux":
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    try:
        facts = measure(name, arguments)
    except BaseException as error:  # an encoder's error, including a panic in Rust, is shown below the table
        if not name.startswith("encode"):
            raise
        facts = {"refused": str(error) or type(error).__name__, "lines": []}
    json.dump(facts, answer)
    answer.close()


if __name__ == "__main__":
    main()
