"""Inputs and output batches of a call of a `transformers` tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from transformers import BatchEncoding
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy

Columns = dict[str, Any]
"""Rows by name: `input_ids`, `attention_mask`, ...; lists, or arrays if tensors are requested."""


class Pair(NamedTuple):
    """Two texts that share a row."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Call:
    """Options of `PreTrainedTokenizerFast._encode_plus`, with the same names and defaults."""

    add_special_tokens: bool = True
    padding_strategy: Any = PaddingStrategy.DO_NOT_PAD
    truncation_strategy: Any = TruncationStrategy.DO_NOT_TRUNCATE
    max_length: int | None = None
    stride: int = 0
    is_split_into_words: bool = False
    pad_to_multiple_of: int | None = None
    padding_side: str | None = None
    return_tensors: Any = None
    return_token_type_ids: bool | None = None
    return_attention_mask: bool | None = None
    return_overflowing_tokens: bool = False
    return_special_tokens_mask: bool = False
    return_offsets_mapping: bool = False
    return_length: bool = False
    verbose: bool = True
    split_special_tokens: bool | None = None

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Select the known options; the stock class ignores all others too."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    @property
    def longest(self) -> int | None:
        """Number of tokens to truncate a row to; None for no truncation."""
        return None if self.truncation_strategy == TruncationStrategy.DO_NOT_TRUNCATE else self.max_length

    def columns(self, usual: Sequence[str]) -> set[str]:
        """Names of the requested columns; `usual` are the model's inputs, which are the default."""
        asked = {
            "input_ids": True,
            "token_type_ids": self.return_token_type_ids,
            "attention_mask": self.return_attention_mask,
            "special_tokens_mask": self.return_special_tokens_mask,
            "offset_mapping": self.return_offsets_mapping,
            "length": self.return_length,
            "overflow_to_sample_mapping": self.return_overflowing_tokens,
        }
        return {name for name, wanted in asked.items() if (name in usual if wanted is None else wanted)}


@dataclass(frozen=True)
class Padding:
    """Padding of rows to equal length.

    Attributes:
        strategy: `longest`, `max_length` or `do_not_pad`.
        max_length: length in tokens, for `max_length`.
        multiple_of: lengths are rounded up to a multiple of this.
        side: "right" or "left".
        token: the padding token.
        token_id: id of the padding token.
        type_id: token type id of the padding token.
    """

    strategy: Any
    max_length: int | None
    multiple_of: int | None
    side: str
    token: str
    token_id: int
    type_id: int

    def target(self, lengths: Sequence[int]) -> int:
        """Length to pad rows of these lengths to; 0 for no padding."""
        if self.strategy == PaddingStrategy.DO_NOT_PAD or not lengths:
            return 0
        target = max(lengths) if self.strategy == PaddingStrategy.LONGEST else self.max_length or 0
        return -(-target // self.multiple_of) * self.multiple_of if self.multiple_of else target

    def fill_encoding(self, encoding: Any, target: int) -> None:
        """Pad a `tokenizers.Encoding` and its overflowing parts."""
        encoding.pad(target, direction=self.side, pad_id=self.token_id, pad_type_id=self.type_id, pad_token=self.token)


@dataclass(frozen=True)
class Column:
    """One column before it is split into rows.

    Attributes:
        before: values before each text.
        text: one value per token of all texts, or a single value for every token.
        behind: values after each text.
        filler: padding value.
    """

    before: list[Any]
    text: npt.NDArray[Any] | int
    behind: list[Any]
    filler: Any

    def lists(self, parts: Sequence[tuple[int, int]], target: int, side: str) -> list[list[Any]]:
        """One list per part (start, stop) of the tokens, padded to `target` on the given side."""
        rows = []
        around = len(self.before) + len(self.behind)
        for start, stop in parts:
            row = [self.text] * (stop - start) if isinstance(self.text, int) else self.text[start:stop].tolist()
            if isinstance(self.filler, tuple):
                row = list(map(tuple, row))
            if around:
                row = [*self.before, *row, *self.behind]
            if len(row) < target:
                at = len(row) if side == "right" else 0
                row[at:at] = [self.filler] * (target - len(row))
            rows.append(row)
        return rows

    def array(self, parts: Sequence[tuple[int, int]], target: int, side: str) -> npt.NDArray[Any]:
        """The rows of `lists` as int64 [rows, length], or as an array of arrays if lengths differ."""
        around = len(self.before) + len(self.behind)
        lengths = [max(around + stop - start, target) for start, stop in parts]
        rows: npt.NDArray[Any]
        if len(set(lengths)) == 1:
            rows = np.full((len(parts), lengths[0]), self.filler, np.int64)
        else:
            rows = np.empty(len(parts), object)
            rows[:] = [np.full(length, self.filler, np.int64) for length in lengths]
        for row, (start, stop) in zip(rows, parts, strict=True):
            at = 0 if side == "right" else len(row) - (around + stop - start)
            text = at + len(self.before)
            row[at:text] = self.before
            row[text : text + stop - start] = self.text if isinstance(self.text, int) else self.text[start:stop]
            row[text + stop - start : at + around + stop - start] = self.behind
        return rows


def rows_of(text: Any, text_pair: Any, *, words: bool) -> tuple[bool, list[Any]]:
    """Whether the input is a batch, and its rows: texts, lists of words if `words` is set, or `Pair`s of either.

    Raises:
        ValueError: the input contains anything else.
    """
    batched = isinstance(text, list | tuple) and (not words or (bool(text) and isinstance(text[0], list | tuple)))
    if not batched:
        rows = [text if not text_pair else Pair(text, text_pair)]
    elif text_pair is None:
        rows = [row if isinstance(row, str) or (words and _are_words(row)) else _pair(row) for row in text]
    elif isinstance(text_pair, str) or len(text_pair) != len(text):
        raise ValueError("text and text_pair must be batches of the same length")
    else:
        rows = list(map(Pair, text, text_pair))
    for row in rows:
        for one in row if isinstance(row, Pair) else (row,):
            if not (_are_words(one) if words else isinstance(one, str)):
                raise ValueError(
                    f"text input must be of type str, list[str], or with is_split_into_words=True lists of words, not "
                    f"{type(one).__name__}"
                )
    return batched, rows


def _are_words(row: Any) -> bool:
    return isinstance(row, list | tuple) and all(isinstance(word, str) for word in row)


def _pair(row: Any) -> Any:
    return Pair(*row) if isinstance(row, list | tuple) and len(row) == 2 else row


def windows(length: int, *, room: int | None, stride: int, side: str) -> list[tuple[int, int]]:
    """Token ranges of the parts of a truncated text: the first part is kept, the others overflow.

    Args:
        length: length of the text in tokens.
        room: tokens per part, at least 1; None for no truncation.
        stride: tokens that a part shares with the previous one, fewer than `room`.
        side: "right" keeps the start of the text, "left" its end.
    """
    if room is None or length <= room:
        return [(0, length)]
    starts = range(0, length - stride, room - stride)
    parts = [(start, min(start + room, length)) for start in starts]
    return parts if side == "right" else [(length - stop, length - start) for start, stop in parts]


def cut_rows(
    offsets: Sequence[int], cut: Callable[[int], list[tuple[int, int]]], *, overflow: bool
) -> tuple[list[tuple[int, int]], list[int]]:
    """Token range (start, stop) of each row, and the index of its text.

    Args:
        offsets: offsets of the texts in the concatenated tokens, including the end of the last text.
        cut: returns the parts of a text of a given length.
        overflow: make a row of every part, not only of the first.
    """
    parts = []
    texts = []
    for text, (start, stop) in enumerate(pairwise(offsets)):
        for a, b in cut(stop - start)[: None if overflow else 1]:
            parts.append((start + a, start + b))
            texts.append(text)
    return parts, texts


def columns_of(encodings: Sequence[tuple[int, Any]], names: set[str]) -> Columns:
    """Columns from pairs of (index of the input, `tokenizers.Encoding`)."""
    read: dict[str, Callable[[int, Any], Any]] = {
        "input_ids": lambda _, encoding: encoding.ids,
        "token_type_ids": lambda _, encoding: encoding.type_ids,
        "attention_mask": lambda _, encoding: encoding.attention_mask,
        "special_tokens_mask": lambda _, encoding: encoding.special_tokens_mask,
        "offset_mapping": lambda _, encoding: encoding.offsets,
        "length": lambda _, encoding: len(encoding.ids),
        "overflow_to_sample_mapping": lambda sample, _: sample,
    }
    return {name: [get(*pair) for pair in encodings] for name, get in read.items() if name in names}


class LazyBatchEncoding(BatchEncoding):  # type: ignore[misc]
    """A BatchEncoding that creates its `tokenizers.Encoding`s only when words or characters of tokens are requested.

    Args:
        columns: rows by name.
        encode: creates the encodings.
        tensors: type of tensors to convert the columns to, or None.
        paired: whether each row has two texts.
    """

    def __init__(self, columns: dict[str, Any], encode: Callable[[], Any], tensors: Any, *, paired: bool) -> None:
        self._encode: Callable[[], Any] | None = encode
        self._made: list[Any] | None = None
        if tensors == "pt":
            import torch

            # Convert rectangular arrays; transformers reports the error for ragged ones.
            columns = {
                name: torch.from_numpy(rows) if isinstance(rows, np.ndarray) and rows.dtype != object else rows
                for name, rows in columns.items()
            }
        super().__init__(columns, None, tensors, n_sequences=2 if paired else 1)

    @property
    def _encodings(self) -> list[Any] | None:
        if self._made is None and self._encode is not None:
            self._made = [encoding for _, encoding in self._encode()]
        return self._made

    @_encodings.setter
    def _encodings(self, encodings: list[Any] | None) -> None:
        self._made = encodings

    @property
    def is_fast(self) -> bool:
        """True, without creating the encodings."""
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._encode = None
        super().__setstate__(state)
