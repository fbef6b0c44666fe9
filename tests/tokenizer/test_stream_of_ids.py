"""`encode_stream` gives the ids of `encode_batch`, in the layout of token files."""

from itertools import pairwise

import numpy as np
import pytest

from tokenizer import Batch, Tokenizer, UserError, patterns
from tokenizer.definition import ALPHABET

TEXTS = ["the theory of the thing", "", "naïve 🙂\n\n", "the <|endoftext|> of it", "x" * 5000, "t", " the" * 3000]


@pytest.fixture(scope="module")
def tokenizer():
    space, t, h, e, x = map(ALPHABET.index, b" thex")
    merges = [(t, h), (256, e), (space, 257), (x, x), *((259 + i, 259 + i) for i in range(9))]  # up to 1,024 times x
    return Tokenizer.from_ranks(merges, pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])


def stream(tokenizer, texts, *, narrow=True):
    lengths = np.asarray(tokenizer.token_byte_lengths(), np.uint32)
    return tokenizer.encode_stream(Batch.from_texts(texts), tokenizer.vocab_size - 1, lengths, narrow=narrow)


@pytest.mark.parametrize(("narrow", "dtype"), [(True, np.uint16), (False, np.uint32)])
def test_each_document_follows_its_mark(tokenizer, narrow, dtype):
    mark = tokenizer.vocab_size - 1
    ids, offsets = tokenizer.encode_batch(Batch.from_texts(TEXTS))
    assert max(len(tokenizer.vocab[i]) for i in ids) > 255  # longer than a byte says
    found = stream(tokenizer, TEXTS, narrow=narrow)
    assert found.ids.dtype == dtype
    assert found.ids.tolist() == [i for start, end in pairwise(offsets) for i in (mark, *ids[start:end])]
    assert found.ends.tolist() == (offsets[1:] + np.arange(1, len(offsets))).tolist()
    assert found.spelled.tolist() == [len(text.encode()) for text in TEXTS]
    assert found.marked is None
    assert stream(tokenizer, [], narrow=narrow).ids.tolist() == []


def test_buffers_are_reused_only_without_views(tokenizer):
    texts = [[f"{i} the {word}" * 50 for word in TEXTS] for i in range(30)]
    expected = [stream(tokenizer, one).ids.tolist() for one in texts]
    kept = [stream(tokenizer, one).ids[3:] for one in texts]  # views hold what they show
    for one in reversed(texts):
        stream(tokenizer, one)
    assert [part.tolist() for part in kept] == [one[3:] for one in expected]


def test_ids_without_a_length_are_rejected(tokenizer):
    with pytest.raises(UserError, match="has no length"):
        tokenizer.encode_stream(Batch.from_texts(["the"]), 0, np.ones(257, np.uint32), narrow=True)
