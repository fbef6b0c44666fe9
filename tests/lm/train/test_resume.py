"""Interrupted training: signals, checkpoints, and resuming exactly."""

import dataclasses
import os
import signal

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from lm.model.weights import load_model, load_tensors
from lm.train.distributed import World
from lm.train.interrupt import DeferredInterrupt
from lm.train.loop import train
from lm.train.summary import load_learned
from tests.flipping import flips
from tests.lm.train.runs import CONFIG, MODEL, exact, run
from tests.properties import quick_first
from tokenizer.errors import UserError

PACKED = dataclasses.replace(
    CONFIG, train_bytes=7 * 256, document_mask=True, microbatch_size=3, context_tokens=20, tokens_per_step=95.0
)
STOPS = [*((CONFIG, step) for step in (1, 12)), *((PACKED, step) for step in (1, 4, 7))]


@pytest.mark.parametrize(("config", "stop_at"), quick_first(STOPS, 3))
def test_interrupted_anywhere_and_resumed_equals_unbroken(shards, tmp_path, config, stop_at):
    whole_summary, whole = run(shards, tmp_path / "whole", config)
    _, before = run(shards, tmp_path / "broken", config, stop_at=stop_at)
    assert len(before) == stop_at
    summary, after = run(shards, tmp_path / "broken", config)
    assert exact(before + after) == exact(whole)
    timings = dict.fromkeys(("seconds", "tokens_per_second"), 0.0)
    assert dataclasses.replace(summary, **timings) == dataclasses.replace(whole_summary, **timings)
    rows = config.rows(shards)
    read = [rows.stream.read(start + 1, stop + 1) for step in range(summary.steps) for start, stop in rows.spans(step)]
    learned = load_learned(tmp_path / "broken")
    assert np.flatnonzero(learned).tolist() == np.unique(np.concatenate(read)).tolist()
    weights = [load_model(tmp_path / name).state_dict() for name in ("whole", "broken")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    if config is PACKED:
        assert (summary.steps, summary.context_tokens, summary.tokens) == (7, 20, 7 * 95 - 5)
        assert whole[-1]["lr"] < 0.2 * config.matrix_lr  # the schedule ends where the run does


def test_killed_between_checkpoints_redoes_the_steps_exactly(shards, tmp_path):
    _, whole = run(shards, tmp_path / "whole")
    every_step = dataclasses.replace(CONFIG, checkpoint_seconds=0)

    def crash(entry):
        if entry["step"] == 7:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(MODEL, every_step, shards, tmp_path / "broken", log=crash)
    _, after = run(shards, tmp_path / "broken")
    assert exact(after) == exact(whole)[6:]


def test_finished_run_is_not_trained_again(shards, tmp_path):
    summary, _ = run(shards, tmp_path / "run")
    again, entries = run(shards, tmp_path / "run")
    assert again == summary
    assert entries == []


@pytest.mark.parametrize("stop_at", [None, 3])
def test_a_folder_with_another_run_is_rejected(make_shards, corpus, tmp_path, stop_at):
    shards = make_shards(corpus)
    run(shards, tmp_path / "run", stop_at=stop_at)
    with pytest.raises(UserError, match=r"other settings: matrix_lr \(0.02 there, 0.5 now\)"):
        run(shards, tmp_path / "run", dataclasses.replace(CONFIG, matrix_lr=0.5))
    with pytest.raises(UserError, match="other settings: shards"):
        run(make_shards(corpus[1:]), tmp_path / "run")
    run(shards, tmp_path / "run", dataclasses.replace(CONFIG, log_every=2, threads=2))


def test_no_flipped_bit_of_a_checkpoint_is_used(shards, tmp_path):
    run(shards, tmp_path / "run", stop_at=3)
    path = tmp_path / "run" / "checkpoint.safetensors"
    for _ in flips(path, 50):
        with pytest.raises(UserError, match="damaged"):
            load_tensors(path)
    assert load_tensors(path)[1]["step"] == 3
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="damaged"):
        run(shards, tmp_path / "run")


def test_a_full_disk_keeps_the_previous_checkpoint(make_shards, corpus, tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    run(make_shards(corpus), tmp_path / "run", stop_at=3)
    path = tmp_path / "run" / "checkpoint.safetensors"
    before = path.read_bytes()
    monkeypatch.setattr("lm.model.weights.save_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        run(make_shards(corpus), tmp_path / "run", stop_at=5)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_sigterm_acts_like_ctrl_c(shards, tmp_path):
    """Schedulers send it before they kill."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        train(MODEL, CONFIG, shards, tmp_path / "run", log=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert run(shards, tmp_path / "run")[1][0]["step"] == 2


def test_a_signal_during_the_vote_of_the_processes_counts(shards, tmp_path, monkeypatch):
    """The vote of that step is over; the next one stops."""
    votes = []

    def vote(world, *flags):
        votes.append(flags[0])
        if len(votes) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return [*flags]

    monkeypatch.setattr(World, "any", vote)
    with pytest.raises(KeyboardInterrupt):
        train(MODEL, CONFIG, shards, tmp_path / "run")
    assert votes == [False, True]


@pytest.mark.parametrize("patient", [False, True])
def test_a_second_signal(patient):
    """It interrupts at once, but not where torchrun repeats what the terminal has sent already."""
    with DeferredInterrupt(patient=patient) as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.pending
        if patient:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
