"""Encode a corpus into shards; reading, encoding and writing overlap."""

from __future__ import annotations

import math
import threading
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.shard_writer import EncodedBatch, ShardWriter
from lm.data.shards import Shards
from tokenizer._native import Batch
from tokenizer.durable import new_folder, partial_name, remove_folder, sync
from tokenizer.fields import check_fields, declare
from tokenizer.files import digest, read_sealed, temporary_folder, write_sealed
from tokenizer.progress import Throttle, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from lm.data.shard_writer import Writer
    from tokenizer.corpus.corpus import Corpus, Split
    from tokenizer.interface import TokenizerLike
    from tokenizer.progress import Progress

_PART = "part.json"
_REPORT_SECONDS = 0.1
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
    size = (config or ShardConfig()).tokens_per_shard
    report = Throttle(progress, "shards", n_bytes)
    with new_folder(folder) as partial, layout(partial, tokenizer, size) as writer:
        with closing(encode_batches([writer.encoder.encode], batches, thread_count(threads))) as source:
            for _, (encoded,) in source:
                writer.add(encoded)
                report(writer.n_bytes)
        report.finish(writer.n_bytes)
        return writer.finish(skipped() if skipped is not None else None)


def map_parts(
    work: Callable[[Corpus, int, Callable[[int], None]], dict[str, Any]],
    corpus: Corpus,
    split: Split,
    threads: int,
    report: Throttle,
) -> list[dict[str, Any]]:
    """Work on all parts of a corpus with the threads of this machine; returns the results in order.

    Args:
        work: Called with a part, a number of threads, and a function to call with the bytes of text done; returns
            `n_bytes` of text, and `skipped` as `Corpus.check_parts` takes it.
        corpus: The corpus.
        split: Side of its held-out split.
        threads: Threads of all work.
        report: Called with the bytes of text done.
    """
    parts = corpus.parts(split)
    n_bytes = [0] * len(parts)
    stopped = threading.Event()
    at_once = min(reading_threads(threads), len(parts))  # several parts, because a large file has one reader

    def run(i: int) -> dict[str, Any]:
        def done(n: int) -> None:
            n_bytes[i] = n
            if stopped.is_set():
                raise InterruptedError

        try:
            value = work(parts[i], math.ceil(threads / at_once), done)
        except BaseException as error:
            failures.append(error)
            raise
        n_bytes[i] = value["n_bytes"]  # also of a part that was there
        return value

    failures: list[BaseException] = []  # in the order of time
    with ThreadPoolExecutor(at_once, "parts") as pool:
        try:
            futures = [pool.submit(run, i) for i in range(len(parts))]
            while wait(futures, _REPORT_SECONDS, FIRST_EXCEPTION).not_done and not failures:
                report(sum(n_bytes))
            if failures:
                raise failures[0]
            values = [future.result() for future in futures]
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
    corpus.check_parts(split, values)
    report.finish(sum(n_bytes))
    return values


def write_part(
    targets: Mapping[Path, TokenizerLike],
    config: ShardConfig,
    split: Split,
    part: Corpus,
    threads: int,
    done: Callable[[int], None],
    look: Callable[[Batch, int], object] | None = None,
) -> dict[str, Any]:
    """Encode a part of a corpus for `join_parts`, except for what is there. Several processes may do the same.

    Args:
        targets: Folders of shards, and the tokenizers that encode the documents for them.
        config: Size of the files.
        split: Side of the held-out split.
        part: The part.
        threads: Batches to encode at the same time.
        done: Called with the bytes of text done.
        look: Called with every batch of text and the number of documents before it, in several threads.

    Returns:
        `n_bytes` of text, and `skipped` as `Corpus.check_parts` takes it.
    """
    folders = {part_folder(target, part): tokenizer for target, tokenizer in targets.items()}
    missing = {folder: partial_name(folder) for folder in folders if not folder.exists()}
    with ExitStack() as stack:
        writers = {
            folder: stack.enter_context(ShardWriter(partial, folders[folder], config.tokens_per_shard))
            for folder, partial in missing.items()
        }
        if not writers and look is None:
            return read_sealed(min(folders) / _PART)
        encoders: list[Callable[[Batch, int], Any]] = [writer.encoder.encode for writer in writers.values()]
        if look is not None:
            encoders.append(look)
        batches = part.batches(split, readers=reading_threads(threads))
        n_bytes = 0
        for size, group in stack.enter_context(closing(encode_batches(encoders, batches, threads))):
            for writer, encoded in zip(writers.values(), group, strict=False):
                writer.add(encoded)
            n_bytes += size
            done(n_bytes)
        about = {"n_bytes": n_bytes, "skipped": part.skipped.so_far()}
        for folder, writer in writers.items():
            write_sealed(writer.folder / _PART, {**about, "shards": writer.finish_part()})
            sync(writer.folder)
            try:
                writer.folder.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
                remove_folder(writer.folder)  # another process was faster
    return about


def part_folder(target: Path, part: Corpus) -> Path:
    """Folder of the tokens of a part of a corpus, until they are joined."""
    return target.with_name("parts") / digest(part.part_identity())[:16]


def join_parts(
    target: Path, tokenizer: TokenizerLike, config: ShardConfig, parts: Iterable[Corpus], skipped: dict[str, Any]
) -> dict[str, Any]:
    """Make a folder of shards of what `write_part` has written; files of tokens are moved. Returns the manifest.

    After a kill it can be called again, until the folder `parts` is removed.

    Args:
        target: The folder, one of the targets.
        tokenizer: The tokenizer that encoded the documents.
        config: Size of the files.
        parts: All parts of the corpus, in order.
        skipped: As for `Writer.finish`.
    """
    with ShardWriter(target, tokenizer, config.tokens_per_shard) as writer:
        for part in parts:
            folder = part_folder(target, part)
            writer.append_part(folder, read_sealed(folder / _PART)["shards"])
        return writer.finish(skipped)


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
            writer.add(EncodedBatch(tokens, np.array([len(tokens)]), sizes, normalized, covered))
        writer.finish()


def encode_batches(
    encoders: Sequence[Callable[[Batch, int], Any]], batches: Iterable[Batch], threads: int
) -> Generator[tuple[int, Sequence[Any]]]:
    """Encode documents in order, while the calling thread reads batches and writes results.

    Args:
        encoders: `Encoder.encode` of the encoders, each of which encodes all documents.
        batches: The documents.
        threads: Batches to encode at the same time.

    Yields:
        The bytes of each batch, and the results of the encoders.
    """
    # Two batches per thread: the current one and the next.
    most = max(2 * threads // len(encoders), 1)
    first = 0
    pending: deque[tuple[int, list[Future[Any]]]] = deque()
    with ThreadPoolExecutor(threads, "encode") as pool:
        try:
            for batch in filter(len, batches):
                pending.append((batch.n_bytes, [pool.submit(encode, batch, first) for encode in encoders]))
                first += len(batch)
                if len(pending) > most:
                    yield _encoded(*pending.popleft())
            while pending:
                yield _encoded(*pending.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _encoded(n_bytes: int, results: Sequence[Future[Any]]) -> tuple[int, Sequence[Any]]:
    return n_bytes, [result.result() for result in results]
