"""Training: the same text in the same order, whatever the tokenizer, however often the run is stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lm.data.shards import Shards
from lm.model.config import ModelConfig
from lm.model.weights import MODEL, load_model, load_tensors
from lm.train.config import TrainConfig
from lm.train.distributed import current, together
from lm.train.interrupt import DeferredInterrupt
from lm.train.summary import SUMMARY, TrainingSummary
from lm.train.trainer import Trainer
from tokenizer.errors import UserError
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from tokenizer.progress import Progress

__all__ = ["TrainConfig", "join", "load_model", "train"]

Log = Callable[[dict[str, Any]], None]
_logger = logging.getLogger(__name__)


def train(
    model: ModelConfig,
    config: TrainConfig,
    shards: Shards,
    folder: Path,
    *,
    log: Log | None = None,
    progress: Progress | None = None,
) -> TrainingSummary:
    """Train a model, or continue where an earlier call in the same folder was stopped.

    On Ctrl-C or SIGTERM the step in progress is finished, a checkpoint written and `KeyboardInterrupt` raised. After
    a kill, the steps since the last checkpoint are done again (and logged again, with the same numbers).
    On one machine's CPU a resumed run gives the losses of an unbroken one to the last bit, if it has as many threads
    and processes.

    Under `lm.train.distributed.launch` the other processes join in (`join`).

    Args:
        model: Shape of the model.
        config: Budget and learning rates.
        shards: Training text.
        folder: Gets `model.safetensors` (for `load_model`) and `summary.json`; until then, a checkpoint.
        log: Called every `log_every` steps with step (from 1), loss (nats per token, EOS included),
            train_bits_per_byte (text tokens of this step), bytes_seen, tokens_seen, flops, tokens_per_second,
            lr (the schedule's factor times `matrix_lr`), grad_norm (before clipping) and seconds; every
            `diagnostics_every` steps, what `lm.train.diagnostics` lists.
        progress: Called after every step with ("train", steps done, steps).

    Returns:
        Parameters, FLOPs, text, tokens, steps and time.

    Raises:
        UserError: If the settings are wrong, the folder holds another run, or the loss stops being finite.
        KeyboardInterrupt: After Ctrl-C or SIGTERM, once the state is saved.
    """
    trainer = Trainer(model, config, shards, folder)
    if (folder / SUMMARY).exists():
        summary = TrainingSummary.load(folder)
        trainer.same_or_refuse(summary.run)
        load_tensors(folder / MODEL)  # or it was damaged since
        return summary
    job = {"model": asdict(model), "train": asdict(config), "shards": str(shards.folder), "folder": str(folder)}
    world = current()
    world.announce(job)
    if world.agree(False):
        raise UserError("another process cannot take part in the training; it has said why")
    return _train(trainer, log, progress)


def join(job: dict[str, Any]) -> None:
    """Take part in the training that the first process announced (`lm.train.distributed.launch`)."""
    world = current()
    try:
        shards = Shards.open(Path(job["shards"]), verify="never")  # the first process has verified them
        trainer = Trainer(ModelConfig(**job["model"]), TrainConfig(**job["train"]), shards, Path(job["folder"]))
    except UserError as error:  # no such device or file on this machine
        _logger.error("process %d: %s", world.rank, error)  # noqa: TRY400  (a user's mistake has no traceback)
        world.agree(True)
        raise
    if not world.agree(False):
        _train(trainer, None, None)


def _train(trainer: Trainer, log: Log | None, progress: Progress | None) -> TrainingSummary:
    config, world = trainer.config, trainer.world
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads if config.threads is None else thread_count(config.threads))
        with together():
            trainer.begin()
            with DeferredInterrupt(patient=world.size > 1) as interrupt:
                saved = time.monotonic()
                while trainer.step < config.steps:
                    entry = trainer.advance()
                    if log is not None and entry is not None:
                        log(entry)
                    if progress is not None:
                        progress("train", trainer.step, config.steps)
                    interrupt.pending = world.agree(interrupt.pending)
                    if interrupt.pending or time.monotonic() - saved > config.checkpoint_seconds:
                        trainer.save_checkpoint()
                        saved = time.monotonic()
                    interrupt.raise_if_pending()
            return trainer.finish()
    finally:
        torch.set_num_threads(threads)
