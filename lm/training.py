"""Training on equal bytes: the same text in the same number of steps, whatever the tokenizer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lm.checkpoint import load_model_tensors, load_tensors
from lm.device import resolve_device
from lm.interrupt import DeferredInterrupt
from lm.model import ModelConfig, Transformer
from lm.run import MODEL, SUMMARY, Run
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from lm.shards import Shards
    from tokenizer.progress import Progress

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrainConfig:
    """Budget, learning rates and upkeep of one run; amounts of text are in UTF-8 bytes.

    Attributes:
        train_bytes: Text of the whole run, read in `train_bytes // bytes_per_step` steps.
        bytes_per_step: Text of one step; a multiple of `context_bytes`.
        context_bytes: Text of one row. Its tokens: `context_bytes` over the measured bytes per token.
        matrix_lr: Peak learning rate of Muon, for the layers' matrices.
        embedding_lr: Of AdamW, for the input embedding.
        head_lr: Of AdamW, for the output head (and for a tied table).
        vector_lr: Of AdamW, for the norms.
        weight_decay: Decoupled, on the matrices.
        grad_clip: Largest norm of the gradient; 0 switches clipping off.
        warmup_fraction: Share of `train_bytes` over which the learning rates rise.
        decay_fraction: Share of `train_bytes`, at the end, over which they fall to zero.
        seed: Of the weights and of the order of documents.
        shuffle: Shuffle the documents, anew in every epoch; False reads the shards as they lie.
        microbatch_rows: Rows per forward pass, to save memory; None takes the whole step at once.
        device: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N". CUDA computes in bf16.
        threads: CPU threads of Torch; None leaves them.
        checkpoint_seconds: Seconds between checkpoints.
        log_every: Steps between log entries.
        diagnostics_every: Steps between log entries that also have the norms and rates of `lm.diagnostics`; 0 for none.
        peak_flops: FLOPs per second that MFU refers to; None for the measured rate of a matrix product.
    """

    train_bytes: int = 12_000_000
    bytes_per_step: int = 8192
    context_bytes: int = 1024
    matrix_lr: float = 0.02
    embedding_lr: float = 0.1
    head_lr: float = 0.01
    vector_lr: float = 0.01
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    warmup_fraction: float = 0.02
    decay_fraction: float = 0.5
    seed: int = 0
    shuffle: bool = True
    microbatch_rows: int | None = None
    device: str = "auto"
    threads: int | None = None
    checkpoint_seconds: float = 60.0
    log_every: int = 1
    diagnostics_every: int = 100
    peak_flops: float | None = None

    def __post_init__(self) -> None:
        for name in ("train_bytes", "bytes_per_step", "context_bytes", "log_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: use a positive whole number")
        for name in ("matrix_lr", "embedding_lr", "head_lr", "vector_lr", "weight_decay", "grad_clip"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name}={getattr(self, name)}: use 0 or more")
        if self.diagnostics_every < 0:
            raise UserError(f"diagnostics_every={self.diagnostics_every}: use a number of steps, or 0 for none")
        if self.peak_flops is not None and not self.peak_flops > 0:
            raise UserError(f"peak_flops={self.peak_flops}: use a positive number, or null to measure it")
        if self.microbatch_rows is not None and self.microbatch_rows < 1:
            raise UserError(f"microbatch_rows={self.microbatch_rows}: use 1 or more, or null for the whole step")
        if self.bytes_per_step % self.context_bytes:
            rows = max(1, round(self.bytes_per_step / self.context_bytes))
            raise UserError(
                f"bytes_per_step={self.bytes_per_step} is not a multiple of "
                f"context_bytes={self.context_bytes}; use bytes_per_step={rows * self.context_bytes}"
            )
        if self.train_bytes < self.bytes_per_step:
            raise UserError(f"train_bytes={self.train_bytes} is less than one step; use at least {self.bytes_per_step}")
        if not 0 <= self.warmup_fraction <= 1 - self.decay_fraction <= 1:
            raise UserError(
                f"warmup_fraction={self.warmup_fraction} and decay_fraction={self.decay_fraction} overlap; "
                "they must be at least 0 and add up to at most 1"
            )

    @property
    def steps(self) -> int:
        """Steps of the run; the tokenizer has no say in it."""
        return self.train_bytes // self.bytes_per_step

    @property
    def rows(self) -> int:
        """Rows (sequences) of one step."""
        return self.bytes_per_step // self.context_bytes


def train(
    model: ModelConfig,
    config: TrainConfig,
    shards: Shards,
    folder: Path,
    *,
    log: Log | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a model, or continue where an earlier call in the same folder was stopped.

    On Ctrl-C the step in progress is finished, a checkpoint written and `KeyboardInterrupt` raised. After
    a kill, the steps since the last checkpoint are done again (and logged again, with the same numbers).
    On one machine's CPU a resumed run gives the losses of an unbroken one to the last bit.

    Args:
        model: Shape of the model.
        config: Budget and learning rates.
        shards: Training text.
        folder: Gets `model.safetensors` (for `load_model`) and `summary.json`; until then, a checkpoint.
        log: Called every `log_every` steps with step (from 1), loss (nats per token, EOS included),
            train_bits_per_byte (text tokens of this step), bytes_seen, tokens_seen, flops, tokens_per_second,
            lr (the schedule's factor times `matrix_lr`), grad_norm (before clipping) and seconds; every
            `diagnostics_every` steps, what `lm.diagnostics` lists.
        progress: Called after every step with ("train", steps done, steps).

    Returns:
        The summary: parameters, FLOPs, text, tokens, steps and time, with the formulas used.

    Raises:
        UserError: If the settings are wrong, the folder holds another run, or the loss stops being finite.
        KeyboardInterrupt: After Ctrl-C, once the state is saved.
    """
    run = Run(model, config, shards, folder)
    if (folder / SUMMARY).exists():
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        run.same_or_refuse(summary["run"])
        return summary
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(config.threads or threads)
        run.resume()
        with DeferredInterrupt() as interrupt:
            saved = time.monotonic()
            while run.step < config.steps:
                entry = run.advance()
                if log is not None and entry is not None:
                    log(entry)
                if progress is not None:
                    progress("train", run.step, config.steps)
                if interrupt.pending or time.monotonic() - saved > config.checkpoint_seconds:
                    run.save_checkpoint()
                    saved = time.monotonic()
                interrupt.raise_if_pending()
        return run.finish()
    finally:
        torch.set_num_threads(threads)


def load_model(folder: Path, device: str = "cpu") -> Transformer:
    """Load a trained model, ready to evaluate.

    Args:
        folder: As filled by `train`.
        device: As in `TrainConfig`.

    Raises:
        UserError: If the folder holds no whole model.
    """
    place = resolve_device(device)
    tensors, meta = load_tensors(folder / MODEL, str(place))
    try:
        config = ModelConfig(**meta["model"])
        model = Transformer(config, meta["vocab_size"], meta["context_tokens"], meta["tokenizer_sha256"]).to(place)
        load_model_tensors(model, tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{folder / MODEL} does not hold a model of ours ({error}); train it again") from error
    return model.eval()
