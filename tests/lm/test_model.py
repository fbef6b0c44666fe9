from __future__ import annotations

import math

import pytest
import torch

from lm.model import ModelConfig, Transformer
from tokenizer.errors import UserError

SMALL = ModelConfig(depth=2, width=64, head_width=16, vocab_multiple=64)


def build(config=SMALL, vocab_size=300, context_tokens=32, seed=0):
    model = Transformer(config, vocab_size, context_tokens)
    model.initialize(seed)
    # Zero projections would hide mistakes in attention and MLP.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def test_padding_ids_are_impossible():
    model = build()
    logits = model(torch.arange(64).view(2, 32))
    assert logits.shape == (2, 32, 320)
    assert (logits[..., 300:] == -math.inf).all()
    assert logits[..., :300].isfinite().all()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.arange(64))
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert (model.lm_head.weight.grad[300:] == 0).all()


def test_no_padding_when_the_vocabulary_fits():
    assert build(vocab_size=320)(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()


def test_causal_and_kept_positions():
    model = build()
    ids = torch.randint(300, (3, 20), generator=torch.Generator().manual_seed(2))
    logits = model(ids)
    changed = ids.clone()
    changed[:, 10:] = 7
    torch.testing.assert_close(model(changed)[:, :10], logits[:, :10])
    keep = torch.rand(3, 20, generator=torch.Generator().manual_seed(3)) < 0.3
    torch.testing.assert_close(model(ids, keep), logits[keep])


def test_positions_beyond_the_trained_ones_are_refused():
    with pytest.raises(ValueError, match="33 positions"):
        build()(torch.zeros(1, 33, dtype=torch.long))


def test_fresh_model_is_nearly_uniform_and_layers_do_not_depend_on_the_vocabulary():
    models = [Transformer(SMALL, vocab_size, 32) for vocab_size in (300, 500)]
    for model in models:
        model.initialize(5)
    ids = torch.arange(32)
    nats = torch.nn.functional.cross_entropy(models[0](ids[None])[0], ids)
    assert abs(nats.item() - math.log(300)) < 0.1
    for small, large in zip(*(m.model.layers.parameters() for m in models), strict=True):
        assert torch.equal(small, large)
    assert torch.equal(models[0].lm_head.weight, models[1].lm_head.weight[:320])


def test_counts():
    model = Transformer(ModelConfig(depth=1, width=64, head_width=16, mlp_ratio=2), 100, 32)
    matrices = 4 * 64 * 64 + 3 * 64 * 128
    assert model.n_parameters() == {
        "total": matrices + 3 * 64 + 2 * 128 * 64,
        "non_embedding": matrices + 3 * 64,
        "matmul": matrices + 128 * 64,
    }
    assert model.flops_per_token() == 6 * (matrices + 128 * 64) + 12 * 64 * 32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 100}, "not a multiple of head_width=64"),
        ({"width": 9, "head_width": 3}, "odd"),
        ({"depth": 0}, "depth=0"),
        ({"mlp_ratio": 0}, "mlp_ratio"),
    ],
)
def test_impossible_shapes(settings, message):
    with pytest.raises(UserError, match=message):
        ModelConfig(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_layout_is_hugging_faces(qk_norm, tied):
    """The weights go as they are into LlamaForCausalLM (qk_norm: Qwen3ForCausalLM) and mean the same."""
    transformers = pytest.importorskip("transformers")
    config = ModelConfig(
        depth=2,
        width=64,
        head_width=16,
        rope_theta=500.0,
        qk_norm=qk_norm,
        tie_embeddings=tied,
        norm_eps=1e-5,
    )
    model = build(config)
    settings = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "tie_word_embeddings": tied,
    }
    if qk_norm:
        other = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings))
    else:
        other = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    other.load_state_dict(model.state_dict(), strict=True)
    ids = torch.randint(300, (2, 32), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(ids).logits[..., :300], model(ids)[..., :300], rtol=1e-4, atol=1e-4)
