"""Evaluation of a saved model by all processes (`lm.train.distributed`), which share the documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lm.data.shards import Shards
from lm.evaluate.evaluation import evaluate
from lm.model.weights import load_model
from lm.train.distributed import current, lockstep
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Evaluation, Grouping
    from lm.evaluate.config import EvalConfig
    from lm.model.transformer import Transformer
    from tokenizer.progress import Progress


def load_and_evaluate(
    folder: Path,
    shards: Shards,
    token_byte_lengths: NDArray[np.integer],
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
    # Ctrl-C may reach one process while another is already waiting for its sums.
    with lockstep(agreed=(UserError,)):
        world.broadcast(partial(_join, folder, shards.folder, np.asarray(token_byte_lengths), config, device))
        with world.together():
            model = load_model(folder, device, world.local_rank if world.size > 1 else None)
        return model, evaluate(model, shards, token_byte_lengths, config, groups=groups, progress=progress)


def _join(folder: Path, shards: Path, lengths: NDArray[np.integer], config: EvalConfig, device: str) -> None:
    """Take part in the evaluation of the first process."""
    world = current()
    with lockstep(agreed=(UserError,)):
        with world.together():
            opened = Shards.open(shards, verify="never")
            model = load_model(folder, device, world.local_rank)
        evaluate(model, opened, lengths, config)
