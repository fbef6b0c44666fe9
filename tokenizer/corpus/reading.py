"""Documents of files before they are filtered, read ahead on background threads.

The native core reads .txt and .jsonl (plain, gzip, zstd); pyarrow reads Parquet into buffers; Python reads the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import Any

from tokenizer import _native
from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.records import COMPRESSIONS, file_records
from tokenizer.corpus.remote import ZEROS, File, RemoteFile, concurrently
from tokenizer.corpus.rows import batch_records, dataset_records, read_parquet
from tokenizer.corpus.skipped import Skipped
from tokenizer.errors import UserError
from tokenizer.files import without_credentials

FILES_AHEAD = 4
"""Minimum number of remote files that are read at the same time, ahead of the consumer."""


def read_files(
    skipped: Skipped,
    files: Sequence[tuple[File, str] | None],
    config: CorpusConfig,
    readers: int = 1,
    in_order: bool = True,
    aligned: bool = False,
) -> Generator[_native.Batch]:
    """Documents of files (None: of the dataset) before the filter; unless `aligned`, without too long ones."""
    for native, group in groupby(files, key=lambda file: file is not None and file[1] in ("txt", "jsonl")):
        if not native:
            lacking = Skipped()
            yield from _ahead(_rows(list(group), config, lacking), lacking, skipped)
            continue
        named = [file for file in group if file]
        with feeding([path for path, _ in named], readers) as feeds:
            reader = _native.Reader(
                [(str(path), form, feed) for (path, form), feed in zip(named, feeds, strict=True)],
                field=config.field,
                separator=config.separator and config.separator.replace("\\n", "\n").replace("\\t", "\t"),
                score_field=config.score_field,
                min_score=0.0 if config.min_score is None else config.min_score,
                replace_invalid=config.on_invalid_utf8 == "replace",
                skip_damaged=config.on_error == "skip",
                batch_bytes=config.batch_bytes,
                document_limit_bytes=config.document_limit_bytes,
                skip_above=None if aligned else config.skip_above,
                threads=readers,
                in_order=in_order,
            )
            try:
                yield from reader
            finally:  # also if the rest is not wanted
                for file, count, places in reader.skipped():
                    skipped.add(file, count, places)


def _rows(files: Sequence[tuple[File, str] | None], config: CorpusConfig, skipped: Skipped) -> Iterator[_native.Batch]:
    for file in files:
        if file is None:
            yield from batch_records(dataset_records(config), config, skipped)
        elif file[1] == "parquet":
            yield from read_parquet(file[0], config, skipped)
        else:
            yield from batch_records(records_of(file, config), config, skipped, str(file[0]))


def records_of(file: tuple[File, str], config: CorpusConfig) -> Iterator[Any]:
    """Records of a file, on this machine or another: see `file_records`."""
    with feeding([file[0]], 1) as (feed,):
        yield from file_records(*file, feed, config)


def _ahead(batches: Iterator[_native.Batch], lacking: Skipped, skipped: Skipped) -> Iterator[_native.Batch]:
    """Prefetch batches on a background thread, so that decoding overlaps with the consumer's work.

    Args:
        batches: the batches.
        lacking: the parts skipped in `batches`, however many were read.
        skipped: gets what the batches lack that the consumer has taken.
    """
    for batch, known in concurrently(lambda _: (next(batches, None), lacking.take()), count(), 1):
        skipped.update(known)
        if batch is None:
            return
        yield batch


def _text_blocks(file: RemoteFile) -> Iterator[bytes]:
    """Blocks of a file of text. Zeros at the end of one are not damage of the file, to be skipped."""
    at = 0
    text = not file.url.lower().endswith(COMPRESSIONS)
    for block in file.blocks():
        at += len(block)
        if text and block.endswith(ZEROS):
            raise UserError(
                f"the bytes before byte {at} are zeros, which text does not have: the server may be faulty; if the "
                "file is so, download it and read it from disk"
            )
        yield block


@contextmanager
def feeding(files: Sequence[File], readers: int) -> Iterator[list[_native.Feed | None]]:
    """Feeds of all `files` but local ones, filled in their order by background threads; None for local files.

    Memory is at most `remote.BLOCK_BYTES` times `remote.AHEAD + 2` per file that is being read.

    Args:
        files: files in the order in which they are read.
        readers: number of files that the consumer reads at the same time.
    """
    feeds = [None if isinstance(file, Path) else _native.Feed() for file in files]
    pairs = zip(files, feeds, strict=True)
    left = iter([(file, feed) for file, feed in pairs if feed and isinstance(file, RemoteFile)])

    def run() -> None:
        for file, feed in left:
            try:
                if all(map(feed.put, _text_blocks(file))):
                    feed.end()
            except BaseException as error:  # reported where the file is read
                feed.end(without_credentials(error).removeprefix(f"{file}: "))

    # Files are fed in order, so the files that the consumer reads have a thread if there is one for each reader.
    for _ in range(min(len(feeds) - feeds.count(None), max(FILES_AHEAD, readers + 1))):
        threading.Thread(target=run, name="remote-file", daemon=True).start()  # not waited for at exit
    try:
        yield feeds
    finally:
        list(left)  # no further file is begun
        for feed in filter(None, feeds):
            feed.close()
