"""Shards of a small tokenizer."""

import random

import pytest

from lm.data.sharding import ShardConfig, write_shards
from lm.data.shards import Shards
from tests.lm import tiny
from tokenizer import Batch

TEXTS = [
    "the history of the town in the hills",
    "",
    "naïve café — 東京 🙂",
    "in the beginning of the end",
    "x",
    "of of of the the the in the in the",
]


@pytest.fixture
def texts():
    return list(TEXTS)


@pytest.fixture
def make_shards(tmp_path):
    """Write texts with a tokenizer (default: `tiny.words`) and open them."""
    count = iter(range(1000))

    def make(texts=TEXTS, tokenizer=None, **options):
        tokenizer = tokenizer or tiny.words()
        folder = tmp_path / f"shards-{next(count)}"
        write_shards(folder, tokenizer, [Batch.from_texts(texts)], ShardConfig(**options))
        return Shards.open(folder, tokenizer)

    return make


@pytest.fixture
def corpus():
    """Text to train on."""
    rng = random.Random(0)
    words = ["the", "of", "in", "town", "hill", "history", "naïve", "beginning", "end"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(60)]


@pytest.fixture
def shards(make_shards, corpus):
    return make_shards(corpus)
