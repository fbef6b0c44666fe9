"""A toy tokenizer with the part of the interface of `Tokenizer` that `lm` uses."""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lm.data.sharding import ShardConfig, write_shards
from lm.data.shards import Shards
from tokenizer.interface import Stream

if TYPE_CHECKING:
    from pathlib import Path


class ToyBatch:
    def __init__(self, texts):
        raw = [text.encode() for text in texts]
        self.data = np.frombuffer(b"".join(raw), np.uint8)
        self.offsets = np.cumsum([0] + [len(r) for r in raw]).astype(np.int64)

    def __len__(self):
        return len(self.offsets) - 1


class ToyTokenizer:
    """Bytes, some words (longest match first), and <|endoftext|> last."""

    def __init__(self, words=(b"the ", b"of ", b"th", b"in the "), vocab_size=None):
        self.vocab = [bytes([i]) for i in range(256)] + list(words)
        size = vocab_size or len(self.vocab) + 1
        self.vocab += [f"<unused {i}>".encode() for i in range(size - 1 - len(self.vocab))]
        self.vocab.append(b"<|endoftext|>")
        self.vocab_size = len(self.vocab)
        self.special_tokens = {"<|endoftext|>": self.vocab_size - 1}
        self.changes_text, self.fixed_bytes, self.unknown_id = False, True, None
        self.sha256 = hashlib.sha256(b"|".join(self.vocab)).hexdigest()
        self._words = {word: 256 + i for i, word in enumerate(words)}
        parts = [re.escape(w) for w in sorted(words, key=len, reverse=True)]
        self._pattern = re.compile(b"|".join([*parts, b"."]), re.DOTALL)

    def token_byte_lengths(self):
        lengths = np.array([len(token) for token in self.vocab], np.int32)
        lengths[-1] = 0
        return lengths

    def encode_batch(self, batch, *, threads=None):
        ids, offsets = [], [0]
        data = batch.data.tobytes()
        for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
            pieces = self._pattern.findall(data[start:stop])
            ids += [self._words.get(piece, piece[0]) for piece in pieces]
            offsets.append(len(ids))
        return np.array(ids, np.uint32), np.array(offsets, np.int64)

    def encode_stream(self, batch, mark, token_bytes, *, narrow):
        ids, offsets = self.encode_batch(batch)
        documents = [ids[start:stop] for start, stop in pairwise(offsets)]
        return Stream(
            np.concatenate([np.array([mark, *document]) for document in documents]).astype("<u2" if narrow else "<u4"),
            np.cumsum([1 + len(document) for document in documents]),
            np.array([token_bytes[document].sum() for document in documents], np.int64),
            next((i for i, document in enumerate(documents) if mark in document), None),
        )


TEXTS = [
    "the history of the town in the hills",
    "",
    "naïve café — 東京 🙂",
    "in the beginning of the end",
    "x",
    "of of of the the the in the in the",
]


@pytest.fixture
def toy():
    """The toy tokenizer's class."""
    return ToyTokenizer


@pytest.fixture
def batch():
    """The toy batch's class."""
    return ToyBatch


@pytest.fixture
def texts():
    return list(TEXTS)


@pytest.fixture
def make_shards(tmp_path: Path):
    """Write texts with a tokenizer (default: the toy) and open them."""
    count = iter(range(1000))

    def make(texts=TEXTS, tokenizer=None, **options) -> Shards:
        tokenizer = tokenizer or ToyTokenizer()
        folder = tmp_path / f"shards-{next(count)}"
        write_shards(folder, tokenizer, [ToyBatch(texts)], ShardConfig(**options))
        return Shards.open(folder, tokenizer)

    return make
