"""The Rust core; built by maturin from `native/`."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict, final, type_check_only

import numpy as np
import numpy.typing as npt

__all__ = [
    "DIGITS",
    "Batch",
    "Decoder",
    "DocumentFilter",
    "EncodeStream",
    "Encoder",
    "Feed",
    "Preparation",
    "PretokenCounter",
    "Reader",
    "SpecialStrings",
    "Stream",
    "SuperwordTrainer",
    "TextOverlap",
    "are_forbidden",
    "count_pieces",
    "eligible",
    "equivalent_patterns",
    "named_patterns",
    "split",
    "sum_counts",
    "train_balanced",
    "train_bpe",
]

DIGITS: str

_U8 = npt.NDArray[np.uint8]
_U32 = npt.NDArray[np.uint32]
_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

@type_check_only
class MergeResult(TypedDict):
    left: _U32
    right: _U32
    count: _U64
    exhausted: bool
    rejected: int
    too_long: int
    already_tokens: int

@type_check_only
class BalancedResult(MergeResult):
    source: _U32

@final
class Batch:
    @staticmethod
    def from_texts(texts: Sequence[str]) -> Batch: ...
    @staticmethod
    def from_buffers(data: _U8, offsets: _I64, *, replace_invalid: bool = False) -> Batch: ...
    def __len__(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def data(self) -> _U8: ...
    @property
    def offsets(self) -> _I64: ...
    def hashes(self) -> _U64: ...
    def text(self, i: int) -> str: ...

@final
class DocumentFilter:
    def __new__(
        cls,
        *,
        split: str = "all",
        min_bytes: int = 1,
        max_bytes: int | None = None,
        budget: int | None = None,
        heldout_fraction: float = 0.0,
        heldout_salt: str = "",
        heldout_ngram_words: int = 0,
        sample_fraction: float = 1.0,
        sample_salt: str = "",
    ) -> DocumentFilter: ...
    def apply(self, batch: Batch) -> tuple[Batch, bool]: ...

@final
class TextOverlap:
    def __new__(cls, ngram_words: int) -> TextOverlap: ...
    def add(self, batch: Batch) -> None: ...
    def scan(self, batch: Batch, threads: int) -> None: ...
    def marks(self) -> _U8: ...
    def mark(self, marks: _U8) -> None: ...
    def found(self) -> tuple[_I64, _I64, _Flags]: ...

@final
class Feed:
    def __new__(cls) -> Feed: ...
    def put(self, block: bytes) -> bool: ...
    def end(self, error: str | None = None) -> None: ...
    def close(self) -> None: ...

@final
class Stream:
    def __new__(cls, path: str, feed: Feed | None = None) -> Stream: ...
    def read(self, size: int) -> bytes: ...

@final
class Reader:
    def __new__(
        cls,
        files: Sequence[tuple[str, str, Feed | None]],
        *,
        field: str,
        separator: str | None,
        score_field: str | None,
        min_score: float,
        replace_invalid: bool,
        skip_damaged: bool,
        batch_bytes: int,
        document_limit_bytes: int,
        skip_above: int | None,
        threads: int,
        in_order: bool,
    ) -> Reader: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def skipped(self) -> list[tuple[str, int, list[str]]]: ...

_CountArrays = tuple[_U8, _I64, _U64]

@final
class PretokenCounter:
    def __new__(
        cls,
        pattern: str,
        *,
        unit: str,
        special_tokens: Sequence[str],
        threads: int,
        memory_bytes: int | None,
        spill_folder: str,
    ) -> PretokenCounter: ...
    def add(self, batch: Batch) -> None: ...
    def finish(self) -> _CountArrays: ...
    def close(self) -> None: ...

@final
class SuperwordTrainer:
    MAX_WEIGHT: int
    def __new__(
        cls,
        tokens: list[bytes],
        merges: Sequence[tuple[int, int]],
        *,
        pattern: str,
        fence: str,
        two_pass: bool,
        eligible: str | None,
        unit: str,
        span_trigger: int | None,
        span_cap: int,
        special_tokens: Sequence[str],
        sample_cells: int,
        sample_memory: int,
        threads: int,
    ) -> SuperwordTrainer: ...
    def begin_pass(self) -> None: ...
    def start_over(self) -> None: ...
    @property
    def memory(self) -> int: ...
    def end_pass(self) -> None: ...
    def measure_spans(self, batch: Batch, weight: int) -> None: ...
    def truncate_spans(self, quantile: float) -> int: ...
    def set_longest(self, longest: int) -> None: ...
    def apply(self, merges: Sequence[tuple[int, int]]) -> None: ...
    def live_seams(self, threshold: int) -> bytes: ...
    def set_live_seams(self, bits: bytes) -> None: ...
    def rows(self, table: str) -> tuple[_U32, _I64, _U64]: ...
    def add_rows(self, table: str, keys: _U32, offsets: _I64, counts: _U64) -> None: ...
    def add_statistic(self, name: str, count: int) -> None: ...
    def sample_sizes(self) -> tuple[int, list[tuple[int, int]]]: ...
    def add_sample_sizes(self, lowest: int, sizes: Sequence[tuple[int, int]]) -> None: ...
    def count_seams(self, batch: Batch, weight: int, sample_every: int) -> None: ...
    def count_fragments(self, batch: Batch, weight: int, threshold: int) -> None: ...
    def token_counts(self) -> _U64: ...
    def merge(
        self,
        n_merges: int,
        *,
        sample: bool,
        tie_break: str,
        min_count: int,
        max_bytes: int | None,
        max_words: int | None,
        max_tokens: int | None,
        forbid: Sequence[str],
        special_tokens: Sequence[str],
        non_overlapping: bool,
        judge: Callable[[bytes, bytes, int], bool] | None,
        progress: Callable[[int], object] | None,
    ) -> MergeResult: ...
    @property
    def statistics(self) -> dict[str, int]: ...

_Texts = Sequence[str] | Batch

@final
class Encoder:
    def __new__(
        cls,
        tokens: list[bytes],
        byte_ids: Sequence[int],
        merges: _U32,
        *,
        phase1: int,
        pattern: str,
        fence: str | None,
        two_pass: bool,
        whole: _U32,
        eligible: str | None = None,
    ) -> Encoder: ...
    @staticmethod
    def recover_merges(tokens: Sequence[bytes]) -> _U32: ...
    def live_merges(self) -> _U32: ...
    def tokens_in_tokens(self) -> _U32: ...
    def encode(self, text: str, preparation: Preparation | None = None) -> list[int]: ...
    def encode_batch(
        self, texts: _Texts, threads: int, preparation: Preparation | None = None
    ) -> tuple[_U32, _I64]: ...
    def encode_stream(
        self, texts: _Texts, mark: int, lengths: _U32, preparation: Preparation | None = None
    ) -> tuple[_U32, _I64, _I64, int | None]: ...
    def count_tokens(self, texts: _Texts, threads: int, preparation: Preparation | None = None) -> _I64: ...
    def encode_spans(self, text: str, preparation: Preparation | None = None) -> tuple[_U32, _I64, _I64, _I64]: ...

_Tokens = tuple[list[str], list[int | None]] | None

@final
class Preparation:
    def __new__(cls, early: _Tokens, forms: list[str] = ..., late: _Tokens = None) -> Preparation: ...
    def lengths(self, texts: _Texts, threads: int) -> tuple[_I64, _Flags]: ...
    def normalize(self, batch: Batch) -> Batch: ...

@final
class SpecialStrings:
    def __new__(cls, strings: Sequence[str]) -> SpecialStrings: ...
    def find(self, text: str) -> int | None: ...
    def find_in_batch(self, texts: _Texts, threads: int) -> tuple[int, int] | None: ...

@final
class EncodeStream:
    def __new__(cls, encoder: Encoder, limit: int, preparation: Preparation | None = None) -> EncodeStream: ...
    def push(self, part: str, last: bool = False) -> _U32: ...

@final
class Decoder:
    def __new__(cls, tokens: list[bytes]) -> Decoder: ...
    def decode_batch(self, ids: _U32, offsets: _I64) -> tuple[bytes, _I64]: ...

def eligible(tokens: list[bytes], pattern: str) -> list[bool]: ...
def equivalent_patterns() -> list[tuple[str, str]]: ...
def named_patterns() -> list[tuple[str, str]]: ...
def count_pieces(texts: Sequence[str], pattern: str) -> list[int]: ...
def split(text: str, pattern: str) -> list[str]: ...
def sum_counts(parts: Sequence[tuple[_U8, _I64, _U64, int]]) -> _CountArrays: ...
def are_forbidden(tokens: Sequence[bytes], forbid: Sequence[str]) -> list[bool]: ...
def train_balanced(
    sources: Sequence[tuple[_U8 | _U32, _I64, _U64]],
    measured: Sequence[tuple[_U8 | _U32, _I64, _U64]] | None,
    costs: Sequence[tuple[int, float, float]],
    tokens: list[bytes],
    n_merges: int,
    *,
    tie_break: str,
    min_count: int,
    max_token_bytes: int | None,
    forbid: Sequence[str],
    special_tokens: Sequence[str],
    progress: Callable[[int], object] | None,
) -> BalancedResult: ...
def train_bpe(
    ranks: _U8 | _U32,
    offsets: _I64,
    counts: _U64,
    tokens: list[bytes],
    n_merges: int,
    *,
    tie_break: str,
    min_count: int,
    max_token_bytes: int | None,
    forbid: Sequence[str],
    special_tokens: Sequence[str],
    progress: Callable[[int], object] | None,
) -> MergeResult: ...
