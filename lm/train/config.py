"""Settings of a training run: amount of text, steps, learning rates, device and precision."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm.data.rows import Rows
from lm.train.schedule import DECAYS, Schedule
from tokenizer.errors import UserError
from tokenizer.fields import check_fields, declare
from tokenizer.progress import MOST_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm.data.shards import Shards

# These do not affect the result, so a resumed run may change them.
FREE_TO_CHANGE = ("device", "threads", "checkpoint_seconds", "log_every")
# Recorded by their effect on the device instead (`lm.model.device.arithmetic`).
_RESOLVED = ("precision", "compile")
# Settings that may differ between a run and the trunk that it starts from.
LENGTH = ("train_bytes", "decay_fraction", "decay")

RATES = ("matrix_lr", "embedding_lr", "head_lr", "vector_lr")
"""The peak learning rates."""
PRECISIONS = ("auto", "fp32", "bf16")


@dataclass(frozen=True)
class TrainConfig:
    """Budget, learning rates and logging of one run; amounts of text are in UTF-8 bytes.

    A step has `bytes_per_step // context_bytes` rows, unless `tokens_per_step` is set.

    Attributes:
        train_bytes: Text of the whole run, read in `train_bytes // bytes_per_step` steps.
        bytes_per_step: Text of one step; a multiple of `context_bytes`.
        context_bytes: Text of one row (`lm.data.rows`), the same text with every tokenizer.
        context_tokens: Tokens of one row, for contexts that are equal in tokens instead of bytes. Bytes are then
            nominal: they only give the batch size and the number of steps.
        tokens_per_step: Tokens of one step, instead of `bytes_per_step // context_bytes` rows, to the nearest row; set
            by budgets other than bytes. Bytes then only give the number of steps.
        held_back_bytes: Training text that the run does not read, so that it can be scored on it.
        document_mask: Tokens attend within their own document only. Position numbers do not restart, since rotary
            attention depends only on their differences.
        matrix_lr: Peak learning rate of Muon, for the layers' matrices.
        embedding_lr: Peak learning rate of AdamW for the input embedding.
        head_lr: Peak learning rate of AdamW for the output head, and for a tied table.
        vector_lr: Peak learning rate of AdamW for the norms.
        weight_decay: Decoupled weight decay of the matrices.
        grad_clip: Maximum norm of the gradient; 0 disables clipping.
        warmup_fraction: Share of the steps over which the learning rates rise.
        warmup_steps: Steps over which they rise, instead of `warmup_fraction`. Runs of several lengths share a trunk
            only if it is set.
        decay_fraction: Share of the steps, at the end, over which they fall to zero.
        decay: Shape of the decay: `linear`, `sqrt` or `cosine` (`lm.train.schedule`); `cosine` decays from the end of
            the warm-up, whatever `decay_fraction` is.
        seed: Seed of the weights and of the order of documents.
        shuffle: Draw a new document order for every epoch; False reads the shards in order.
        microbatch_size: Rows per forward pass of each process, to save memory; None for the whole step.
        device: "auto" (CUDA if available), "cpu", "cuda" or "cuda:N".
        precision: Precision of matrix products: "fp32", "bf16" or "auto" (bf16 on CUDA, fp32 elsewhere).
        compile: Whether `torch.compile` fuses the layers and the loss: True, False or "auto" (on CUDA). It changes
            rounding. What cannot be compiled is an error: a run whose summary says `compile` was compiled as a whole.
        threads: CPU threads of Torch; None keeps the current number.
        checkpoint_seconds: Seconds between checkpoints.
        log_every: Steps between log entries.
    """

    train_bytes: int = declare(12_000_000, least=1)
    bytes_per_step: int = declare(8192, least=1)
    context_bytes: int = declare(1024, least=1)
    context_tokens: int | None = declare(None, least=1, remedy=", or null for contexts equal in bytes")
    tokens_per_step: float | None = declare(None, least=1, remedy=", or null for bytes_per_step / context_bytes rows")
    held_back_bytes: int = 0
    document_mask: bool = False
    matrix_lr: float = declare(0.02, least=0)
    embedding_lr: float = declare(0.1, least=0)
    head_lr: float = declare(0.01, least=0)
    vector_lr: float = declare(0.01, least=0)
    weight_decay: float = declare(0.0, least=0)
    grad_clip: float = declare(1.0, least=0)
    warmup_fraction: float = 0.02
    warmup_steps: int | None = declare(None, least=0, remedy=", or null for warmup_fraction")
    decay_fraction: float = 0.5
    decay: str = declare("linear", choices=DECAYS)
    seed: int = declare(0, least=0, help="seed of the weights and of the order of documents")
    shuffle: bool = True
    microbatch_size: int | None = declare(None, least=1, remedy=", or null for the whole step")
    device: str = declare("auto", help="auto (CUDA if available), cpu, cuda or cuda:N")
    precision: str = declare("auto", choices=PRECISIONS)
    compile: bool | str = "auto"
    threads: int | None = declare(None, least=1, most=MOST_THREADS)
    checkpoint_seconds: float = declare(60.0, least=0)
    log_every: int = declare(1, least=1)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.compile not in (True, False, "auto"):
            raise UserError(f"compile={self.compile} is not one of auto, true, false")
        if self.bytes_per_step % self.context_bytes:
            rows = max(1, round(self.bytes_per_step / self.context_bytes))
            raise UserError(
                f"bytes_per_step={self.bytes_per_step} is not a multiple of "
                f"context_bytes={self.context_bytes}; use bytes_per_step={rows * self.context_bytes}"
            )
        if self.train_bytes < self.bytes_per_step:
            raise UserError(
                f"train_bytes={self.train_bytes} is less than one step of {self.bytes_per_step} bytes; raise it "
                "(budget.train_bytes), or lower lm.train.bytes_per_step"
            )
        if not 0 <= self.warmup_fraction <= 1 - self.decay_fraction <= 1:
            raise UserError(
                f"warmup_fraction={self.warmup_fraction} and decay_fraction={self.decay_fraction} overlap; "
                "they must be at least 0 and add up to at most 1"
            )

    @property
    def steps(self) -> int:
        """Steps of the run."""
        return self.train_bytes // self.bytes_per_step

    @property
    def schedule(self) -> Schedule:
        """Learning-rate schedule of the run; raises what `check_schedule` raises."""
        self.check_schedule()
        warmup = self.warmup_fraction * self.steps if self.warmup_steps is None else self.warmup_steps
        return Schedule(self.steps, warmup, self.decay_fraction * self.steps, self.decay)

    def check_schedule(self) -> None:
        """Raise a UserError if the run is too short for its warm-up and decay."""
        if self.decay != "cosine" and (self.warmup_steps or 0) > self.steps * (1 - self.decay_fraction):
            raise UserError(
                f"warmup_steps={self.warmup_steps} and decay_fraction={self.decay_fraction} overlap in a run of "
                f"{self.steps} steps; use a longer run (train_bytes) or fewer warmup_steps"
            )

    @property
    def trunk(self) -> TrainConfig | None:
        """The run's part before the decay, as a run at constant rates of its own; None if it depends on the length.

        Runs that differ only in their length (`LENGTH`) have trunks that differ only in their length, and a longer
        trunk begins with a shorter one.
        """
        steps = self.schedule.constant_steps
        if self.warmup_steps is None or not self.warmup_steps < steps < self.steps:
            return None
        return dataclasses.replace(self, train_bytes=steps * self.bytes_per_step, decay_fraction=0.0, decay="linear")

    def scaled(self, factor: float) -> TrainConfig:
        """The same run with all peak learning rates multiplied by a factor."""
        return dataclasses.replace(self, **{name: factor * getattr(self, name) for name in RATES})

    @property
    def batch_size(self) -> int:
        """Sequences of one step, unless `tokens_per_step` is set."""
        return self.bytes_per_step // self.context_bytes

    def rows(self, shards: Shards) -> Rows:
        """Rows of the batches of a run over these shards."""
        return Rows(
            shards,
            rows_per_step=self.batch_size,
            context_bytes=self.context_bytes,
            context_tokens=self.context_tokens,
            tokens_per_step=self.tokens_per_step,
            held_back_bytes=self.held_back_bytes,
            seed=self.seed,
            shuffle=self.shuffle,
        )

    def fixed(self) -> dict[str, Any]:
        """The settings that determine the result and identify the run."""
        settings = dataclasses.asdict(self).items()
        return {name: value for name, value in settings if name not in FREE_TO_CHANGE + _RESOLVED}


def trained_steps(runs: Sequence[TrainConfig]) -> int:
    """Optimizer steps of runs that share a trunk: each adds its own steps, and the longest trunk counts once."""
    trunks = [0 if run.trunk is None else run.trunk.steps for run in runs]
    return max(trunks) + sum(run.steps - trunk for run, trunk in zip(runs, trunks, strict=True))
