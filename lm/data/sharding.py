"""Encode a corpus into shards; reading, encoding and writing overlap."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.shard_writer import Encoded, Encoder, ShardWriter
from lm.data.shards import Shards
from tokenizer._native import Batch
from tokenizer.durable import new_folder
from tokenizer.fields import check_fields, declare
from tokenizer.files import temporary_folder
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from lm.data.shard_writer import Writer
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress

_MOST_READERS = 8
"""Each reader buffers up to 16 batches of text (64 MiB)."""


def reading_threads(threads: int | None) -> int:
    """Number of files to read at once while this many threads encode (None: all cores).

    Decompressing and parsing text takes at most a third of the time of encoding it.
    """
    return min(max(thread_count(threads) // 3, 1), _MOST_READERS)


@dataclass(frozen=True)
class ShardConfig:
    """Layout of an encoded corpus on disk.

    Attributes:
        tokens_per_shard: A new file is started once the last one has this many tokens; documents are never cut.
    """

    tokens_per_shard: int = declare(
        100_000_000, least=1, help="a new file is started once the last one has this many tokens"
    )

    def __post_init__(self) -> None:
        check_fields(self)


@contextmanager
def temporary_shards(tokenizer: TokenizerLike, texts: Sequence[str]) -> Iterator[Shards]:
    """Shards of texts in memory, which are deleted after the block."""
    with temporary_folder(None) as place:
        write_shards(place / "shards", tokenizer, [Batch.from_texts(list(texts))])
        yield Shards.open(place / "shards", tokenizer, verify="never")


def write_shards(
    folder: Path,
    tokenizer: TokenizerLike,
    batches: Iterable[Batch],
    config: ShardConfig | None = None,
    *,
    layout: type[Writer] = ShardWriter,
    threads: int | None = None,
    progress: Progress | None = None,
    n_bytes: int | None = None,
    skipped: Callable[[], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Encode documents into a folder of shards, which appears only when it is complete.

    The result does not depend on threads or batches.

    Args:
        folder: Target; must not exist or be empty.
        tokenizer: Encodes the documents; must have an `end_of_text`.
        batches: Documents, as `tokenizer.corpus.Corpus.batches` yields them.
        config: Size of the files.
        layout: Format of the files, one of `lm.data.layouts.LAYOUTS`.
        threads: Batches to encode at the same time; None uses all cores.
        progress: Called with ("shards", bytes of text done, `n_bytes`).
        n_bytes: Bytes of all documents, if known.
        skipped: Called after all documents: the number and places of the records that were left out, for the manifest
            (`Corpus.skipped.summary`).

    Returns:
        The manifest, as in `shards.json`, or `encoded.json` in another layout than ours.

    Raises:
        UserError: If the folder is not empty, there are no documents, or tokens do not spell their document.
    """
    encoder = Encoder(tokenizer, layout.dtype(tokenizer.vocab_size))
    source = encode_batches([encoder], batches, thread_count(threads))
    options: dict[str, Any] = {"layout": layout, "progress": progress, "n_bytes": n_bytes, "skipped": skipped}
    return write_encoded({folder: tokenizer}, source, config, **options)[0]


def write_encoded(
    targets: Mapping[Path, TokenizerLike],
    source: Generator[Sequence[Encoded]],
    config: ShardConfig | None = None,
    *,
    layout: type[Writer] = ShardWriter,
    progress: Progress | None = None,
    n_bytes: int | None = None,
    skipped: Callable[[], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """`write_shards` for documents that are encoded elsewhere, by several tokenizers.

    Args:
        targets: Folders, each as for `write_shards`, and the tokenizers that encode the documents for them.
        source: The documents in order: some of them, encoded by each tokenizer, again and again.
        config: As for `write_shards`.
        layout: As for `write_shards`.
        progress: As for `write_shards`.
        n_bytes: As for `write_shards`.
        skipped: As for `write_shards`.
    """
    size = (config or ShardConfig()).tokens_per_shard
    report = Throttle(progress, "shards", n_bytes)
    with ExitStack() as stack:
        folders = {stack.enter_context(new_folder(folder)): tokenizer for folder, tokenizer in targets.items()}
        writers = [stack.enter_context(layout(folder, tokenizer, size)) for folder, tokenizer in folders.items()]
        for group in stack.enter_context(closing(source)):
            for writer, encoded in zip(writers, group, strict=True):
                writer.add(encoded)
            report(writers[0].n_bytes)
        report.finish(writers[0].n_bytes)
        return [writer.finish(skipped() if skipped is not None else None) for writer in writers]


def copy_documents(folder: Path, tokenizer: TokenizerLike, shards: Shards, documents: NDArray[np.int64]) -> None:
    """Write some documents of a folder of shards, in the given order, into another.

    Args:
        folder: Target; must not exist.
        tokenizer: The tokenizer that wrote the shards.
        shards: The source.
        documents: Indices of the documents.
    """
    with ShardWriter(folder, tokenizer, ShardConfig().tokens_per_shard) as writer:
        for i in documents.tolist():
            span, one = shards.span(i), slice(i, i + 1)
            tokens = shards.tokens(span.start, span.stop).astype(writer.encoder.dtype)
            covered = None if shards.covered_bytes is None else shards.covered_bytes[span]
            sizes, normalized = shards.document_bytes[one], shards.normalized_bytes[one]
            writer.add(Encoded(tokens, np.array([len(tokens)]), sizes, normalized, covered))
        writer.finish()


def encode_batches(encoders: Sequence[Encoder], batches: Iterable[Batch], threads: int) -> Generator[Sequence[Encoded]]:
    """Encode documents in order, while the calling thread reads batches and writes results.

    Args:
        encoders: The encoders, each of which encodes all documents.
        batches: The documents.
        threads: Batches to encode at the same time.
    """
    # Two batches per thread: the current one and the next.
    most, first = max(2 * threads // len(encoders), 1), 0
    pending: deque[list[Future[Encoded]]] = deque()
    with ThreadPoolExecutor(threads, "encode") as pool:
        try:
            for batch in filter(len, batches):
                pending.append([pool.submit(encoder.encode, batch, first) for encoder in encoders])
                first += len(batch)
                if len(pending) > most:
                    yield [encoded.result() for encoded in pending.popleft()]
            while pending:
                yield [encoded.result() for encoded in pending.popleft()]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
