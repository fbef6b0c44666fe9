"""Short training runs, also interrupted ones."""

import os
import signal

import pytest

from lm.model.transformer import ModelConfig
from lm.train.config import TrainConfig
from lm.train.loop import train

MODEL = ModelConfig(n_layers=1, hidden_size=32, head_dim=16)
CONFIG = TrainConfig(
    train_bytes=12 * 256, bytes_per_step=256, context_bytes=64, device="cpu", threads=1, checkpoint_seconds=1e9
)


def run(shards, folder, config=CONFIG, model=MODEL, stop_at=None):
    """Train; with `stop_at`, press Ctrl-C during that step's log call."""
    entries = []

    def log(entry):
        entries.append(entry)
        if entry["step"] == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    if stop_at is None:
        return train(model, config, shards, folder, log=log), entries
    with pytest.raises(KeyboardInterrupt):
        train(model, config, shards, folder, log=log)
    return None, entries


EXACT = (
    "step",
    "loss",
    "train_bits_per_byte",
    "bytes_seen",
    "tokens_seen",
    "flops",
    "lr",
    "grad_norm",
    "activation_norm",
)
"""Entries that do not measure time."""


def exact(entries):
    return [{key: entry[key] for key in EXACT} for entry in entries]
