"""Encoded documents in the formats of other trainers.

| layout | files | ids | `end_of_text` |
|---|---|---|---|
| megatron | `tokens.bin`, `tokens.idx` | uint16, or int32 above 65,536 tokens | after each document |
| llmc | `tokens_000000.bin`, ... | uint32 | before |
| nanogpt | `tokens_000000.bin`, ... | uint16 | before |
| automodel | `tokens_000000.bin` and `.bos.idx`, ... | uint16 or uint32 | before |
| olmo | `tokens_000000.npy` and `.csv.gz`, ... | uint16 or uint32 | after |
| datasets | `train-00000.parquet`, ...: one document per row | int32 | after |

Every folder has an `encoded.json` with counts, the tokenizer's hash and the id of `end_of_text`.
"""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lm.data.shard_writer import EncodedBatch, ShardWriter, Writer
from tokenizer.durable import write_json
from tokenizer.errors import UserError, needs_extra

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

    from tokenizer.interface import TokenizerLike

_MOST_TOKENS = 2**31
"""Fewer than this many tokens are in a file, since headers and positions are int32."""


class _ForeignWriter(Writer):
    """Writes a manifest that says what `shards.json` says of our own shards, except checksums."""

    _signed: ClassVar[bool] = False
    """Whether ids of 32 bits are stored as int32."""

    def _write_manifest(self, about: dict[str, Any]) -> dict[str, Any]:
        where = "after" if self.ends_documents else "before"
        layout = next(name for name, writer in LAYOUTS.items() if writer is type(self))
        if self._signed and about["dtype"] == "uint32":
            about = {**about, "dtype": "int32"}  # the same bytes
        manifest = {"layout": layout, **about, "end_of_text_is": f"{where} each document", "shards": self._files}
        write_json(self.folder / "encoded.json", manifest)
        return manifest


class _TokenWriter(_ForeignWriter):
    """Files of consecutive tokens, with an optional header and an optional index of documents beside each file."""

    _suffix: ClassVar[str] = ".bin"
    _magic: ClassVar[int | None] = None
    """First number of a header of 256 int32, as llm.c defined it (dev/data/data_common.py); None: no header."""
    _version: ClassVar[int] = 1

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_file: int) -> None:
        super().__init__(folder, tokenizer, tokens_per_file)
        self._path = folder
        self._tokens = 0
        self._file: IO[bytes] | None = None
        self._ends: list[NDArray[np.int64]] = []  # of the documents in the current file, in tokens

    def _abandon(self) -> None:
        if self._file is not None:
            self._file.close()

    def _start(self, number: int) -> str:
        self._path = self.folder / f"tokens_{number:06}{self._suffix}"
        self._file, self._ends, self._tokens = self._path.open("wb"), [], 0
        self._file.write(self._header())
        return self._path.name

    def _append(self, encoded: EncodedBatch) -> None:
        assert self._file is not None
        self._ends.append(encoded.ends + self._tokens)
        self._tokens += len(encoded.stream)
        if self._magic is not None and self._tokens >= _MOST_TOKENS:
            raise UserError(
                f"{self._path.name} would have {self._tokens:,} tokens, but its format holds less than "
                f"{_MOST_TOKENS:,}; split long documents"
            )
        if self.ends_documents:
            # In the stream, `end_of_text` is the first token of each document. Moved from the start to the end, it is
            # the last token of each.
            self._file.write(np.ascontiguousarray(encoded.stream[1:]).data)
            self._file.write(encoded.stream[:1].tobytes())
        else:
            self._file.write(np.ascontiguousarray(encoded.stream).data)

    def _end(self) -> dict[str, Any]:
        assert self._file is not None
        with self._file:
            self._file.seek(0)
            self._file.write(self._header())
        ends = np.concatenate(self._ends)
        self._index(np.append(0, ends[:-1]), ends)
        return {}

    def _header(self) -> bytes:
        """Magic number, version, number of tokens, and bytes per token where that is stored."""
        if self._magic is None:
            return b""
        header = np.zeros(256, "<i4")
        header[:4] = self._magic, self._version, self._tokens, self._item_size()
        return header.tobytes()

    def _item_size(self) -> int:
        return 0

    def _index(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Write the index of documents that start and end at these tokens of the file."""


class MegatronWriter(_TokenWriter):
    """One `.bin` and one `.idx` (megatron/core/datasets/indexed_dataset.py): each document is one sequence."""

    reader = "Megatron-LM, NeMo, MaxText, MindFormers"
    ends_documents = True
    _signed = True

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_file: int) -> None:
        super().__init__(folder, tokenizer, 2**62)  # a single file of any size
        del tokens_per_file

    def _start(self, number: int) -> str:
        self._path = self.folder / "tokens.bin"
        self._file = self._path.open("wb")
        return self._path.name

    def _index(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        size = np.dtype(self.encoder.dtype).itemsize
        code = {2: 8, 4: 4}[size]  # uint16, int32
        with self._path.with_suffix(".idx").open("wb") as file:
            file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(ends), len(ends) + 1))
            file.write((ends - starts).astype("<i4").data)
            file.write((starts * size).astype("<i8").data)
            file.write(np.arange(len(ends) + 1, dtype="<i8").data)


class LlmcWriter(_TokenWriter):
    """Files of llm.c's Llama 3 (train_llama3.py). Its GPT-2 reads the layout nanogpt."""

    reader = "llm.c (Llama 3)"
    _magic, _version = 20240801, 7

    @classmethod
    def dtype(cls, vocab_size: int) -> str:
        """uint32."""
        return "uint32"


class NanogptWriter(_TokenWriter):
    """Files of modded-nanogpt (data/fineweb.py)."""

    reader = "modded-nanogpt, llm.c (GPT-2)"
    _magic = 20240520

    @classmethod
    def dtype(cls, vocab_size: int) -> str:
        """uint16."""
        if super().dtype(vocab_size) != "uint16":
            raise UserError(
                f"the layout nanogpt stores ids as uint16, but the vocabulary has {vocab_size:,} tokens; use a "
                "tokenizer of at most 65,536, or the layout llmc or automodel"
            )
        return "uint16"


class AutomodelWriter(_TokenWriter):
    """Files of NeMo AutoModel (nemo_automodel/components/datasets/llm/nanogpt_dataset.py).

    Its reader takes the numbers of `.bos.idx` as positions in tokens, although its documentation says bytes.
    """

    reader = "NeMo AutoModel"
    _magic = 278895051

    def _item_size(self) -> int:
        return np.dtype(self.encoder.dtype).itemsize

    def _index(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._path.with_suffix(".bos.idx").write_bytes(starts.astype("<i4").tobytes())


class OlmoWriter(_TokenWriter):
    """Arrays without a NumPy header, and a list of documents beside each (OLMo-core, olmo_core/data/utils.py)."""

    reader = "OLMo-core, Dolma"
    ends_documents = True
    _suffix = ".npy"

    def _index(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        lines = "".join(f"{start},{end}\n" for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
        content = gzip.compress(lines.encode(), compresslevel=1, mtime=0)
        self._path.with_suffix(".csv.gz").write_bytes(content)


class DatasetsWriter(_ForeignWriter):
    """Parquet files with a column `input_ids`, which `datasets.load_dataset(folder)` opens."""

    reader = "datasets of Hugging Face"
    ends_documents = True
    _signed = True

    def __init__(self, folder: Path, tokenizer: TokenizerLike, tokens_per_file: int) -> None:
        super().__init__(folder, tokenizer, tokens_per_file)
        with needs_extra():
            import pyarrow.parquet
        self._arrow = pyarrow
        self._schema = pyarrow.schema([("input_ids", pyarrow.list_(pyarrow.int32()))])
        self._parquet: Any = None

    @classmethod
    def dtype(cls, vocab_size: int) -> str:
        """uint32, with the same bytes as int32."""
        return "uint32"

    def _abandon(self) -> None:
        if self._parquet is not None:
            self._parquet.close()

    def _start(self, number: int) -> str:
        name = f"train-{number:05}.parquet"
        self._parquet = self._arrow.parquet.ParquetWriter(
            self.folder / name,
            self._schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            write_batch_size=1 << 20,
        )
        return name

    def _append(self, encoded: EncodedBatch) -> None:
        ids = np.append(encoded.stream[1:], encoded.stream[:1]).view(np.int32)
        offsets = np.append(0, encoded.ends).astype(np.int32)
        documents = self._arrow.ListArray.from_arrays(offsets, ids)
        self._parquet.write_table(self._arrow.table([documents], schema=self._schema))

    def _end(self) -> dict[str, Any]:
        self._parquet.close()
        return {}


LAYOUTS: dict[str, type[Writer]] = {
    "ours": ShardWriter,
    "megatron": MegatronWriter,
    "llmc": LlmcWriter,
    "nanogpt": NanogptWriter,
    "automodel": AutomodelWriter,
    "olmo": OlmoWriter,
    "datasets": DatasetsWriter,
}
