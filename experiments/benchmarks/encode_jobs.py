"""One encoder in a separate process: `python encode_jobs.py CONTENDER ARGUMENTS`, prints a JSON object.

Like `peers_jobs`, it runs in the peers' environment and in ours. Each document is encoded once in the first pass (cold)
and again in the second (warm), because caches speed up repeated text. Loading and a short warm-up text, which triggers
lazy initialization, are not timed. Digests of the ids of the first documents are written to a file.

No regex for the pattern `cl100k` works in HF's engine and in all these encoders; they get its name and ranks.
"""

# ruff: noqa: PTH123 (as in `peers_jobs`)

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # an isolated interpreter does not search the script's folder
from peers_jobs import memory_mb  # type: ignore[import-not-found,unused-ignore]

FIRST = "What is built at first use"
Ids = Any
"""Ids of a document: a list, an array, or bytes of little-endian uint32."""


@dataclass(frozen=True)
class Library:
    """The fastest public functions of a library.

    Attributes:
        one: Encodes a document.
        many: Encodes a list of documents.
        rows: Ids of each document in a result of `many` or `files`.
        files: Encodes a file of documents with separators; None if the library does not read files.
        count: Counts tokens on the given number of threads without keeping ids, to measure the memory of a thread.
    """

    one: Callable[[str], Ids]
    many: Callable[[list[str]], Any]
    rows: Callable[[Any], Iterable[Ids]]
    files: Callable[[str, str], Any] | None = None
    count: Callable[[list[str], int], Any] | None = None


def ours(arguments: dict[str, Any]) -> Library:
    """This framework."""
    from tokenizer import Corpus, CorpusConfig, Tokenizer

    loaded, threads = Tokenizer.load(arguments["folder"]), arguments["cores"]

    def files(path: str, separator: str) -> Any:
        corpus = Corpus(CorpusConfig(paths=[path], separator=separator))
        return [loaded.encode_batch(batch, threads=threads) for batch in corpus.batches()]

    return Library(
        one=lambda text: loaded.encode_to_numpy(text, disallowed_special=()),
        many=lambda texts: [loaded.encode_batch(texts, threads=threads)],
        rows=lambda parts: (row for ids, offsets in parts for row in _cut(ids, offsets)),
        files=files,
        count=lambda texts, threads: loaded.count_tokens_batch(texts, threads=threads),
    )


def fastokens(arguments: dict[str, Any]) -> Library:
    """The flat batch creates no Python object per token, so it is used for single documents too."""
    library: Any = importlib.import_module("fastokens")
    if arguments["cl100k"]:
        loaded = library.Tokenizer.from_tiktoken(arguments["ranks"], encoding="cl100k_base")
    else:
        loaded = library.Tokenizer.from_file(arguments["json"])
    return Library(lambda text: loaded.encode_batch_flat([text])[0], loaded.encode_batch_flat, _flat)


def gigatoken(arguments: dict[str, Any]) -> Library:
    """Reads files itself."""
    library: Any = importlib.import_module("gigatoken")
    if arguments["cl100k"]:
        loaded = library.gigatoken_rs.BPETokenizer.from_tiktoken(arguments["ranks"], "gpt4")
    else:
        loaded = library.Tokenizer(arguments["json"])
    parallel = arguments["cores"] > 1

    def files(path: str, separator: str) -> Any:
        return loaded.encode_files(library.TextFileSource([path], separator=separator), parallel=parallel)

    return Library(loaded.encode, lambda texts: loaded.encode_batch(texts, parallel=parallel), _arrays, files)


def splintr_rs(arguments: dict[str, Any]) -> Library:
    """The distribution is named splintr-rs, the package splintr."""
    library: Any = importlib.import_module("splintr")
    if arguments["cl100k"]:
        loaded = library.Tokenizer(arguments["ranks"], library.CL100K_BASE_PATTERN, {})
    else:
        loaded = library.from_json(arguments["json"])
    return Library(loaded.encode_flat, loaded.encode_batch_flat, _flat)


def tiktoken(arguments: dict[str, Any]) -> Library:
    """Loads our ranks, and the pattern from the file beside them."""
    library: Any = importlib.import_module("tiktoken")
    if arguments["ranks"] is None:
        raise ValueError(arguments["no_ranks"])
    with open(arguments["ranks"] + ".json", encoding="utf-8") as file:
        pattern = json.load(file)["pat_str"]
    ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(arguments["ranks"])
    loaded = library.Encoding("benchmark", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    threads = arguments["cores"]
    return Library(
        loaded.encode_ordinary,
        lambda texts: loaded.encode_ordinary_batch(texts, num_threads=threads),
        lambda rows: rows,
    )


def tokenizers(arguments: dict[str, Any]) -> Library:
    """HF: its ids are the reference."""
    library: Any = importlib.import_module("tokenizers")
    loaded = library.Tokenizer.from_file(arguments["json"])
    return Library(
        one=lambda text: loaded.encode(text, add_special_tokens=False).ids,
        many=lambda texts: loaded.encode_batch(texts, add_special_tokens=False),
        rows=lambda encodings: (encoding.ids for encoding in encodings),
    )


CONTENDERS = {
    "ours": ours,
    "fastokens": fastokens,
    "gigatoken": gigatoken,
    "splintr-rs": splintr_rs,
    "tiktoken": tiktoken,
    "tokenizers": tokenizers,
}


def _cut(ids: Any, offsets: Any) -> Iterator[Any]:
    return (ids[start:end] for start, end in pairwise(offsets))


def _flat(found: tuple[bytes, bytes]) -> Iterator[bytes]:
    """Rows of a pair of byte strings: all ids, and 64-bit offsets."""
    ids, offsets = memoryview(found[0]).cast("I"), memoryview(found[1]).cast("Q")
    return (bytes(row) for row in _cut(ids, offsets))


def _arrays(found: Any) -> Iterator[Any]:
    """Rows of an `awkward.Array`."""
    awkward: Any = importlib.import_module("awkward")
    return _cut(awkward.flatten(found).to_numpy(), [0, *awkward.num(found).to_numpy().cumsum().tolist()])


def digest(ids: Ids) -> str:
    """Short hash of a document's ids."""
    spelled = ids if isinstance(ids, bytes) else array("I", ids).tobytes()
    return hashlib.blake2b(spelled, digest_size=8).hexdigest()


def first(texts: list[str], n_bytes: int | None) -> list[str]:
    """The first documents, up to about `n_bytes` bytes of UTF-8."""
    if n_bytes is None:
        return texts
    found: list[str] = []
    for text in texts:
        if n_bytes <= 0:
            break
        found.append(text)
        n_bytes -= len(text.encode())
    return found


def cut(texts: list[str], length: int) -> list[str]:
    """Cut texts into documents of at most `length` bytes of UTF-8, between characters.

    >>> cut(["naïve!"], 4)
    ['naï', 've!']
    """
    found = []
    for text in texts:
        spelled = text.encode()
        start = 0
        while start < len(spelled):
            end = min(start + length, len(spelled))
            while end < len(spelled) and spelled[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
            found.append(spelled[start:end].decode())
            start = end
    return found


def passes(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Do the work twice; return the result of the first pass, and clock and CPU seconds of both."""
    facts: dict[str, float] = {}
    given = None
    for name in ("cold", "warm"):
        clock, cpu = time.perf_counter(), time.process_time()
        found = work()
        facts |= {name: time.perf_counter() - clock, f"{name} cpu": time.process_time() - cpu}
        given = found if name == "cold" else given
        del found
    return given, facts


def measure(name: str, arguments: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return digests of the first documents' ids, and the measurements."""
    with open(arguments["text"], encoding="utf-8", newline="") as file:
        texts = first(file.read().split(arguments["separator"]), arguments["max_bytes"])
    if arguments["length"] is not None:
        texts = cut(texts, arguments["length"])
    started = time.perf_counter()
    library = CONTENDERS[name](arguments)
    library.one(FIRST)
    loaded = time.perf_counter() - started
    call = arguments["call"]
    if call == "files":
        files = library.files
        if files is None:
            message = "it does not read files"
            raise ValueError(message)
        few = arguments["out"] + ".txt"
        with open(few, "w", encoding="utf-8") as file:
            file.write(FIRST)
        files(few, arguments["separator"])
        given, facts = passes(lambda: files(arguments["text"], arguments["separator"]))
    elif call == "batch":
        library.many([FIRST])
        given, facts = passes(lambda: library.many(texts))
    else:
        one = library.one
        given, facts = passes(lambda: [one(text) for text in texts])
    if call == "batch" and library.count is not None:
        facts["thread_mb"] = _memory_per_thread(library.count, texts, arguments["cores"])
    rows = given if call == "loop" else library.rows(given)
    checked = len(first(texts, arguments["checked_bytes"]))
    digests = [digest(ids) for ids, _ in zip(rows, range(checked), strict=False)]
    n_bytes = sum(len(text.encode()) for text in texts)
    return digests, facts | {"load": loaded, "bytes": n_bytes, "peak_mb": memory_mb("VmHWM")}


_MORE_THREADS = 4


def _memory_per_thread(count: Callable[[list[str], int], Any], texts: list[str], cores: int) -> float:
    """Memory in MB that each additional thread keeps after working on the text."""
    count(texts, cores)
    before = memory_mb("VmRSS")
    count(texts, cores + _MORE_THREADS)
    return float(max(memory_mb("VmRSS") - before, 0.0) / _MORE_THREADS)


def main() -> None:
    """Run the contender that the command line names, on the given number of cores."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's own output must not mix with the answer
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    cores = arguments["cores"]
    os.environ["RAYON_NUM_THREADS"] = str(cores)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    try:
        digests, facts = measure(name, arguments)
    except BaseException as error:  # any error of a library, including a panic in Rust, is shown below the table
        digests, facts = [], {"refused": str(error) or type(error).__name__}
    with open(arguments["out"], "w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in digests)
    json.dump(facts, answer)
    answer.close()


if __name__ == "__main__":
    main()
