"""Records of files that Python parses: CSV, JSON, Parquet, and what `Dataset.save_to_disk` wrote."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tokenizer import _native
from tokenizer.corpus.rows import parquet_errors, too_long
from tokenizer.durable import is_damage
from tokenizer.errors import DataError, UserError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer.corpus.config import CorpusConfig
    from tokenizer.corpus.remote import File

COMPRESSIONS = (".gz", ".zst", ".zstd")


class _Decompressed(io.RawIOBase):
    """The content of a file, decompressed as for the native reader."""

    def __init__(self, path: File, feed: _native.Feed | None) -> None:
        self._stream = _native.Stream(str(path), feed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def opened(path: File, feed: _native.Feed | None = None) -> io.BufferedReader:
    """A file for reading its bytes, decompressed; `feed` supplies a remote one."""
    return io.BufferedReader(_Decompressed(path, feed), 1 << 16)


def ending(path: File | PurePath) -> str:
    """The ending of a file's name, without the dot and without endings of compression."""
    suffixes = [suffix for suffix in map(str.lower, PurePath(str(path)).suffixes) if suffix not in COMPRESSIONS]
    return suffixes[-1][1:] if suffixes else ""


def file_records(path: File, form: str, feed: _native.Feed | None, config: CorpusConfig) -> Iterator[Any]:
    """Records of a file of any form but txt; an error in place of each damaged one.

    If the file is damaged, the last one is an error. Malformed bytes are lone surrogates, unless they are replaced.
    """
    damage: tuple[type[Exception], ...] = (csv.Error, RecursionError, *parquet_errors())
    errors = "replace" if config.on_invalid_utf8 == "replace" else "surrogateescape"
    try:
        if form == "arrow":
            from datasets import Dataset

            yield from Dataset.from_file(str(path))
            return
        with opened(path, feed) as stream:
            if form == "csv":
                yield from _rows(
                    path, io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline=""), config
                )
                return
            if form == "jsonl":
                yield from (_parsed(number, line, errors) for number, line in enumerate(stream, 1) if line.strip())
                return
            if form == "parquet":
                yield from _parquet_rows(stream.read())
                return
            content = stream.read(config.document_limit_bytes + 1)
        if len(content) > config.document_limit_bytes:
            raise too_long(f"{path}: the JSON array", len(content), config)
        records = json.loads(content.decode("utf-8-sig", errors))
        yield from records if isinstance(records, list) else [DataError("is not a JSON array")]
    except UserError:
        raise
    except damage as error:
        if not is_damage(error):
            raise
        yield DataError(f"cannot be read to its end: {shortened(error)}")


def _parsed(number: int, line: bytes, errors: str) -> Any:
    try:
        return json.loads(line.decode("utf-8", errors).removeprefix("\ufeff"))
    except ValueError as error:
        return DataError(f"line {number} is not JSON: {shortened(error)}")


def _parquet_rows(content: bytes) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for rows in pq.ParquetFile(pa.BufferReader(content)).iter_batches():
        yield from rows.to_pylist()


class _Lines:
    """Lines of a file. The lines of a damaged row can be read again."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self._again = lines, list[str]()
        self.row = list[str]()
        """Lines read since the start of the row."""
        self.number = 1
        """Line where the row starts."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.row.append(self._again.pop() if self._again else next(self._lines))
        return self.row[-1]

    def end_row(self, n_lines: int) -> None:
        """End the row after this many of its lines."""
        self._again += reversed(self.row[n_lines:])
        self.number += n_lines
        self.row.clear()


def _rows(path: File, file: io.TextIOWrapper, config: CorpusConfig) -> Iterator[Any]:
    """Rows of a CSV file with a header as dictionaries.

    A misplaced quote or delimiter would move text to other fields or rows, so it is an error. The next row then starts
    on the next line, unless rows have several lines: it starts after the next quote that ends a field, if there is one.
    """
    csv.field_size_limit(max(csv.field_size_limit(), config.document_limit_bytes))
    delimiter = "\t" if ending(path) == "tsv" else ","
    closing = re.compile(rf'(?<!\\)"\s*(?:{delimiter}|$)')
    lines, header, multiline = _Lines(file), list[str](), False
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            if "field limit" in str(error):
                raise too_long(
                    f"{path}: a field of line {lines.number}", config.document_limit_bytes + 1, config
                ) from None
            what, rest = _mistake(lines, delimiter)
            yield DataError(what)
            if not header or (not rest and (multiline or not lines.row[-1].endswith(("\n", "\r")))):
                return
            n_lines = len(lines.row) if multiline else 1
            if multiline and not closing.search(rest) and next(filter(closing.search, lines), None) is not None:
                n_lines = len(lines.row)
            lines.end_row(n_lines)
            continue
        if row is None:
            return
        if header and row and len(row) != len(header):
            what = f"line {lines.number}: {len(row)} fields, but the header has {len(header)}"
            yield DataError(f"{what}; put fields that contain {delimiter!r} in quotes")
        elif header and row:
            fields: dict[str, Any] = dict(zip(header, row, strict=True))
            with suppress(KeyError, ValueError):
                fields[str(config.score_field)] = float(fields[str(config.score_field)] or "nan")
            yield fields
        header = header or row
        multiline |= len(lines.row) > 1
        lines.end_row(len(lines.row))


def _mistake(lines: _Lines, delimiter: str) -> tuple[str, str]:
    """Message about the misplaced quote of a row, and what follows it; nothing if it opens a field to the end."""
    row = "".join(lines.row)
    quoted = re.compile('"(?:[^"]|"")*+"')
    fields = re.compile(rf'(?:(?:{quoted.pattern}|(?!")[^{delimiter}\r\n]*)(?:{delimiter}|\r\n?|\n))*+')
    place = fields.match(row).end()  # type: ignore[union-attr]  # it matches nothing at least
    closed = quoted.match(row, place)
    if closed:
        place = closed.end() - 1
    line = lines.number + row.count("\n", 0, place)
    where = f"line {line}, column {place - row.rfind(chr(10), 0, place)}"
    if not closed:
        return f"{where}: the quoted field that starts here is not closed", ""
    escaped = ", not escaped with a backslash" if row[place - 1] == "\\" else ""
    return f'{where}: a quote inside a quoted field must be doubled (""){escaped}', row[place + 1 :]
