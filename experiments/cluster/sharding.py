"""Encode a corpus by tasks: each encodes a part, and this process writes their tokens to shards in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cluster.tasks import Task
from lm.data.shard_writer import Encoded
from lm.data.sharding import check_complete, encode_batches, reading_threads
from tokenizer import storage
from tokenizer.checksums import checksum
from tokenizer.durable import replacing
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from experiments.cluster.tasks import Cluster, Result
    from lm.data.shard_writer import Writer
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.interface import TokenizerLike

_COLUMNS = ("stream", "ends", "sizes", "normalized", "covered")
"""Arrays of `Encoded` that a task returns. `covered` is the last, because it may be missing."""


def encoded_by(
    cluster: Cluster, corpus: Corpus, split: Split, tokenizer: TokenizerLike, folder: Path, writer: Writer
) -> Generator[Encoded]:
    """The encoded documents that a writer lacks, in order: a source for `write_encoded`.

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
    done, first = writer.n_documents, 0
    skipped = []
    for result in cluster.run(tasks, (tokenizer, cluster.threads), folder):
        n = result.value["documents"]
        skip = min(max(done - first, 0), n)
        if skip < n:
            yield _read(result).without(skip)
        first += n
        skipped.append(result.value["skipped"])
    check_complete(writer, done, first)
    corpus.skipped.add_parts(skipped)
    corpus.check_unchanged()
    if first == 0:
        for _ in corpus.batches(split):  # explains why there are no documents
            pass


def _encode(part: Corpus, split: Split, shared: tuple[TokenizerLike, int], path: Path) -> dict[str, Any]:
    tokenizer, threads = shared
    batches = part.batches(split, readers=reading_threads(threads))
    arrays: dict[str, list[Any]] = {}
    end = documents = 0
    for encoded in encode_batches(tokenizer, batches, threads):
        columns = {**vars(encoded), "ends": encoded.ends + end}
        end, documents = end + len(encoded.stream), documents + len(encoded.ends)
        for name in _COLUMNS:
            if columns[name] is not None:
                arrays.setdefault(name, []).append(columns[name])
    with replacing(path) as file:
        for parts in arrays.values():
            header = np.lib.format.header_data_from_array_1_0(parts[0])
            np.lib.format.write_array_header_1_0(file, header | {"shape": (sum(map(len, parts)),)})
            for each in parts:
                file.write(np.ascontiguousarray(each).data)
    return {"documents": documents, "skipped": part.part_skipped(), "arrays": len(arrays), "xxh3_128": checksum(path)}


def _read(result: Result) -> Encoded:
    """Encoded documents of a part. An .npz file, whose checksums are slow, would be a tenth of the work of encoding."""
    if checksum(result.data) != result.value["xxh3_128"]:
        raise UserError(
            f"{result.data} is damaged; delete it and the .json file of the same name, then run the same command again"
        )
    with storage.disk.open(result.data, "rb") as file:
        arrays = [np.lib.format.read_array(file, allow_pickle=False) for _ in range(result.value["arrays"])]
    return Encoded(*arrays, *[None] * (len(_COLUMNS) - len(arrays)))
