"""Evaluation by all processes of a run (`lm.train.distributed`): each scores its share of the documents."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.data.shards import Shards
from lm.evaluate.bits_per_byte import evaluate
from lm.evaluate.config import EvalConfig
from lm.model.weights import load_model
from lm.train.distributed import current, together
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lm.evaluate.bits_per_byte import Evaluation, Grouping
    from lm.model.transformer import Transformer
    from tokenizer.progress import Progress

_TASK = "evaluate"
_logger = logging.getLogger(__name__)


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
    """Load a trained model and score held-out documents with it; the other processes join in.

    Args:
        folder: Of the model, as for `lm.model.weights.load_model`; every process reads it.
        shards: The held-out documents; every process maps them.
        token_byte_lengths: As for `lm.evaluate.bits_per_byte.evaluate`; likewise `config`.
        config: Windows and intervals.
        device: As in `TrainConfig`; each process takes a CUDA device of its own.
        groups: As for `lm.evaluate.bits_per_byte.evaluate`.
        progress: Likewise.

    Raises:
        UserError: As `load_model` and `evaluate` do.
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
    world.announce(job)
    # Ctrl-C reaches one process while another is already waiting for its sums.
    with together(agreed=(UserError,)):
        try:
            model = load_model(folder, device, world.local_rank if world.size > 1 else None)
        except UserError:
            world.agree(True)
            raise
        if world.agree(False):
            raise UserError("another process cannot take part in the evaluation; it has said why")
        return model, _evaluate(model, shards, lengths, config, groups, progress)


def is_ours(job: dict[str, Any]) -> bool:
    """Whether `load_and_evaluate` announced this."""
    return job.get("task") == _TASK


def join(job: dict[str, Any]) -> None:
    """Take part in the evaluation that the first process announced."""
    world = current()
    with together(agreed=(UserError,)):
        try:
            shards = Shards.open(Path(job["shards"]), verify="never")
            model = load_model(Path(job["folder"]), job["device"], world.local_rank)
        except UserError as error:  # no such device or file on this machine
            _logger.error("process %d: %s", world.rank, error)  # noqa: TRY400  (a user's mistake has no traceback)
            world.agree(True)
            raise
        if not world.agree(False):
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
    return evaluate(model, shards, lengths, config, groups=groups, together=shared, progress=progress)
