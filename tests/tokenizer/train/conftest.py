"""Counts to train on."""

import pytest

from tests import texts
from tokenizer import Batch, count_pretokens


@pytest.fixture(scope="module")
def real():
    """Counts of 100 kB of text."""
    return count_pretokens([Batch.from_texts(texts.sample(100_000))], "superbpe", special_tokens=["<|endoftext|>"])
