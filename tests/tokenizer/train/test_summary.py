import pytest

from tokenizer import Batch, Tokenizer, count_pretokens, patterns, train_bpe
from tokenizer.train.summary import summary


def test_summary_of_a_trained_tokenizer():
    counts = count_pretokens([Batch.from_texts(["hello hello hello hallo 日本 日本"])], "gpt2")
    tokenizer = train_bpe(counts, 256 + 1 + 9)
    about = tokenizer.provenance["phase1"]
    about |= {"seconds": 0.5, "merges": 9, "selecting_seconds": 0.1, "last_count": 2}
    said = summary(tokenizer, longest=2)
    assert said["merges"] == 9
    assert said["seconds"] == 0.5
    assert said["merges_per_second"] == pytest.approx(18)
    assert said["microseconds_per_merge"] == pytest.approx(1e6 * 0.5 / 9)
    assert said["selecting_share"] == pytest.approx(0.2)
    assert said["last_count"] == 2
    tokens = sorted((left + right for left, right in tokenizer.merges), key=len, reverse=True)
    assert said["longest_tokens"] == [token.decode() for token in tokens[:2]]
    assert said["longest_bytes"] == len(tokens[0])
    # Missing records are not invented.
    del about["selecting_seconds"], about["merges"]
    assert summary(tokenizer)["selecting_share"] is None
    assert summary(tokenizer)["merges"] == 9


def test_the_longest_tokens_are_named_in_order_of_length_then_rank():
    ranks = [(64, 65), (256, 66), (64, 66), (186, 187)]
    said = summary(Tokenizer.from_ranks(ranks, pattern=patterns.resolve("none")))
    assert said["longest_tokens"] == ["abc", "ab", "ac", "\ufffd\ufffd"]
    assert said["longest_bytes"] == 3
    assert said["merges"] is said["seconds"] is said["merges_per_second"] is None


def test_a_tokenizer_without_merges_has_no_longest_token():
    said = summary(Tokenizer.from_ranks([], pattern=patterns.resolve("none"), special_tokens=["<|endoftext|>"]))
    assert said["longest_tokens"] == []
    assert said["longest_bytes"] is None
