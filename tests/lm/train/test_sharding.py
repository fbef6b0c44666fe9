"""A model sharded over one process; several processes are in test_distributed.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from lm.model.loss import Objective
from lm.model.transformer import ModelConfig, Transformer
from lm.train import sharding
from lm.train.checkpoint import load_training_tensors, snapshot, training_tensors
from lm.train.config import TrainConfig
from lm.train.distributed import World
from lm.train.optim import build_optimizers
from tokenizer.errors import UserError

RATES = {"matrix_lr": 0.02, "embedding_lr": 0.1, "head_lr": 0.01, "vector_lr": 0.01, "weight_decay": 0.1}


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield World()
    dist.destroy_process_group()


def trained(objective, steps, optimizers=None):
    """Losses, and the optimizers, after steps on one batch."""
    optimizers = optimizers or build_optimizers(objective.model, **RATES, world=World())
    ids, losses = torch.arange(42).view(2, 21) % 30, []
    for _ in range(steps):
        total, _ = objective(ids[:, :-1], ids[:, 1:])
        (total / 40).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(total.item())
    return losses, optimizers


def objective(*, tied=False):
    model = Transformer(ModelConfig(n_layers=2, hidden_size=32, head_dim=16, tie_embeddings=tied), 30, 20)
    model.initialize(0, range(30))
    return Objective(model, eos_id=0, document_mask=True)


@pytest.mark.parametrize(("compiled", "tied"), [(False, False), (False, True), (True, False)])
def test_a_sharded_model_trains_and_is_saved_like_a_whole_one(alone, compiled, tied):
    plain, sharded = objective(tied=tied), objective(tied=tied)
    expected, optimizers = trained(plain, 4)
    if compiled:  # each layer as one graph, or this is an error
        sharded.fuse("aot_eager", layers=True)
    sharding.shard(sharded, torch.device("cpu"), alone)
    found, own = trained(sharded, 2)
    state = snapshot(training_tensors(sharded.model, own), keep=True)
    assert {name: value.shape for name, value in state.items()} == {
        name: value.shape for name, value in training_tensors(plain.model, optimizers).items()
    }

    resumed = objective(tied=tied)
    sharding.shard(resumed, torch.device("cpu"), alone)
    optimizers = build_optimizers(resumed.model, **RATES, world=alone)
    load_training_tensors(resumed.model, optimizers, state)
    assert found + trained(resumed, 2, optimizers)[0] == pytest.approx(expected, rel=1e-5)


def test_auto_shards_what_takes_more_than_half_of_a_gpus_memory(monkeypatch):
    model = objective().model
    needed = 16 * model.n_parameters()["total"]
    memory = SimpleNamespace(total_memory=2 * needed)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    assert not sharding.does_not_fit(model, torch.device("cuda"))
    memory.total_memory -= 2
    assert sharding.does_not_fit(model, torch.device("cuda"))
    assert not sharding.does_not_fit(model, torch.device("cpu"))


def test_an_unknown_value_is_rejected():
    with pytest.raises(UserError, match="shard_model=zero is not one of auto, true, false"):
        TrainConfig(shard_model="zero")
