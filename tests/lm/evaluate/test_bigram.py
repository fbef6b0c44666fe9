"""The bigram model against a naive computation."""

from collections import Counter, defaultdict
from itertools import pairwise
from math import log2

import pytest

from lm.evaluate.bigram import DISCOUNT, bigram_bits
from tokenizer.train.bpe import train_bpe

TRAINING = ["the cat sat on the mat", "", "the dog sat on the log", "a cat and a dog"]
HELDOUT = ["the dog and the cat", "zebras! über", "", "a mat on a log"]


def _naive(tokenizer, training, end):
    """The probability of a token after another one, as a function."""
    after, alone = defaultdict(Counter), Counter()
    stream = [token for text in training for token in (end, *tokenizer.encode_ordinary(text))]
    for token, following in zip(stream, [*stream[1:], end], strict=True):
        after[token][following] += 1
        alone[token] += 1

    def probability(before, token):
        p = (alone[token] + 1) / (len(stream) + tokenizer.vocab_size)
        counts = after[before]
        if not counts:
            return p
        rest = DISCOUNT * len(counts) * p
        return (max(counts[token] - DISCOUNT, 0) + rest) / counts.total()

    return probability


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe(TRAINING, 275, pattern="gpt2")


def test_bits_are_those_of_a_naive_computation(tokenizer):
    end = tokenizer.end_id
    probability = _naive(tokenizer, TRAINING, end)
    for token in (end, tokenizer.encode_ordinary("the")[0], 200):  # 200 never occurs
        assert sum(probability(token, w) for w in range(tokenizer.vocab_size)) == pytest.approx(1)
    expected = []
    for text in HELDOUT:
        ids = [end, *tokenizer.encode_ordinary(text)]
        expected.append(sum(-log2(probability(v, w)) for v, w in pairwise(ids)))
    assert bigram_bits(tokenizer, TRAINING, HELDOUT, threads=1) == pytest.approx(expected)
    assert expected[2] == 0


def test_text_like_the_training_text_needs_fewer_bits(tokenizer):
    near, far = bigram_bits(tokenizer, TRAINING * 20, ["the cat sat on the mat", "mta teh no tas tac ehT"])
    assert near < far / 4
