"""Text to train on."""

import random

import pytest


@pytest.fixture
def corpus():
    rng = random.Random(0)
    words = ["the", "of", "in", "town", "hill", "history", "naïve", "beginning", "end"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(60)]


@pytest.fixture
def shards(make_shards, corpus):
    return make_shards(corpus)
