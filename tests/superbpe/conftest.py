"""Text and phases 1 for tests of phase 2."""

import pytest

from tests import texts
from tokenizer import Batch, count_pretokens, train_bpe


@pytest.fixture(scope="session")
def documents(disputed):
    """A few kB of everything, since the reference is slow. Repetition makes superwords frequent."""
    found = [text[:600] for text in texts.english()[0][:7]] + [texts.code()[:800], texts.SCRIPTS["Greek"]]
    found += ["it is a  test:  it is a  test, 1234 it is. " * 4, "a<|endoftext|>b of the<|endoftext|>", ""]
    found += [
        texts.generated(3, 60),
        "the the the the " * 5,
        "aaaa aaaaaa " * 6,
        "\n\n\n  x\n\n\n  x",
        "camelCase camelCase",
    ]
    return ["".join(c for c in text if c not in disputed) for text in found]


@pytest.fixture(scope="session")
def phase1(documents):
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2", special_tokens=["<|endoftext|>"])
    return train_bpe(counts, 256 + 160 + 1)  # as many merges as the competing superwords


@pytest.fixture(scope="session")
def larger():
    """50 kB of text, and a phase 1 of 1,200 tokens."""
    documents = texts.sample(50_000)
    return documents, train_bpe(count_pretokens([Batch.from_texts(documents)], "superbpe"), 1200)
