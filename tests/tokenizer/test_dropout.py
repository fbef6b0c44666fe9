"""BPE dropout beside its reference: the same coins, and chances worked out by hand."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.tokenizer.test_bpe import ONE_PASS, TWO_PASS, arbitrary_tokenizers, spelled
from tokenizer import Tokenizer, UserError, patterns, reference
from tokenizer.formats import tiktoken


def by_reference(tokenizer, text, p, seed, document=0):
    two_pass = tokenizer.mode == "two-pass"
    first = tokenizer.pattern if two_pass else tokenizer.fence or tokenizer.pattern
    return reference.encode_with_dropout(
        text,
        tokenizer.merges,
        tokenizer._encoder.phase1,
        reference.coins(p, seed, document),
        pattern=first.regex or None,
        fence=(tokenizer.fence.regex or None) if two_pass else None,
        two_pass=two_pass,
    )


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
@pytest.mark.parametrize("p", [1e-300, 0.1, 0.5, 0.97])
def test_ids_equal_the_reference(name, p, trained, disputed):
    tokenizer = trained[name]
    for seed, text in enumerate([*texts.various()[:12], *texts.english()[1][:4], texts.code()]):
        text = "".join(c for c in text[:600] if c not in disputed)
        ids = tokenizer.encode_dropout(text, p, seed=seed)
        assert spelled(tokenizer, ids) == by_reference(tokenizer, text, p, seed)
        if p == 1e-300:  # no coin drops, but all the coins are thrown
            assert ids == tokenizer.encode_ordinary(text)


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
@given(
    text=st.text(alphabet="aetnos  TH.,:1\n'é日🙂", max_size=50),
    p=st.floats(0, 1),
    seed=st.integers(0, (1 << 64) - 1),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_ids_of_dense_text_equal_the_reference(name, trained, text, p, seed):
    tokenizer = trained[name]
    ids = tokenizer.encode_dropout(text, p, seed=seed)
    assert spelled(tokenizer, ids) == by_reference(tokenizer, text, p, seed)
    assert tokenizer.decode(ids, errors="strict") == text


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
def test_dropout_of_zero_and_of_one(name, trained):
    tokenizer = trained[name]
    for text in [*texts.various(), "", "a"]:
        assert tokenizer.encode_dropout(text, 0, seed=1) == tokenizer.encode_ordinary(text)
        assert spelled(tokenizer, tokenizer.encode_dropout(text, 1, seed=1)) == reference.as_bytes(text)


@given(
    tokenizer=arbitrary_tokenizers(),
    text=st.text(alphabet="aab  .1\néè", max_size=40),
    p=st.sampled_from([1e-300, 0.2, 0.7]),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_arbitrary_tokenizers_with_dropout(tokenizer, text, p):
    """Also those whose phases cannot be parted: their pieces are one stretch."""
    ids = tokenizer.encode_dropout(text, p, seed=8)
    assert tokenizer.decode(ids, errors="strict") == text
    if p == 1e-300:
        assert ids == tokenizer.encode_ordinary(text)


def test_chances_by_hand():
    """`abc` with the merges (a, b), (b, c), (ab, c): by rank.

    Step 1 has ab and bc possible. It keeps ab (1 - p), or drops it and keeps bc (p(1 - p)), or drops both (p^2: a b c).
    After ab the only one left is (ab, c): abc with 1 - p, ab c with p. After bc there is none: a bc.
    """
    a, b, c = b"a", b"b", b"c"
    ranks = reference.ranks_of([(a, b), (b, c), (a + b, c)])
    for p in (0.0, 0.1, 0.5, 1.0):
        expected = {(b"abc",): (1 - p) ** 2, (b"ab", c): (1 - p) * p, (a, b"bc"): p * (1 - p), (a, b, c): p * p}
        found = reference.distribution([a, b, c], ranks, p)
        assert found.keys() == expected.keys()
        assert all(math.isclose(found[word], expected[word], abs_tol=1e-15) for word in expected)


def test_a_merge_at_two_places_has_a_coin_at_each():
    """`aaa` with (a, a): left first. Kept at the left 1 - p, else at the right p(1 - p), else not at all."""
    ranks = reference.ranks_of([(b"a", b"a")])
    found = reference.distribution([b"a"] * 3, ranks, 0.25)
    assert found == {(b"aa", b"a"): 0.75, (b"a", b"aa"): 0.1875, (b"a", b"a", b"a"): 0.0625}


def test_frequencies_are_the_chances():
    tokenizer = Tokenizer.from_ranks(
        [(64, 65), (65, 66), (256, 66), (258, 67), (65, 257)], pattern=patterns.resolve("none")
    )
    assert tokenizer.merges[:3] == [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c")]
    n, p, text = 20_000, 0.3, "abcdbc"
    ids, offsets = tokenizer.encode_batch_dropout([text] * n, p, seed=5, threads=2)
    counts = Counter(tuple(spelled(tokenizer, ids[start:end])) for start, end in pairwise(offsets))
    chances = reference.distribution(reference.as_bytes(text), reference.ranks_of(tokenizer.merges), p)
    assert counts.keys() == chances.keys()
    assert math.isclose(sum(chances.values()), 1)
    # Chi-square: with k outcomes its mean is k - 1 and its variance 2(k - 1).
    chi = sum((counts[word] - n * chance) ** 2 / (n * chance) for word, chance in chances.items())
    freedom = len(chances) - 1
    assert abs(chi - freedom) < 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass"])
def test_batches_depend_only_on_the_seed_and_the_position(name, trained):
    tokenizer, documents = trained[name], [*texts.english()[1][:40], "", "again", "again"]
    ids, offsets = tokenizer.encode_batch_dropout(documents, 0.2, seed=3, threads=1)
    for threads in (2, 5):
        again, where = tokenizer.encode_batch_dropout(documents, 0.2, seed=3, threads=threads)
        np.testing.assert_array_equal(again, ids)
        np.testing.assert_array_equal(where, offsets)
    assert tokenizer.decode_batch(ids, offsets) == documents
    assert ids[: offsets[1]].tolist() == tokenizer.encode_dropout(documents[0], 0.2, seed=3)
    i = 7
    assert spelled(tokenizer, ids[offsets[i] : offsets[i + 1]]) == by_reference(tokenizer, documents[i], 0.2, 3, i)
    other, _ = tokenizer.encode_batch_dropout(documents, 0.2, seed=4)
    assert other.tolist() != ids.tolist()


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass", "unfenced"])
def test_dropout_makes_more_tokens_of_words_and_of_superwords(name, trained):
    """As the paper has it for words; the steps of a long fenced piece would hardly drop anything for good."""
    tokenizer, text = trained[name], "".join(texts.english()[1][:30])
    plain, dropped = len(tokenizer.encode_ordinary(text)), len(tokenizer.encode_dropout(text, 0.1, seed=1))
    assert 1.05 < dropped / plain < 1.4


def test_tokens_without_a_merge_need_a_whole_piece():
    ranks = {bytes([i]): i for i in range(256)} | {b"xyz": 256}
    tokenizer = Tokenizer(*tiktoken.from_ranks(ranks, pattern="gpt2"))
    assert tokenizer.encode_dropout("xyz", 0, seed=1) == [256]
    assert tokenizer.encode_dropout("xyz", 1e-300, seed=1) == [*b"xyz"]


@pytest.mark.parametrize("name", ["gpt2", "superwords", "two_pass", "unfenced"])
def test_the_phases_are_the_tokenizers_own(name, trained):
    assert trained[name]._encoder.phase1 == trained[name].n_phase1_merges


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_p_must_be_a_probability(p, trained):
    with pytest.raises(UserError, match="is not a probability: it must be from 0 to 1"):
        trained["gpt2"].encode_dropout("a", p, seed=0)


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seeds_have_64_bits(seed, trained):
    with pytest.raises(UserError, match=rf"seed={seed} must be from 0 to"):
        trained["gpt2"].encode_dropout("a", 0.1, seed=seed)
