import numpy as np
import pytest

from lm.data.stream import DocumentStream
from tests.lm import tiny


def documents_of(stream, n_tokens, eos, vocab):
    """Text of the documents in the first n_tokens of a stream."""
    text = b"".join(b"\0" if t == eos else vocab[t] for t in stream.read(0, n_tokens))
    return text.decode().split("\0")[1:]


@pytest.mark.parametrize("shuffle", [False, True])
def test_two_tokenizers_read_the_same_documents_in_the_same_order(make_shards, texts, shuffle):
    read = []
    for tokenizer in (tiny.words(), tiny.words(b"in the ", b"beginning")):
        shards = make_shards(texts, tokenizer)
        stream = DocumentStream(shards, seed=3, shuffle=shuffle)
        read.append(documents_of(stream, 3 * shards.n_tokens, shards.eos_id, tokenizer.vocab))
    assert read[0] == read[1]
    epochs = [read[0][i : i + len(texts)] for i in range(0, 3 * len(texts), len(texts))]
    assert all(sorted(epoch) == sorted(texts) for epoch in epochs)
    assert (epochs[0] == texts) == (not shuffle)
    assert (epochs[0] == epochs[1]) == (not shuffle)


@pytest.mark.parametrize("step", [1, 3, 17, 1000])
def test_any_slice_is_the_slice_of_the_whole(make_shards, step):
    shards = make_shards(tokens_per_shard=20)
    total = 3 * shards.n_tokens
    whole = DocumentStream(shards, seed=0).read(0, total)
    stream = DocumentStream(shards, seed=0)
    parts = [stream.read(i, min(i + step, total)) for i in range(0, total, step)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(stream.read(5, 25), whole[5:25])


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_bytes_of_a_part_are_those_of_its_tokens(make_shards, shuffle):
    shards = make_shards(tokens_per_shard=20)
    stream = DocumentStream(shards, seed=1, shuffle=shuffle)
    for start, stop in ((0, 1), (1, 22), (7, 107), (3, 3 * shards.n_tokens + 5)):
        assert stream.text_bytes(start, stop) == shards.token_byte_lengths[stream.read(start, stop)].sum()
