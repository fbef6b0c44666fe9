"""Distributed evaluation (`lm.train.distributed`): each process scores a share of the documents."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.shards import Shards
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.model.weights import load_model
from lm.train.distributed import current, lockstep
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lm.evaluate.bits_per_byte import Evaluation, Grouping
    from lm.model.transformer import Transformer
    from tokenizer.progress import Progress

_TASK = "evaluate"


def load_and_evaluate(
    folder: Path,
    shards: Shards,
    token_byte_lengths: np.ndarray[Any, Any],
    config: EvalConfig,
    *,
    device: str = "cpu",
    groups: Mapping[str, Grouping] | None = None,
    progress: Progress | None = None,
) -> tuple[Transformer, Evaluation]:
    """Load a trained model and score held-out documents with it; the other processes take part.

    Args:
        folder: Folder of the model, which every process reads.
        shards: The held-out documents, which every process maps.
        token_byte_lengths: As for `lm.evaluate.evaluation.evaluate`.
        config: Windows and intervals.
        device: As in `TrainConfig`; each process uses its own CUDA device.
        groups: As for `lm.evaluate.evaluation.evaluate`.
        progress: As for `lm.evaluate.evaluation.evaluate`.

    Raises:
        UserError: As for `load_model` and `evaluate`.
    """
    world = current()
    lengths = np.asarray(token_byte_lengths, np.int64)
    job = {
        "task": _TASK,
        "folder": str(folder),
        "shards": str(shards.folder),
        "lengths": lengths.tolist(),
        "config": dataclasses.asdict(config),
        "device": device,
    }
    # Ctrl-C may reach one process while another is already waiting for its sums.
    with lockstep(agreed=(UserError,)):
        world.broadcast(job)
        with world.together():
            model = load_model(folder, device, world.local_rank if world.size > 1 else None)
        return model, _evaluate(model, shards, lengths, config, groups, progress)


def is_ours(job: dict[str, Any]) -> bool:
    """Whether `load_and_evaluate` broadcast this job."""
    return job.get("task") == _TASK


def join(job: dict[str, Any]) -> None:
    """Take part in the evaluation that the first process broadcast."""
    world = current()
    with lockstep(agreed=(UserError,)):
        with world.together():
            shards = Shards.open(Path(job["shards"]), verify="never")
            model = load_model(Path(job["folder"]), job["device"], world.local_rank)
        _evaluate(model, shards, np.array(job["lengths"], np.int64), EvalConfig(**job["config"]), None, None)


def _evaluate(
    model: Transformer,
    shards: Shards,
    lengths: np.ndarray[Any, Any],
    config: EvalConfig,
    groups: Mapping[str, Grouping] | None,
    progress: Progress | None,
) -> Evaluation:
    shared = current().size > 1
    return evaluate(model, shards, lengths, config, groups=groups, distributed=shared, progress=progress)
