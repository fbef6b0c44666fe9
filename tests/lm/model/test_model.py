import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from lm.model.loss import Objective
from lm.model.segments import PackedSegments
from lm.model.transformer import ModelConfig, Transformer
from tests.lm import tiny
from tokenizer.errors import UserError

SMALL = ModelConfig(n_layers=2, hidden_size=64, head_dim=16, vocab_multiple=64)


def build(config=SMALL, vocab_size=300, context_tokens=32, scale=0.1):
    return tiny.uneven(config, vocab_size, context_tokens, scale=scale)


def test_logits_have_no_padding():
    assert build(vocab_size=320)(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()  # none is needed
    model = build()
    ids = torch.arange(64).view(2, 32)
    logits = model(ids)
    assert logits.shape == (2, 32, 300)
    padded = model.head(model.hidden(ids))
    assert torch.equal(padded[..., :300], logits)
    assert (padded[..., 300:] == -math.inf).all()
    other = build(dataclasses.replace(SMALL, vocab_multiple=7), scale=0.2)(ids)
    divergence = F.kl_div(logits.log_softmax(-1), other.log_softmax(-1), log_target=True, reduction="sum")
    assert 0 < divergence < math.inf
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.arange(64))
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert (model.lm_head.weight.grad[300:] == 0).all()


def test_attention_is_causal_and_keep_selects_positions():
    model = build()
    ids = torch.randint(300, (3, 20), generator=torch.Generator().manual_seed(2))
    logits = model(ids)
    changed = ids.clone()
    changed[:, 10:] = 7
    torch.testing.assert_close(model(changed)[:, :10], logits[:, :10])
    keep = torch.rand(3, 20, generator=torch.Generator().manual_seed(3)) < 0.3
    torch.testing.assert_close(model(ids, keep), logits[keep])


def test_positions_beyond_the_trained_ones_are_rejected():
    with pytest.raises(ValueError, match="33 positions"):
        build()(torch.zeros(1, 33, dtype=torch.long))


def test_fresh_model_is_nearly_uniform_and_layers_do_not_depend_on_the_vocabulary():
    models = [Transformer(SMALL, vocab_size, 32) for vocab_size in (300, 500)]
    for model in models:
        model.initialize(5, range(model.vocab_size))
    ids = torch.arange(32)
    nats = torch.nn.functional.cross_entropy(models[0](ids[None])[0], ids)
    assert abs(nats.item() - math.log(300)) < 0.1
    for small, large in zip(*(m.model.layers.parameters() for m in models), strict=True):
        assert torch.equal(small, large)
    assert torch.equal(models[0].lm_head.weight[:300], models[1].lm_head.weight[:300])


def test_parameter_counts():
    model = Transformer(ModelConfig(n_layers=1, hidden_size=64, head_dim=16, mlp_ratio=2), 100, 32)
    matrices = 4 * 64 * 64 + 3 * 64 * 128
    assert model.n_parameters() == {
        "total": matrices + 3 * 64 + 2 * 128 * 64,
        "non_embedding": matrices + 3 * 64,
        "matmul": matrices + 128 * 64,
    }
    assert model.flops_per_token(20.5) == 6 * (matrices + 128 * 64) + 12 * 64 * 20.5


@pytest.mark.parametrize(
    ("n_layers", "hidden_size", "parameters"), [(4, 256, 3.2e6), (8, 512, 25.3e6), (11, 704, 66.1e6), (24, 1536, 680e6)]
)
def test_the_number_of_layers_gives_a_family_of_sizes(n_layers, hidden_size, parameters):
    config = ModelConfig(n_layers=n_layers)
    assert config.hidden_size == hidden_size
    assert dataclasses.replace(config, n_layers=2).hidden_size == hidden_size  # resolved where it is made
    with torch.device("meta"):
        model = Transformer(config, 32_700, 512)
    assert model.n_parameters()["non_embedding"] == pytest.approx(parameters, rel=0.01)
    assert ModelConfig(n_layers=3, head_dim=128).hidden_size == 256  # whole heads
    assert ModelConfig(n_layers=10, hidden_size=640).hidden_size == 640


LENGTHS = [7, 1, 32, 12, 20]


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_segments_are_computed_as_if_alone(qk_norm, masked, monkeypatch):
    if masked:  # as where the bounds cannot be read
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    model = build(dataclasses.replace(SMALL, qk_norm=qk_norm))
    ids = torch.randint(300, (sum(LENGTHS),), generator=torch.Generator().manual_seed(4))
    hidden = model.hidden(ids[None], segments=PackedSegments.of(LENGTHS))[0]
    alone = torch.cat([model.hidden(part[None])[0] for part in ids.split(LENGTHS)])
    torch.testing.assert_close(hidden, alone, rtol=1e-4, atol=1e-5)
    # Backwards too: what a segment's loss asks of the embeddings comes from that segment's ids alone.
    hidden[8:40].square().sum().backward()
    touched = model.model.embed_tokens.weight.grad.abs().sum(1).nonzero().flatten()
    assert set(touched.tolist()) == set(ids[8:40].tolist())


@pytest.mark.slow
def test_other_segments_do_not_recompile():
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    model = build().requires_grad_(False)
    Objective(model).fuse(backend="eager")
    for n in range(4):
        ids = torch.randint(300, (1, 30 + 10 * n), generator=torch.Generator().manual_seed(n))
        model.hidden(ids, segments=PackedSegments.of([10, 12] + [4 + 5 * n] * 2))
    assert counters["stats"]["unique_graphs"] == 1  # of all layers, for all lengths
    assert not counters["graph_break"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 100}, "not a multiple of head_dim=64"),
        ({"hidden_size": 9, "head_dim": 3}, "odd"),
        ({"n_layers": 0}, "n_layers=0"),
        ({"mlp_ratio": 0}, "mlp_ratio"),
    ],
)
def test_impossible_shapes(settings, message):
    with pytest.raises(UserError, match=message):
        ModelConfig(**settings)
