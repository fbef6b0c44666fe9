"""Norms and rates in the training log are correct and do not change training."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest
import torch
import torch.nn.functional as F

from lm.model.packing import dense
from lm.model.transformer import ModelConfig, Transformer
from lm.train import diagnostics
from lm.train.config import TrainConfig
from lm.train.diagnostics import Diagnostics, activations, matmul_flops_per_second
from tests.lm.train.test_training import CONFIG, EXACT, MODEL, exact, run
from tokenizer.errors import UserError

WATCHED = dataclasses.replace(CONFIG, diagnostics_every=5, peak_flops=1e9)


def build(**settings):
    model = Transformer(ModelConfig(n_layers=2, hidden_size=32, head_dim=16, **settings), 100, 24)
    model.initialize(0, range(model.vocab_size))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


IDS = torch.randint(100, (3, 20), generator=torch.Generator().manual_seed(2))


def rms(x):
    return x.double().square().mean().sqrt().item()


def test_activations_equal_an_explicit_forward_pass():
    model = build(qk_norm=True)
    decoder, expected = model.model, {}
    with torch.no_grad():
        x = decoder.embed_tokens(IDS)
        for i, layer in enumerate(decoder.layers):
            x = x + layer.self_attn(layer.input_layernorm(x), decoder.cos[:20], decoder.sin[:20])
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
    assert activations(model, row, documents=dense(documents)) == pytest.approx(apart, rel=1e-5)
    assert activations(model, row)["gate_rms/01"] != pytest.approx(apart["gate_rms/01"], rel=1e-5)


@pytest.mark.parametrize("mask", [False, True])
def test_losses_are_the_same_with_and_without(make_shards, corpus, tmp_path, mask):
    shards = make_shards(corpus)
    config = dataclasses.replace(CONFIG, document_mask=mask, peak_flops=1e9)
    _, plain = run(shards, tmp_path / "plain", dataclasses.replace(config, diagnostics_every=0))
    _, watched = run(shards, tmp_path / "watched", dataclasses.replace(config, diagnostics_every=1))
    assert exact(watched) == exact(plain)
    assert not any("mfu" in row for row in plain)
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


def test_utilization_counts_from_the_previous_row():
    model, found = build(), Diagnostics(1, 1e6, "fp32")
    flops = model.flops_per_token()
    assert found.row(model, IDS, tokens=100, seconds=2.0)["mfu"] == pytest.approx(50 * flops / 1e6)
    assert found.row(model, IDS, tokens=400, seconds=3.0)["mfu"] == pytest.approx(300 * flops / 1e6)
    found.mark(1000, 10.0)
    row = found.row(model, IDS, tokens=1060, seconds=12.0)
    assert row["mfu"] == pytest.approx(30 * flops / 1e6)
    assert row["matmul_flops_per_second"] == 1e6
    several = Diagnostics(1, 1e6, "fp32", processes=4).row(model, IDS, tokens=100, seconds=2.0)
    assert several["mfu"] == pytest.approx(50 * flops / 4e6)


def test_the_measured_peak_is_a_matrix_product(monkeypatch):
    """The rate of the same product, timed here; machines are busy, so within a factor of five."""
    measure = matmul_flops_per_second.__wrapped__
    ticks = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.25, 30.0, 31.0])
    monkeypatch.setattr(diagnostics, "_now", lambda device_type: next(ticks))
    assert measure("cpu", "fp32", 1, rounds=3) == 2 * 1024**3 / 0.25  # the first, slow one does not count
    monkeypatch.undo()
    left = torch.rand(1024, 1024)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        left @ left
        times.append(time.perf_counter() - began)
    assert 0.2 < measure("cpu", "fp32", 1) * min(times) / (2 * 1024**3) < 5


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


def test_default_shape_is_measured_too(make_shards, corpus, tmp_path):
    """Without a configured peak it is measured, and the last step has a row."""
    _, rows = run(make_shards(corpus), tmp_path / "run", CONFIG, MODEL)
    assert [row["step"] for row in rows if "mfu" in row] == [1, 12]
    assert 0 < rows[-1]["mfu"] < 1
    assert rows[-1]["matmul_flops_per_second"] > 1e8
