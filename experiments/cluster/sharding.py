"""Encode a corpus into shards by tasks, which encode a part each. This process writes the shards.

Where a shard ends depends on the tokens of all parts before it, so that the shards are those of one machine.
"""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from experiments.cluster.tasks import Task, returned
from lm.data.shard_writer import Encoded
from lm.data.sharding import check_complete, encode_batches, reading_threads
from tokenizer.durable import replacing
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from experiments.cluster.tasks import Cluster, Result
    from lm.data.shard_writer import Writer
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.interface import TokenizerLike


def encoded_by(
    cluster: Cluster, corpus: Corpus, split: Split, tokenizer: TokenizerLike, folder: Path, writer: Writer
) -> Generator[Encoded]:
    """The encoded documents that a writer lacks, in order; also writes its shards. A source for `write_encoded`.

    Args:
        cluster: where the tasks run.
        corpus: the corpus.
        split: side of its held-out split.
        tokenizer: encodes the documents.
        folder: folder for the tokens of the parts, which all machines see.
        writer: the writer.

    Raises:
        UserError: there are no documents, or fewer than in the finished shards.
    """
    tasks = [
        Task(f"encode-{i:05}", [split, tokenizer.sha256, part.part_identity()], partial(_encode, part, split))
        for i, part in enumerate(corpus.parts(split, cluster.part_bytes))
    ]
    done = writer.n_documents
    skipped, first = _written(tasks, folder, done)
    for result in cluster.run(tasks[len(skipped) :], (tokenizer, cluster.threads), folder):
        for encoded in _blocks(result, writer.encoder.dtype):
            n = len(encoded.ends)
            skip = min(max(done - first, 0), n)
            if skip < n:
                yield encoded.without(skip)
            first += n
        skipped.append(result.value["skipped"])
    check_complete(writer, done, first)
    corpus.skipped.add_parts(skipped)
    corpus.check_unchanged()
    if first == 0:
        for _ in corpus.batches(split):  # explains why there are no documents
            pass


def _written(tasks: Sequence[Task], folder: Path, done: int) -> tuple[list[dict[str, Any]], int]:
    """What was skipped of each of the first parts whose documents are all in finished shards; number of documents.

    These parts are deleted.

    Args:
        tasks: the tasks that encode the parts.
        folder: folder of their results.
        done: documents in finished shards.
    """
    skipped, first = [], 0
    for task in tasks:
        value = returned(task, folder)
        if value is None or first + value["documents"] > done:
            break
        task.data(folder).unlink(missing_ok=True)
        skipped.append(value["skipped"])
        first += value["documents"]
    return skipped, first


def _encode(part: Corpus, split: Split, shared: tuple[TokenizerLike, int], path: Path) -> dict[str, Any]:
    """Write blocks of tokens, and after them lists with a number per block, per document or per token."""
    tokenizer, threads = shared
    batches = part.batches(split, readers=reading_threads(threads))
    lists: dict[str, list[Any]] = {name: [np.empty(0, dtype)] for name, dtype in _LISTS.items()}
    with replacing(path) as file:
        for encoded in encode_batches(tokenizer, batches, threads):
            tokens = np.ascontiguousarray(encoded.stream).data
            file.write(tokens)
            block = {"documents": [len(encoded.ends)], "xxh3_64": [xxhash.xxh3_64_intdigest(tokens)]}
            for name, listed in {**block, **vars(encoded)}.items():
                if name in lists and listed is not None:
                    lists[name].append(np.asarray(listed, _LISTS[name]))
        arrays: dict[str, Any] = {name: np.concatenate(each) for name, each in lists.items() if len(each) > 1}
        at, packed = file.tell(), io.BytesIO()
        np.savez(packed, **arrays)
        file.write(packed.getbuffer())
    return {
        "documents": len(arrays.get("ends", ())),
        "skipped": part.part_skipped(),
        "lists": at,
        "xxh3_128": xxhash.xxh3_128_hexdigest(packed.getbuffer()),
    }


_LISTS = {"documents": "<i8", "xxh3_64": "<u8", "ends": "<i8", "sizes": "<i8", "normalized": "<i8", "covered": "<u4"}
"""Lists of a part: documents and checksum of each block, and arrays of `Encoded`."""


def _blocks(result: Result, dtype: str) -> Iterator[Encoded]:
    """The documents of each block of a part, with the place of their tokens."""
    with result.data.open("rb") as file:
        file.seek(result.value["lists"])
        packed = file.read()
    if xxhash.xxh3_128_hexdigest(packed) != result.value["xxh3_128"]:
        raise UserError(_damaged(result.data))
    with np.load(io.BytesIO(packed)) as arrays:
        lists = dict(arrays)
    at = document = token = 0
    for documents, digest in zip(lists.get("documents", ()), lists.get("xxh3_64", ()), strict=True):
        ends, sizes, normalized = (lists[name][document : document + documents] for name in _OF_DOCUMENTS)
        n = int(ends[-1])
        with result.data.open("rb") as file:
            file.seek(at)
            block = file.read(n * np.dtype(dtype).itemsize)
        if xxhash.xxh3_64_intdigest(block) != digest:
            raise UserError(_damaged(result.data))
        covered = lists["covered"][token : token + n] if "covered" in lists else None
        yield Encoded(np.frombuffer(block, dtype), ends, sizes, normalized, covered)
        at, document, token = at + len(block), document + int(documents), token + n


_OF_DOCUMENTS = ("ends", "sizes", "normalized")


def _damaged(path: Path) -> str:
    return f"{path} is damaged; delete it, then run the same command again"
