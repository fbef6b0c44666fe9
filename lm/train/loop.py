"""Training loop: the same text in the same order for every tokenizer, resumable at any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lm.data.shards import Shards
from lm.model.config import MODEL
from lm.model.device import memory_advice
from lm.model.weights import load_tensors
from lm.train.distributed import current, lockstep
from lm.train.interrupt import DeferredInterrupt
from lm.train.summary import SUMMARY, TrainingSummary
from lm.train.trainer import Trainer
from tokenizer.progress import thread_count

if TYPE_CHECKING:
    from pathlib import Path

    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig
    from tokenizer.progress import Progress

Log = Callable[[dict[str, Any]], None]


def train(
    model: ModelConfig,
    config: TrainConfig,
    shards: Shards,
    folder: Path,
    *,
    trunk: Path | None = None,
    keep_checkpoint: bool = False,
    log: Log | None = None,
    progress: Progress | None = None,
) -> TrainingSummary:
    """Train a model, or resume an earlier call in the same folder.

    On Ctrl-C or SIGTERM, the current step is finished, a checkpoint is written and `KeyboardInterrupt` is raised. After
    a kill, the steps since the last checkpoint are repeated and logged again, with the same numbers. Resume with the
    same number of processes. On one machine's CPU, a resumed run then has the same losses as an uninterrupted one, to
    the last bit, with the same number of threads.

    Under `lm.train.distributed.launch` the other processes take part.

    Args:
        model: Shape of the model.
        config: Budget and learning rates.
        shards: Training text.
        folder: Target of `model.safetensors` (for `load_model`) and `summary.json`; holds a checkpoint until then.
        trunk: Folder of a run to start from instead of step 0: the trunk of this run (`TrainConfig.trunk`) or a shorter
            one, trained with `keep_checkpoint`. On one machine's CPU, this does not change the result.
        keep_checkpoint: Keep the checkpoint of the last step, so that longer runs can start from it.
        log: Called every `log_every` steps with step (from 1), loss (nats per token, EOS included),
            train_bits_per_byte (text tokens of this step), bytes_seen, tokens_seen, flops, tokens_per_second,
            lr (the schedule's factor times `matrix_lr`), grad_norm (before clipping), activation_norm (root mean square
            of the residual stream before the final norm, over all targets of the step), seconds, and on a GPU whose
            peak is known mfu (model FLOPs utilization).
        progress: Called after every step with ("steps", steps done, steps). A `KeyboardInterrupt` that it raises is
            handled like Ctrl-C.

    Returns:
        Parameters, FLOPs, text, tokens, steps and time.

    Raises:
        UserError: If the settings are invalid, the folder has another run, or the loss is not finite.
        KeyboardInterrupt: After Ctrl-C or SIGTERM, once the checkpoint is written.
    """
    trainer = Trainer(model, config, shards, folder, trunk, keep_checkpoint)
    if (folder / SUMMARY).exists():
        summary = TrainingSummary.load(folder)
        trainer.check_identity(summary.run, folder)
        load_tensors(folder / MODEL)  # raises an error if the file is damaged
        return summary
    world = current()
    with lockstep():
        world.broadcast(partial(_join, model, config, shards.folder, folder, trunk, keep_checkpoint))
        with world.together():
            pass  # the other processes set up
    return _train(trainer, log, progress)


def _join(model: ModelConfig, config: TrainConfig, shards: Path, *others: Any) -> None:
    """Take part in the training of the first process; the other arguments are as for `Trainer`."""
    with current().together():
        opened = Shards.open(shards, verify="never")  # the first process has verified them
        trainer = Trainer(model, config, opened, *others)
    _train(trainer, None, None)


def _train(trainer: Trainer, log: Log | None, progress: Progress | None) -> TrainingSummary:
    config, world = trainer.config, trainer.world
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads if config.threads is None else thread_count(config.threads))
        # Another process may have enough memory, so this is no error that all agree on.
        with memory_advice(trainer.memory_advice), lockstep():
            trainer.begin()
            with DeferredInterrupt(patient=world.size > 1) as interrupt:
                saved = time.monotonic()
                while trainer.step < config.steps:
                    entry = trainer.advance()
                    if log is not None and entry is not None:
                        log(entry)
                    if progress is not None:
                        with interrupt.deferring():
                            progress("steps", trainer.step, config.steps)
                    due = world.rank == 0 and time.monotonic() - saved > config.checkpoint_seconds
                    # A signal during the vote stays pending until the next step.
                    stop, due = world.any(interrupt.pending, due)
                    if stop or due:
                        trainer.save_checkpoint()
                        saved = time.monotonic()
                    if stop:
                        interrupt.stop()
            return trainer.finish()
    finally:
        torch.set_num_threads(threads)
