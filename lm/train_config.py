"""Settings of a training run, apart from the training: a configuration is read without importing Torch."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizer.errors import UserError


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

    def __post_init__(self) -> None:
        for name in ("train_bytes", "bytes_per_step", "context_bytes", "log_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: use a positive whole number")
        for name in ("matrix_lr", "embedding_lr", "head_lr", "vector_lr", "weight_decay", "grad_clip"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name}={getattr(self, name)}: use 0 or more")
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
