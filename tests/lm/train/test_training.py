import dataclasses
import functools
import itertools
import math

import pytest
import torch

from lm.model import transformer
from lm.model.loss import Objective
from lm.model.weights import load_model
from lm.train.batches import read_batch
from lm.train.config import TrainConfig
from lm.train.loop import train
from lm.train.summary import TrainingSummary
from lm.train.trainer import Trainer
from tests.lm.synchronization import Waits
from tests.lm.train.runs import CONFIG, MODEL, exact, run
from tokenizer.errors import UserError


def test_loss_falls_and_the_numbers_add_up(shards, tmp_path):
    config = dataclasses.replace(CONFIG, train_bytes=40 * 256)
    progress = []
    entries = []
    summary = train(
        MODEL,
        config,
        shards,
        tmp_path / "run",
        log=entries.append,
        progress=lambda *args: progress.append(args),
    )
    assert [entry["step"] for entry in entries] == list(range(1, 41))
    assert progress == [("steps", step, 40) for step in range(1, 41)]
    assert entries[0]["loss"] == pytest.approx(math.log(shards.vocab_size), rel=0.05)
    assert entries[-1]["train_bits_per_byte"] < 0.7 * entries[0]["train_bits_per_byte"]

    assert summary.steps == 40
    assert summary.rows == 4
    assert summary.context_tokens == 64 * shards.n_tokens / shards.n_bytes
    assert summary.tokens == pytest.approx(40 * 4 * summary.context_tokens, rel=0.02)
    assert summary.tokens == entries[-1]["tokens_seen"]
    assert summary.bytes == entries[-1]["bytes_seen"]
    assert summary.flops == summary.tokens * summary.flops_per_token == entries[-1]["flops"]
    assert summary.epochs == pytest.approx(summary.tokens / shards.n_tokens, rel=0.02)
    assert summary == TrainingSummary.load(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "learned_ids.npy",
        "model.safetensors",
        "summary.json",
    ]


def test_bits_per_byte_counts_text_alone(make_shards, tmp_path):
    """The first step's model is almost uniform, so a text token costs log2(vocabulary) bits.

    Documents of one byte: every other target is <|endoftext|>, whose loss must not be in the numerator.
    """
    shards = make_shards(list("abcdefghij") * 50)
    _, entries = run(shards, tmp_path / "run", dataclasses.replace(CONFIG, train_bytes=256))
    assert entries[0]["bytes_seen"] == entries[0]["tokens_seen"] / 2
    assert entries[0]["train_bits_per_byte"] == pytest.approx(math.log2(shards.vocab_size), rel=0.05)
    assert entries[0]["loss"] == pytest.approx(math.log(shards.vocab_size), rel=0.05)


def test_learning_rate_follows_the_bytes(shards, tmp_path):
    config = dataclasses.replace(CONFIG, train_bytes=10 * 256, warmup_fraction=0.2, decay_fraction=0.4)
    _, entries = run(shards, tmp_path / "run", config)
    factors = [entry["lr"] / config.matrix_lr for entry in entries]
    assert factors == pytest.approx([0.25, 0.75, 1, 1, 1, 1, 0.875, 0.625, 0.375, 0.125])


def test_equal_runs_write_equal_files(shards, tmp_path):
    runs = [run(shards, tmp_path / name)[1] for name in "ab"]  # the order in a file was random once
    assert all(exact(entries) == exact(runs[0]) for entries in runs)
    assert exact(run(shards, tmp_path / "other", dataclasses.replace(CONFIG, seed=1))[1]) != exact(runs[0])
    files = [tmp_path / name / "model.safetensors" for name in "ab"]
    assert len({file.read_bytes() for file in files}) == 1
    (tmp_path / "plain").touch()  # and other users can read them, unlike those of safetensors
    assert {file.stat().st_mode for file in files} == {(tmp_path / "plain").stat().st_mode}


def test_microbatches_change_nothing_but_rounding(shards, tmp_path):
    _, whole = run(shards, tmp_path / "a")
    _, parts = run(shards, tmp_path / "b", dataclasses.replace(CONFIG, microbatch_size=3))
    assert [e["loss"] for e in parts] == pytest.approx([e["loss"] for e in whole], rel=1e-3)


def test_a_small_corpus_is_read_again_with_a_warning(make_shards, tmp_path):
    shards = make_shards(["the history of the town"] * 3)
    with pytest.warns(UserWarning, match=r"reads it [\d.]+ times"):
        summary, _ = run(shards, tmp_path / "run")
    assert summary.epochs > 10


def test_a_diverging_run_is_reported(shards, tmp_path):
    with pytest.raises(UserError, match="diverged"):
        run(shards, tmp_path / "run", dataclasses.replace(CONFIG, vector_lr=1e38, head_lr=1e38))


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_loads(shards, tmp_path, tied):
    run(shards, tmp_path / "run", model=dataclasses.replace(MODEL, tie_embeddings=tied, qk_norm=True))
    model = load_model(tmp_path / "run")
    assert not model.training
    assert model.tokenizer_sha256 == shards.tokenizer_sha256
    assert (model.vocab_size, model.config.qk_norm) == (shards.vocab_size, True)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    with pytest.raises(UserError, match="missing"):
        load_model(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bytes_per_step": 100}, "use bytes_per_step=128"),
        ({"train_bytes": 100}, "less than one step"),
        ({"context_bytes": 0}, "context_bytes=0"),
        ({"warmup_fraction": 0.6, "decay_fraction": 0.5}, "overlap"),
    ],
)
def test_impossible_budgets(settings, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(CONFIG, **settings)


@pytest.mark.parametrize(("device", "message"), [("tpu9", "unknown"), ("meta", "unknown"), ("cuda:99", "finds")])
def test_unknown_devices(make_shards, tmp_path, device, message):
    with pytest.raises(UserError, match=message):
        run(make_shards(), tmp_path / "run", dataclasses.replace(CONFIG, device=device))


def test_document_masks_change_what_is_learned(shards, tmp_path):
    _, plain = run(shards, tmp_path / "plain")
    _, masked = run(shards, tmp_path / "masked", dataclasses.replace(CONFIG, document_mask=True))
    assert [e["bytes_seen"] for e in masked] == [e["bytes_seen"] for e in plain]
    assert masked[-1]["loss"] != plain[-1]["loss"]
    with pytest.raises(UserError, match=r"other settings: document_mask \(True there, False now\)"):
        run(shards, tmp_path / "masked")


def test_bf16_is_part_of_a_runs_identity(shards, tmp_path):
    config = dataclasses.replace(CONFIG, train_bytes=4 * 256)
    _, exactly = run(shards, tmp_path / "fp32", config)
    half = dataclasses.replace(config, precision="bf16")
    summary, roughly = run(shards, tmp_path / "bf16", half)
    assert summary.run["precision"] == "bf16"
    losses = [[e["loss"] for e in entries] for entries in (roughly, exactly)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert all(weight.dtype == torch.float32 for weight in load_model(tmp_path / "bf16").state_dict().values())
    with pytest.raises(UserError, match=r"other settings: precision \(bf16 there, fp32 now\)"):
        run(shards, tmp_path / "bf16", config)


@pytest.mark.slow
def test_compiled_training_computes_the_same_with_two_graphs(shards, tmp_path, monkeypatch):
    """With Torch's own graphs and no generated code, which would take a minute: one of the blocks, one of the loss."""
    monkeypatch.setattr(Objective, "fuse", functools.partialmethod(Objective.fuse, backend="aot_eager"))
    counters = torch._dynamo.utils.counters
    counters.clear()
    config = dataclasses.replace(
        CONFIG, train_bytes=8 * 256, tokens_per_step=120.0, document_mask=True, microbatch_size=3
    )
    _, plain = run(shards, tmp_path / "plain", config)
    assert not counters["stats"]
    summary, fused = run(shards, tmp_path / "fused", dataclasses.replace(config, compile=True))
    assert counters["stats"]["unique_graphs"] == 2
    assert not counters["graph_break"]
    assert summary.run["compile"] is True
    assert [e["loss"] for e in fused] == pytest.approx([e["loss"] for e in plain], rel=1e-4)
    assert load_model(tmp_path / "fused").vocab_size == shards.vocab_size


@pytest.mark.slow
def test_what_cannot_be_compiled_is_an_error(shards, tmp_path, monkeypatch):
    """Torch would compute it without compilation, while the summary says that the run was compiled."""
    monkeypatch.setattr(Objective, "fuse", functools.partialmethod(Objective.fuse, backend="eager"))
    monkeypatch.setattr(transformer.SwiGLU, "forward", lambda _, x: torch._dynamo.graph_break() or x)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        run(shards, tmp_path / "run", dataclasses.replace(CONFIG, compile=True))


@pytest.mark.parametrize("document_mask", [False, True])
def test_steps_between_log_entries_do_not_wait_for_the_device(make_shards, corpus, tmp_path, document_mask):
    config = dataclasses.replace(CONFIG, log_every=100, document_mask=document_mask)
    trainer = Trainer(MODEL, config, make_shards(corpus), tmp_path)
    trainer.begin()
    with Waits() as waits:
        assert trainer.advance() is None
        assert trainer.advance() is None
        assert waits.count == 0
    logging_trainer = Trainer(MODEL, CONFIG, make_shards(corpus), tmp_path)
    logging_trainer.begin()
    with Waits() as waits:
        logging_trainer.advance()
        assert waits.count > 0


def test_speed_is_measured_since_the_last_entry(shards, tmp_path):
    _, entries = run(shards, tmp_path / "run", dataclasses.replace(CONFIG, log_every=5))
    assert [entry["step"] for entry in entries] == [5, 10, 12]
    for one, two in itertools.pairwise(entries):
        rate = (two["tokens_seen"] - one["tokens_seen"]) / (two["seconds"] - one["seconds"])
        assert two["tokens_per_second"] == pytest.approx(rate)


@pytest.mark.slow
def test_utilization_is_measured_after_the_warm_up(shards, tmp_path, monkeypatch):
    assert train(MODEL, CONFIG, shards, tmp_path / "unknown").mfu is None  # no GPU whose peak is known
    monkeypatch.setattr("lm.train.trainer.peak_flops", lambda _device: 1e9)
    config = dataclasses.replace(CONFIG, precision="bf16")
    summary, entries = run(shards, tmp_path / "run", config)
    warm, last = entries[2], entries[-1]
    flops = (last["tokens_seen"] - warm["tokens_seen"]) * summary.flops_per_token
    assert summary.mfu == pytest.approx(flops / (last["seconds"] - warm["seconds"]) / 1e9)
    assert last["mfu"] == pytest.approx(last["tokens_per_second"] * summary.flops_per_token / 1e9)
    assert "mfu" not in run(shards, tmp_path / "fp32")[1][-1]


def test_settings_that_do_not_change_the_result_do_not_enter_a_runs_name():
    names = set(TrainConfig().fixed())
    assert not names & {"precision", "compile", "device", "threads", "log_every", "checkpoint_seconds"}
    assert {"train_bytes", "microbatch_size", "seed", "document_mask", "tokens_per_step"} <= names


def test_gradients_are_clipped_before_the_optimizers_see_them(shards, tmp_path, monkeypatch):
    seen = []
    step = torch.optim.AdamW.step

    def watched(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"]]
        seen.append(torch.stack([p.grad.norm() for p in parameters]).norm().item())
        return step(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    _, entries = run(shards, tmp_path / "clipped", dataclasses.replace(CONFIG, grad_clip=1e-3, train_bytes=768))
    assert all(entry["grad_norm"] > 1e-2 for entry in entries)  # logged as it was
    assert all(norm <= 1.001e-3 for norm in seen)
    seen.clear()
    run(shards, tmp_path / "free", dataclasses.replace(CONFIG, grad_clip=0, train_bytes=768))
    assert all(norm > 1e-2 for norm in seen)


def test_the_norm_of_activations_is_that_of_the_stream_before_the_head(shards, tmp_path):
    """At the first step the blocks add nothing, so it is that of the embedding; padding has no part in it."""
    _, whole = run(shards, tmp_path / "whole")
    parts = dataclasses.replace(CONFIG, microbatch_size=3, log_every=5)
    trainer = Trainer(MODEL, parts, shards, tmp_path / "parts")
    trainer.begin()
    table = trainer.model.model.embed_tokens.weight.detach().double().square().mean(1)
    (part,) = read_batch(trainer.rows, 0, trainer.device, trainer.world).parts
    assert whole[0]["activation_norm"] == pytest.approx(table[part.ids].mean().sqrt().item(), rel=1e-6)
    entries = [trainer.advance() for _ in range(5)]
    assert entries[:4] == [None] * 4
    assert entries[4]["activation_norm"] == pytest.approx(whole[4]["activation_norm"], rel=1e-3)
    assert len({entry["activation_norm"] for entry in whole}) == len(whole)
