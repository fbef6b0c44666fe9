"""Norms and rates in the training log are correct and do not change training."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
import torch.nn.functional as F

from lm.model.transformer import ModelConfig
from lm.train.config import TrainConfig
from lm.train.diagnostics import activations
from tests.lm import tiny
from tests.lm.train.test_training import CONFIG, EXACT, exact, run
from tokenizer.errors import UserError

WATCHED = dataclasses.replace(CONFIG, diagnostics_every=5, peak_flops=1e9)


def build(**settings):
    return tiny.uneven(ModelConfig(n_layers=2, hidden_size=32, head_dim=16, **settings), 100, 24)


IDS = torch.randint(100, (3, 20), generator=torch.Generator().manual_seed(2))


causal = functools.partial(F.scaled_dot_product_attention, is_causal=True)


def rms(x):
    return x.double().square().mean().sqrt().item()


def test_activations_equal_an_explicit_forward_pass():
    model = build(qk_norm=True)
    decoder, expected = model.model, {}
    with torch.no_grad():
        x = decoder.embed_tokens(IDS)
        for i, layer in enumerate(decoder.layers):
            x = x + layer.self_attn(layer.input_layernorm(x), decoder.cos[:20], decoder.sin[:20], causal)
            gate = layer.mlp.gate_proj(layer.post_attention_layernorm(x))
            expected[f"gate_rms/{i:02d}"] = rms(gate)
            x = x + layer.mlp.down_proj(F.silu(gate) * layer.mlp.up_proj(layer.post_attention_layernorm(x)))
        expected["residual_rms"] = rms(x)
    found = activations(model, IDS)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert activations(model, IDS, "bf16") == pytest.approx(expected, rel=0.02)


def test_activations_of_a_compiled_model():
    model = build()
    expected = activations(model, IDS)
    model.model.compile(backend="eager")
    model(IDS)
    assert activations(model, IDS) == expected


def test_activations_within_documents():
    """Two documents in a row are measured as the two rows that they would be by themselves."""
    model = build()
    row, documents = IDS[:1], (torch.arange(20) >= 10).long()[None]
    apart = activations(model, row.view(2, 10))
    assert activations(model, row, documents=documents) == pytest.approx(apart, rel=1e-5)
    assert activations(model, row)["gate_rms/01"] != pytest.approx(apart["gate_rms/01"], rel=1e-5)


@pytest.mark.parametrize("mask", [False, True])
def test_losses_are_the_same_with_and_without(make_shards, corpus, tmp_path, mask):
    shards = make_shards(corpus)
    config = dataclasses.replace(CONFIG, document_mask=mask, peak_flops=1e9)
    _, plain = run(shards, tmp_path / "plain", dataclasses.replace(config, diagnostics_every=0))
    _, watched = run(shards, tmp_path / "watched", dataclasses.replace(config, diagnostics_every=1))
    assert exact(watched) == exact(plain)
    assert not any("residual_rms" in row for row in plain)
    assert all("mfu" in row for row in watched)
    # A run with diagnostics resumes without them, and the other way round.
    every = dataclasses.replace(config, diagnostics_every=1)
    _, before = run(shards, tmp_path / "broken", every, stop_at=6)
    _, after = run(shards, tmp_path / "broken", dataclasses.replace(config, diagnostics_every=0))
    assert exact(before + after) == exact(plain)


def test_rows_of_a_resumed_run_are_those_of_an_unbroken_one(make_shards, corpus, tmp_path):
    shards = make_shards(corpus)
    _, whole = run(shards, tmp_path / "whole", WATCHED)
    _, before = run(shards, tmp_path / "broken", WATCHED, stop_at=7)
    _, after = run(shards, tmp_path / "broken", WATCHED)
    measured = [row["step"] for row in whole if "mfu" in row]
    assert measured == [1, 5, 10, 12]
    times = ("mfu", "seconds", "tokens_per_second")
    assert [{k: v for k, v in row.items() if k not in times} for row in before + after] == [
        {k: v for k, v in row.items() if k not in times} for row in whole
    ]
    assert whole[0]["gate_rms/00"] > 0
    assert set(EXACT) < set(whole[0])


def test_measured_steps_are_logged(make_shards, corpus, tmp_path):
    _, rows = run(make_shards(corpus), tmp_path / "run", dataclasses.replace(WATCHED, log_every=4))
    assert [(row["step"], "mfu" in row) for row in rows] == [
        *((1, True), (4, False), (5, True), (8, False), (10, True), (12, True))
    ]


def test_utilization_is_that_of_the_logged_speed(make_shards, corpus, tmp_path):
    summary, rows = run(make_shards(corpus), tmp_path / "run", WATCHED)
    for row in rows:
        if "mfu" in row:
            assert row["mfu"] == pytest.approx(row["tokens_per_second"] * summary.flops_per_token / 1e9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"diagnostics_every": -1}, "diagnostics_every=-1"),
        ({"peak_flops": 0.0}, "peak_flops=0.0"),
        ({"peak_flops": math.nan}, "nan"),
    ],
)
def test_impossible_settings_are_errors(settings, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(**settings)
