"""Training runs and evaluations on a device."""

import dataclasses
import random
from functools import partial

import pytest
import torch

from lm.evaluate import scoring
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.evaluate.forward import Forward
from lm.model.transformer import ModelConfig
from lm.model.weights import load_model
from lm.train.config import TrainConfig
from lm.train.loop import train
from lm.train.trainer import Trainer
from tests.lm.train.runs import run
from tokenizer.errors import UserError

MODEL = ModelConfig(n_layers=2, hidden_size=64, head_dim=32)
CONFIG = TrainConfig(
    train_bytes=12 * 2048,
    bytes_per_step=2048,
    context_bytes=512,
    device="cpu",
    precision="fp32",
    compile=False,
    threads=1,
    document_mask=True,
)


@pytest.fixture
def shards(make_shards):
    rng = random.Random(0)
    words = ["the", "of", "in", "town", "hill", "history", "naïve", "beginning", "end"]
    return make_shards([" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(120)])


@pytest.mark.parametrize("first", [True, False])
def test_a_checkpoint_of_one_device_resumes_on_the_other(device, shards, tmp_path, first):
    if device == "cpu":
        pytest.skip("resuming on a CPU is checked in tests/lm/train")
    order = (device, "cpu") if first else ("cpu", device)
    configs = [dataclasses.replace(CONFIG, device=place) for place in order]
    _, expected = run(shards, tmp_path / "whole", CONFIG, MODEL)
    _, before = run(shards, tmp_path / "run", configs[0], MODEL, stop_at=6)
    _, after = run(shards, tmp_path / "run", configs[1], MODEL)
    losses = [entry["loss"] for entry in before + after]
    assert [entry["step"] for entry in before + after] == list(range(1, 13))
    assert losses == pytest.approx([entry["loss"] for entry in expected], rel=0.02)  # Muon is in bf16 on CUDA


def test_compiled_bf16_training_with_document_masks(device, shards, tmp_path):
    if device == "cpu":
        pytest.skip("generating code takes a minute; the graphs are checked in tests/lm/train")
    _, expected = run(shards, tmp_path / "cpu", CONFIG, MODEL)
    config = dataclasses.replace(CONFIG, device=device, precision="bf16", compile=True)
    summary, found = run(shards, tmp_path / "cuda", config, MODEL)
    assert [e["loss"] for e in found] == pytest.approx([e["loss"] for e in expected], rel=0.05)
    assert summary.run["compile"] is True


def test_steps_between_log_entries_do_not_synchronize(device, shards, tmp_path):
    if device == "cpu":
        pytest.skip("operations that synchronize are counted in tests/lm/train")
    trainer = Trainer(MODEL, dataclasses.replace(CONFIG, device=device, log_every=100), shards, tmp_path)
    trainer.begin()
    trainer.advance()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert trainer.advance() is None
        assert trainer.advance() is None
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.slow
def test_evaluation_in_bf16(device, shards, tmp_path, monkeypatch):
    train(MODEL, dataclasses.replace(CONFIG, document_mask=False), shards, tmp_path / "run")
    model = load_model(tmp_path / "run", device)
    config = EvalConfig(context_bytes=256, min_context_bytes=64)

    def at(precision):
        monkeypatch.setattr(scoring, "Forward", partial(Forward, precision=precision, on_gpu=True))
        return evaluate(model, shards, shards.token_byte_lengths, config).bits_per_byte

    full, half = map(at, ("fp32", "bf16"))
    assert half == pytest.approx(full, abs=1e-4)
    assert half != full
    monkeypatch.undo()
    cpu = evaluate(load_model(tmp_path / "run"), shards, shards.token_byte_lengths, config).bits_per_byte
    assert full == pytest.approx(cpu, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"with 4 rows of about \d+ tokens at a time; lower lm.train.microbatch_size"),
        (
            {"microbatch_size": 1},
            r"with 1 row of about \d+ tokens at a time; lower .*lm.train.context_bytes or lm.model",
        ),
    ],
)
def test_too_little_memory_in_training_names_the_setting(device, shards, tmp_path, monkeypatch, settings, message):
    exhaust(device, monkeypatch, Trainer, "advance")
    config = dataclasses.replace(CONFIG, device=device, **settings)
    with pytest.raises(UserError, match=message) as error:
        run(shards, tmp_path / "run", config, ModelConfig(n_layers=2, hidden_size=1024))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_too_little_memory_in_evaluation_names_the_setting(device, shards, tmp_path, monkeypatch):
    train(MODEL, CONFIG, shards, tmp_path / "run")
    model = load_model(tmp_path / "run", device)
    exhaust(device, monkeypatch, Forward, "__call__")
    with pytest.raises(UserError, match=r"lower eval.batch_tokens \(4096\)"):
        evaluate(model, shards, shards.token_byte_lengths, EvalConfig(context_bytes=256, min_context_bytes=64))


def exhaust(device, monkeypatch, owner, name):
    """Make a method run out of memory: a CPU's operating system would kill the process instead."""
    original = getattr(owner, name)

    def exhausted(*args, **options):
        if device == "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 1 GiB")
        hog = torch.empty(1, device=device)
        torch.cuda.set_per_process_memory_fraction(1e-6)
        try:
            torch.cuda.empty_cache()
            torch.empty(1 << 28, device=device)
            return original(*args, **options)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            del hog

    monkeypatch.setattr(owner, name, exhausted)
