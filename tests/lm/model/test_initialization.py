"""Initial weights of models with different tokenizers."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch

from lm.data.shards import token_hashes
from lm.model.transformer import ModelConfig, Transformer
from tests.lm import tiny
from tokenizer import Tokenizer

MERGES = [(b"t", b"h"), (b"th", b"e"), (b"a", b"n"), (b" ", b"the")]


def permuted(tokenizer):
    """The same tokens with ids in another order, as a tokenizer from elsewhere has them."""
    ids = np.random.default_rng(1).permutation(tokenizer.vocab_size)
    specials = {name: int(ids[i]) for name, i in tokenizer.special_tokens.items()}
    moved = {"byte_ids": ids[list(tokenizer.byte_ids)], "merge_ids": ids[tokenizer.merge_ids]}
    return Tokenizer(replace(tokenizer.definition, **moved, special_tokens=specials))


def initialized(tokenizer, seed=0, **options):
    model = Transformer(ModelConfig(n_layers=2, hidden_size=32, head_dim=16, **options), tokenizer.vocab_size, 16)
    model.initialize(seed, token_hashes(tokenizer))
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_shared_tokens_start_equal_under_any_ids(tied):
    ours = tiny.merged(MERGES, special_tokens=["<|endoftext|>", "an"])
    other = permuted(tiny.merged([*MERGES[:2], (b"i", b"n")], special_tokens=["<|endoftext|>", "<s>"]))
    models = [initialized(tokenizer, tie_embeddings=tied) for tokenizer in (ours, other)]

    def rows_of(tokenizer, model):
        tables, special = (model.model.embed_tokens.weight, model.lm_head.weight), tokenizer.special_tokens.values()
        return {(token, i in special): [table[i] for table in tables] for i, token in enumerate(tokenizer.vocab)}

    rows = list(map(rows_of, (ours, other), models))
    shared = rows[0].keys() & rows[1].keys()
    assert len(shared) == 256 + 2 + 1  # bytes, `th` and `the`, <|endoftext|>
    for key in shared:
        assert all(torch.equal(one, two) for one, two in zip(rows[0][key], rows[1][key], strict=True))
    assert not torch.equal(rows[0][b"an", True][0], rows[0][b"an", False][0])  # a special token and an ordinary one
    for one, two in zip(models[0].model.layers.parameters(), models[1].model.layers.parameters(), strict=True):
        assert torch.equal(one, two)


def test_tables_and_seeds_have_rows_of_their_own():
    tokenizer = tiny.merged(MERGES)
    models = [initialized(tokenizer, seed) for seed in (0, 1)]
    tables = [m.weight[: tokenizer.vocab_size] for model in models for m in (model.model.embed_tokens, model.lm_head)]
    for table, std in zip(tables, (1.0, 0.02) * 2, strict=True):
        assert table.mean().item() == pytest.approx(0, abs=0.05 * std)
        assert table.std().item() == pytest.approx(std, rel=0.05)
    correlation = torch.corrcoef(torch.stack([table.flatten() for table in tables]))
    assert (correlation - torch.eye(4)).abs().max() < 0.05
    assert not models[0].lm_head.weight[tokenizer.vocab_size :].any()


def test_hashes_and_rows_do_not_change_between_versions():
    tokenizer = tiny.bytes_only()
    hashes = token_hashes(tokenizer)
    assert len(np.unique(hashes)) == 257
    assert hashes[tokenizer.byte_ids[ord("a")]] == 0xE6C632B61E964E1F
    row = initialized(tokenizer, seed=1).lm_head.weight[tokenizer.byte_ids[ord("a")]].tolist()
    assert row == pytest.approx(spelled_out(0xE6C632B61E964E1F, stream=2, std=0.02, n=len(row)), rel=1e-5)


def spelled_out(token_hash, *, stream, std, n):
    """A row as its definition says: SplitMix64, and the inverse of the normal distribution."""

    def mixed(value):
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    seed = mixed(token_hash ^ mixed(stream))
    bits = [mixed((seed + k * 0x9E3779B97F4A7C15) % 2**64) >> 11 for k in range(1, n + 1)]
    return [std * NormalDist().inv_cdf((value + 0.5) / 2**53) for value in bits]
