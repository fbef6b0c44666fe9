"""Documents from rows: Parquet files, columns, and records of datasets."""

from __future__ import annotations

import re
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer import _native
from tokenizer.corpus.remote import RemoteFile
from tokenizer.corpus.skipped import PLACES
from tokenizer.durable import is_damage
from tokenizer.errors import DataError, UserError, listed, shortened
from tokenizer.system import sparse_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokenizer.corpus.config import CorpusConfig
    from tokenizer.corpus.remote import File
    from tokenizer.corpus.skipped import Skipped

_PARQUET_ROWS, _DELTA_ROWS = 1024, 16
"""Most and fewest rows that are decoded at a time; the fewest with delta encoding, whose texts have unknown lengths."""
_SKEW = 16
"""Texts may be this many times as long as on average before more than a few batches of them are decoded."""
_BUFFER_BYTES = 1 << 20
FOOTER_BYTES = 1 << 16
"""Bytes that are read of the end of a remote Parquet file; more if its metadata are longer."""
_SET_FIELD = "name the one that holds the text with field=NAME"
_SET_SCORE = "name the one that holds the score with score_field=NAME"


def parquet_errors() -> tuple[type[Exception], ...]:
    """Errors that pyarrow raises while it reads a damaged Parquet file."""
    import pyarrow as pa

    return (pa.ArrowException, KeyError, OSError, RuntimeError, TypeError, ValueError)


def read_parquet(path: File, config: CorpusConfig, skipped: Skipped) -> Iterator[_native.Batch]:
    """Read row groups as buffers and offsets, without a Python object per document.

    Args:
        path: the file.
        config: how to read it.
        skipped: gets rows without a text, and what `on_error=skip` leaves out, before the batch that lacks it: the rest
            of damaged row groups, whose rows become empty documents, as in JSON lines.
    """
    import pyarrow.parquet as pq

    where = f"{path}: "
    places = list[str]()
    count = done = end = 0

    @cache
    def check_answers() -> None:
        """Read all of a remote file: answers that do not agree are an error, and not damage."""
        deque(path.blocks() if isinstance(path, RemoteFile) else (), 0)

    try:
        with _explained(f"{where}not a Parquet file"):
            file = pq.ParquetFile(_footer(path))
    except DataError as error:
        if config.on_error != "skip":
            raise
        check_answers()
        skipped.add(str(path), 1, [str(error).removeprefix(where)])
        return
    for i in range(file.metadata.num_row_groups):
        end += file.metadata.row_group(i).num_rows
        try:
            columns = _columns(file.schema_arrow, where, config)
            for rows in _row_group(path, file, i, columns, config):
                batch, bad = _documents(rows, columns, where, done, config)
                if bad:
                    count += len(bad)
                    places = [*places, *bad][:PLACES]
                    skipped.add(str(path), count, places)
                done += len(rows)
                yield batch
        except DataError as error:
            if config.on_error != "skip":
                raise
            if isinstance(error, _DamageError):
                check_answers()
            count += end - done
            places.append(f"rows {done} to {end - 1}: {str(error).removeprefix(where)}")
            skipped.add(str(path), count, places)
            yield _native.Batch.from_buffers(np.empty(0, np.uint8), np.zeros(end - done + 1, np.int64))
            done = end


class _DamageError(DataError):
    """pyarrow cannot read the content."""


@contextmanager
def _explained(what: str, remedy: str = "") -> Iterator[None]:
    """Raise errors of pyarrow as a limit of pyarrow or of the memory, as damage, or as a failure of the disk."""
    import pyarrow as pa

    errors: tuple[type[Exception], ...] = (MemoryError, *parquet_errors())
    try:
        yield
    except UserError:  # of a remote file
        raise
    except errors as error:
        reason = shortened(error)
        place = what.rpartition(": ")[0]
        if isinstance(error, MemoryError):
            raise UserError(f"{place}: {reason}; free memory, or write the file with smaller row groups") from None
        if isinstance(error, NotImplementedError) or re.search("(?i)not (yet )?implemented|codec|decrypt", reason):
            raise UserError(
                f"{place}: pyarrow {pa.__version__} cannot read this file: {reason}; write it with another encoding or "
                "compression"
            ) from None
        kind = _DamageError if is_damage(error) else UserError
        raise kind(f"{what}: {reason}{remedy}") from None


def _footer(file: File) -> Any:
    """A file that pyarrow can open; of a remote file, only the metadata are read."""
    if not isinstance(file, RemoteFile):
        return file
    import pyarrow as pa

    size = file.stat.size
    tail = b"".join(file.blocks(max(0, size - FOOTER_BYTES)))
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < needed <= size:
        tail = b"".join(file.blocks(size - needed))
    return pa.BufferReader(tail)


@contextmanager
def _chunks(file: RemoteFile, metadata: Any, i: int, columns: Sequence[str]) -> Iterator[str]:
    """A file that has only the given columns (dotted paths) of row group `i`, and holes elsewhere.

    Arrow must not call a Python file: a call that waits for a server would abort the process at its exit.
    """
    import pyarrow.parquet as pq

    with sparse_file() as (content, path):
        content.truncate(file.stat.size)
        # `group.column` aborts the process if the metadata are damaged. Reading checks them, and then finds no page.
        try:
            empty = pq.ParquetFile(path, metadata=metadata, buffer_size=_BUFFER_BYTES)
            next(empty.iter_batches(1, row_groups=[i], columns=columns, use_threads=False), None)
        except OSError as error:
            if "page header" not in str(error):
                raise
        group = metadata.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in columns:
                at = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
                content.seek(at)
                # As Arrow: some old writers did not count the header of the dictionary.
                for block in file.blocks(at, min(file.stat.size, at + column.total_compressed_size + 100)):
                    content.write(block)
        content.flush()
        yield path


def _row_group(path: File, file: Any, i: int, columns: Sequence[list[str]], config: CorpusConfig) -> Iterator[Any]:
    """Rows of row group `i` of a file; `file` has the metadata."""
    import pyarrow.parquet as pq

    names = [".".join(column) for column in columns]
    with (
        _explained(f"{path}: damaged Parquet file", "; download or write it again"),
        _chunks(path, file.metadata, i, names) if isinstance(path, RemoteFile) else nullcontext(str(path)) as source,
    ):
        rows = _batch_rows(source, file.metadata, i, columns[0], f"{path}: ", config)
        file = pq.ParquetFile(source, metadata=file.metadata, buffer_size=_BUFFER_BYTES)
        # Arrow's own threads are not faster for a single column.
        yield from file.iter_batches(rows, row_groups=[i], columns=names, use_threads=False)


def _batch_rows(source: str, metadata: Any, i: int, column: list[str], where: str, config: CorpusConfig) -> int:
    """Rows of which at most a few batches of text are decoded: an encoding may store repeated text once."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    name = ".".join(column)

    def first_row(**options: Any) -> Any:
        file = pq.ParquetFile(source, metadata=metadata, buffer_size=_BUFFER_BYTES, **options)
        rows = next(file.iter_batches(1, row_groups=[i], columns=[name], use_threads=False), None)
        return None if rows is None else _inside(rows, column)

    if (text := first_row()) is None:
        return 1
    _as_bytes(text, f"{where}field {config.field!r}")
    group = metadata.row_group(i)
    (chunk,) = (part for part in map(group.column, range(group.num_columns)) if part.path_in_schema == name)
    if any("DELTA" in encoding for encoding in chunk.encodings):
        return _DELTA_ROWS
    longest: int = _SKEW * chunk.total_uncompressed_size // max(chunk.num_values, 1)
    if any("DICTIONARY" in encoding for encoding in chunk.encodings):
        text = first_row(read_dictionary=[name])
        if pa.types.is_dictionary(text.type):
            longest = max(longest, pc.max(pc.binary_length(text.dictionary)).as_py() or 0)
    # Few rows at a time are slow: with texts of the average length, up to 16 may be four batches of them.
    most = 4 * _SKEW * config.batch_bytes // max(longest, 1)
    return max(1, min(_DELTA_ROWS, most), min(_PARQUET_ROWS, most // _SKEW))


def _documents(
    rows: Any, columns: Sequence[list[str]], where: str, first: int, config: CorpusConfig
) -> tuple[_native.Batch, list[str]]:
    """Documents of rows, and places of those that are missing: null, or not UTF-8 with `on_error=skip`."""
    import pyarrow.compute as pc

    texts = _as_bytes(_inside(rows, columns[0]), f"{where}field {config.field!r}")
    numbers = np.arange(first, first + len(rows))
    for score in columns[1:]:
        keep = pc.greater_equal(_inside(rows, score).cast("float64"), config.min_score)
        keep = pc.fill_null(keep, fill_value=False)
        if config.on_error == "skip":
            texts = pc.if_else(keep, texts, b"")
        else:
            texts, numbers = texts.filter(keep), numbers[keep.to_numpy(zero_copy_only=False)]
    return _batch(texts, where, numbers, config)


def _columns(schema: Any, where: str, config: CorpusConfig) -> list[list[str]]:
    """Path of the column with the text and, if there is a `score_field`, of the one with the score."""
    from pyarrow import types

    text, _ = _column(schema, config.field, f"{where}no field", _SET_FIELD)
    if config.score_field is None:
        return [text]
    score, kind = _column(schema, config.score_field, f"{where}score_field: no field", _SET_SCORE)
    if not any(check(kind) for check in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        raise DataError(f"{where}score_field={config.score_field} holds {kind}, not numbers; {_SET_SCORE}")
    return [text, score]


def _column(schema: Any, dotted: str, what: str, remedy: str) -> tuple[list[str], Any]:
    """Path and type of a column; `dotted` is its name, or a dotted path if no column has this name."""
    import pyarrow as pa

    path = [dotted] if dotted in schema.names else dotted.split(".")
    kind = pa.struct(list(schema))
    for i, name in enumerate(path):
        names = [kind.field(j).name for j in range(kind.num_fields)] if pa.types.is_struct(kind) else []
        if name not in names:
            inside = f"{'.'.join(path[:i])!r} holds {kind}, whose values have no fields"
            fields = inside if i and not names else f"the fields are: {listed(names)}"
            raise DataError(f"{what} {dotted!r} ({fields}); {remedy}")
        kind = kind.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
    return path, kind


def _inside(rows: Any, path: Sequence[str]) -> Any:
    """The column at a path of an Arrow table or record batch; null where a value on the way is null."""
    import pyarrow.compute as pc

    column = rows[path[0]]
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def batch_column(column: Any, config: CorpusConfig, skipped: Skipped, part: str = "") -> Iterator[_native.Batch]:
    """Batches of the texts of an Arrow array, or of a column that can be exported as one (pandas, polars).

    Args:
        column: the column; it may also be a table, which has the column `config.field`.
        config: how to read it.
        skipped: gets the rows without a text.
        part: start of messages about one of several columns.

    Raises:
        UserError: the column does not hold text, or text that is not UTF-8.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    what, field, root = f"{part}the column", "", ""
    names = getattr(column, "column_names", None) or getattr(column, "columns", None)
    if names is not None:
        what, field, names = f"{part}field {config.field!r}", config.field, list(names)
        root = config.field if config.field in names else config.field.split(".")[0]
        if root not in names:
            raise DataError(f"no field {config.field!r} (the fields are: {listed(names)}); {_SET_FIELD}")
        column = column[root]
    try:
        chunked = pa.chunked_array(column if hasattr(column, "__arrow_c_stream__") else [column])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UserError(f"{what} does not hold text: {shortened(error)}") from None
    table = pa.table([chunked], names=[root])
    first = 0
    path, _ = _column(table.schema, field, "no field", _SET_FIELD)
    count, places = 0, list[str]()
    for chunk in table.to_batches():
        try:
            size = chunk.nbytes
        except pa.ArrowTypeError:  # PyArrow 23 and older cannot tell, of views
            size = chunk.get_total_buffer_size()
        rows = max(1, config.batch_bytes * len(chunk) // max(size, 1))
        texts = _inside(chunk, path)
        _as_bytes(texts.slice(0, 1), what)  # before its values are measured
        if pa.types.is_dictionary(texts.type):  # its values repeat
            longest = pc.max(pc.binary_length(texts.dictionary)).as_py() or 1
            rows = max(1, min(rows, _PARQUET_ROWS, 4 * config.batch_bytes // longest))
        for start in range(0, len(chunk), rows):
            numbers = np.arange(first + start, first + min(start + rows, len(chunk)))
            batch, missing = _batch(_as_bytes(texts.slice(start, rows), what), "", numbers, config)
            if missing:
                count, places = count + len(missing), [*places, *missing][:PLACES]
                skipped.add(what, count, places)
            yield batch
        first += len(chunk)


def _as_bytes(texts: Any, what: str) -> Any:
    """A column of text as bytes: malformed text is reported later, with its position."""
    import pyarrow as pa

    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    names = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "null")
    if str(texts.type) not in names:
        raise DataError(f"{what} holds {texts.type}, not text; {_SET_FIELD}")
    return texts.cast(pa.large_binary())


def _batch(texts: Any, where: str, numbers: NDArray[np.int64], config: CorpusConfig) -> tuple[_native.Batch, list[str]]:
    """Documents of a column of bytes, whose rows have these numbers, and places of those that are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > config.document_limit_bytes and config.skip_above is None:
        raise too_long(f"{where}a document of rows {numbers[0]} to {numbers[-1]}", longest, config)
    missing = dict.fromkeys(pc.indices_nonzero(texts.is_null()).to_pylist() if texts.null_count else [], "null")
    texts = pa.concat_arrays([pc.fill_null(texts, b"")])  # copies slices, so that offsets start at 0
    _, offsets, data = texts.buffers()
    try:
        return _native.Batch.from_buffers(
            np.frombuffer(data or b"", np.uint8),
            np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1],
            replace_invalid=config.on_invalid_utf8 == "replace",
        ), [f"row {numbers[i]}: null" for i in missing]
    except UserError as error:
        if config.on_error != "skip":
            raise UserError(f"{where}{error}") from None
    values = texts.to_pylist()
    decoded = [value.decode(errors="replace") for value in values]
    bad = [i for i, (text, value) in enumerate(zip(decoded, values, strict=True)) if text.encode() != value]
    for i in bad:
        decoded[i], missing[i] = "", "not UTF-8"
    return _native.Batch.from_texts(decoded), [f"row {numbers[i]}: {missing[i]}" for i in sorted(missing)]


def too_long(what: str, size: int, config: CorpusConfig) -> UserError:
    """Error message for a document that is longer than the limit."""
    return UserError(
        f"{what} has {size} bytes, more than document_limit_bytes={config.document_limit_bytes}: raise this limit to "
        "read it, which takes several times its size in memory; or skip long documents with max_document_bytes=SIZE"
    )


def dataset_records(config: CorpusConfig) -> Any:
    """Records of a Hugging Face dataset."""
    import datasets

    name = config.dataset
    try:
        if name is not None:
            saved = Path(name)
            if (saved / "dataset_dict.json").is_file():
                saved /= config.dataset_split
            if (saved / "state.json").is_file():
                return datasets.load_from_disk(str(saved))
        return datasets.load_dataset(
            name, config.dataset_config, split=config.dataset_split, streaming=True, trust_remote_code=False
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(f"the dataset {name!r} cannot be loaded: {shortened(error)}") from error


def batch_records(
    records: Iterable[Any],
    config: CorpusConfig,
    skipped: Skipped,
    name: str | None = None,
) -> Iterator[_native.Batch]:
    """Batches of strings, or of the texts of dictionaries, as `datasets` yields them.

    Args:
        records: the strings or dictionaries.
        config: how to read them.
        skipped: gets records without a text, and what `on_error=skip` leaves out, before the batch that lacks it; these
            records become empty documents, as in JSON lines.
        name: name of the file of the records, for messages.
    """
    where = f"{name}: " if name else ""
    texts: list[str] = []
    places: list[str] = []
    size = count = 0
    for number, record in enumerate(records):
        try:
            text = text_of(record, number, config)
        except DataError as error:
            if config.on_error != "skip" and not isinstance(error, _NoText):
                raise DataError(f"{where}{error}") from None
            text, count, places = "", count + 1, [*places, str(error)][:PLACES]
            skipped.add(name or config.dataset or "records", count, places)
        if text is None:
            continue
        n_bytes = len(text) if text.isascii() else len(text.encode())
        if n_bytes > config.document_limit_bytes and config.skip_above is None:
            raise too_long(f"{where}the document of record {number}", n_bytes, config)
        texts.append(text)
        size += n_bytes
        if size >= config.batch_bytes:
            yield _native.Batch.from_texts(texts)
            texts, size = [], 0
    if texts:
        yield _native.Batch.from_texts(texts)


class _NoText(DataError):
    """A record whose text is null: an empty document that is counted, whatever `on_error` is."""


def text_of(record: Any, number: int, config: CorpusConfig) -> str | None:
    """The text of a record; None, or "" with `on_error=skip`, if its score is too low."""
    if isinstance(record, str):
        return _valid(record, f"text {number} contains a lone surrogate", config)
    if isinstance(record, DataError):
        raise record
    if not isinstance(record, dict):
        raise DataError(f"text {number} is not a string but {type(record).__name__}: {record!r:.80}")
    if config.score_field is not None and config.min_score is not None:
        score = None
        with suppress(DataError):  # some records may have no score
            score = lookup(record, config.score_field, number, "")
        if score is not None and (isinstance(score, bool) or not isinstance(score, Real)):
            what = f"holds {type(score).__name__}, not a number"
            raise DataError(f"record {number}: score_field={config.score_field} {what}; {_SET_SCORE}")
        if score is None or not float(score) >= config.min_score:  # also if it is NaN
            return "" if config.on_error == "skip" else None
    text = lookup(record, config.field, number, _SET_FIELD)
    if text is None or text != text:  # pandas has NaN for a missing text
        raise _NoText(f"record {number}: field {config.field!r} is null")
    if isinstance(text, bytes):  # of a binary column
        text = text.decode("utf-8", "replace" if config.on_invalid_utf8 == "replace" else "surrogateescape")
    if not isinstance(text, str):
        raise DataError(f"record {number}: field {config.field!r} holds {type(text).__name__}, not text")
    return _valid(text, f"record {number}: not UTF-8 (a malformed byte or a lone surrogate)", config)


def _valid(text: str, error: str, config: CorpusConfig) -> str:
    """The text, if it has no lone surrogates; they are malformed UTF-8, as in files."""
    try:
        text.encode()
    except UnicodeEncodeError:
        if config.on_invalid_utf8 == "replace":
            return text.encode("utf-8", "surrogatepass").decode(errors="replace")
        raise DataError(f"{error}; set on_invalid_utf8=replace to read it as U+FFFD") from None
    return text


def lookup(record: dict[str, Any], dotted: str, number: int, remedy: str) -> Any:
    """The value at a dotted path of a record; None if a value on the way is None.

    Raises:
        DataError: the record has no such field.
    """
    value: Any = record
    for name in [dotted] if dotted in record else dotted.split("."):
        if value is None:
            return None
        if not isinstance(value, dict) or name not in value:
            raise DataError(f"record {number} has no field {dotted!r} (the fields are: {listed(record)}); {remedy}")
        value = value[name]
    return value
