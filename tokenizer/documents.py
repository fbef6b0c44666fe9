"""Conversion of texts and ids from users' types to the native core's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tokenizer import _native
from tokenizer.errors import UserError, quoted

if TYPE_CHECKING:
    import pyarrow as pa

Texts: TypeAlias = "Sequence[str] | pa.Array | pa.ChunkedArray | _native.Batch"
Given: TypeAlias = "list[str] | _native.Batch"
"""Texts in a form that the core accepts."""
_LONGEST_NAME = 256
_SHORT = 1 << 14
_NAMES = 32
"""Strings of a text of which one must not be the name of a file."""


def given(texts: Texts) -> Given:
    """Convert texts for the core; the text of Arrow arrays is copied.

    Raises:
        UserError: `texts` is a single string or not a sequence, or an Arrow array of another type or with nulls.
    """
    if not isinstance(texts, list):
        if isinstance(texts, str):
            raise UserError("a batch is a list of texts; use encode for one text, or put it in a list")
        if isinstance(texts, _native.Batch):
            return texts
        if _is_arrow(texts):
            return _batch(texts)
        if isinstance(texts, Mapping | bytes) or not isinstance(texts, Iterable):
            kind = type(texts).__name__
            raise UserError(f"texts are {kind}; a batch is a list of strings, or an Arrow array of them")
        return list(texts)
    return texts


def is_short(texts: Given) -> bool:
    """Whether there is only one text, so short that one thread encodes it in microseconds."""
    return len(texts) == 1 and isinstance(texts, list) and len(str(texts[0])) < _SHORT


def not_files(texts: Iterable[Any], remedy: str) -> Iterator[Any]:
    """Iterate over texts, after a check that the first ones are not names of existing files: the files are then meant.

    Args:
        texts: texts, or anything else; an iterator is read until something is not the name of a file.
        remedy: how to use the files.

    Raises:
        UserError: the first `_NAMES` texts, or all of fewer texts, are names of existing files.
    """
    rows = iter(texts)
    first: list[Any] = []
    for row in islice(rows, _NAMES):
        first.append(row)
        if not _names_a_file(row):
            return chain(first, rows)
    if first:
        raise UserError(
            f"the strings are names of files, such as {quoted(first[0])}: {remedy}; to use the names themselves as "
            "text, pass Batch.from_texts(names)"
        )
    return rows


def _names_a_file(text: object) -> bool:
    # A name with a line feed is not meant. `Path.is_file` raises on names that are too long.
    return isinstance(text, str) and len(text) < _LONGEST_NAME and "\n" not in text and os.path.isfile(text)  # noqa: PTH113


def _is_arrow(value: object) -> bool:
    """Whether a value is pyarrow's, without importing pyarrow."""
    return any(kind.__module__.partition(".")[0] == "pyarrow" for kind in type(value).__mro__)


def _batch(texts: Any) -> _native.Batch:
    import pyarrow as pa

    if not isinstance(texts, pa.Array | pa.ChunkedArray):
        what = "a batch is a list of strings, or an Arrow array, such as a column: table['NAME']"
        raise UserError(f"texts are an Arrow {type(texts).__name__}; {what}")
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise UserError(f"texts are an Arrow array of {texts.type}; cast it to pyarrow.large_string()")
    if texts.null_count:
        first = int(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))[0])
        raise UserError(
            f"text {first} of the Arrow array is null ({texts.null_count} are): remove nulls with drop_null(), or "
            "replace them by empty texts with fill_null('')"
        )
    chunks = pa.chunked_array([texts]) if isinstance(texts, pa.Array) else texts
    column = chunks.cast(pa.large_string()).combine_chunks()  # with 64-bit offsets, which the chunks together may need
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UserError(f"the Arrow array of texts is malformed: {error}") from error
    if not len(column):
        return _native.Batch.from_texts([])
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return _native.Batch.from_buffers(np.frombuffer(data or b"", np.uint8), places)


def check_text(text: object, what: str = "the text") -> None:
    """Reject a text that cannot be encoded.

    Raises:
        UserError: it is not a string, or contains a lone surrogate.
    """
    if not isinstance(text, str):
        raise UserError(f"{what} is not a string but {type(text).__name__}: {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{what} contains a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}, which "
            "UTF-8 cannot encode; fix it where the text is read, or use text.encode('utf-8', 'replace').decode()"
        ) from None


def ids(values: Any, vocab_size: int) -> npt.NDArray[np.uint32]:
    """Convert ids for the core; uint32 arrays are not copied or checked.

    Raises:
        UserError: they are not a 1-D sequence of whole numbers, or an id is not below the vocabulary size.
    """
    if not isinstance(values, Iterable) and not hasattr(values, "__array__"):
        raise UserError(f"ids are one row of whole numbers, not {values!r:.80}")
    if not hasattr(values, "__array__") and not isinstance(values, Sequence):
        values = list(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise UserError("ids are one row of whole numbers; use decode_batch for several texts") from None
    if not array.size:
        return np.empty(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(f"ids are one row of whole numbers, not {array.ndim}-dimensional {array.dtype}")
    if array.dtype != np.uint32:
        outside = (array < 0) | (array >= vocab_size)
        if outside.any():
            raise UserError(
                f"the id {array[outside][0]} is not in the vocabulary: ids are below the vocabulary size {vocab_size}"
            )
    return np.ascontiguousarray(array, dtype=np.uint32)
