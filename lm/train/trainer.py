"""State, steps and files of one training run."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lm.bits import bits_per_byte
from lm.model import initialization
from lm.model.device import arithmetic, peak_flops, resolve_device
from lm.model.loss import Objective
from lm.model.transformer import FLOPS_FORMULA, Transformer
from lm.model.weights import load_tensors, save_model, save_tensors
from lm.train.batches import Batch, MicroBatch, read_batch
from lm.train.checkpoint import load_training_tensors, training_tensors
from lm.train.config import LENGTH
from lm.train.distributed import current
from lm.train.optim import build_optimizers
from lm.train.summary import TrainingSummary, save_learned
from tokenizer.errors import UserError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lm.data.shards import Shards
    from lm.model.config import ModelConfig
    from lm.train.config import TrainConfig

CHECKPOINT = "checkpoint.safetensors"
_WARM_UP_STEPS = 3
"""Steps of a process that utilization does not count: compilation and memory allocation."""


class DivergedError(UserError):
    """The loss or a gradient is not finite."""


class Trainer:
    """State of one run: model, optimizers, position in the text, totals.

    Each process of a distributed run reads its share of the rows of every batch, so the batch does not depend on
    their number. They hold the same state. The first process writes the files.
    """

    def __init__(
        self,
        model: ModelConfig,
        config: TrainConfig,
        shards: Shards,
        folder: Path,
        trunk: Path | None = None,
        keep_checkpoint: bool = False,
    ) -> None:
        self.config, self.shards, self.folder, self.trunk = config, shards, folder, trunk
        self.keep_checkpoint = keep_checkpoint
        self.world = current()
        if config.batch_size % self.world.size:
            raise UserError(
                f"a batch of {config.batch_size} rows (lm.train.bytes_per_step / context_bytes) cannot be shared by "
                f"{self.world.size} processes; use a multiple of {self.world.size}, or another --nproc-per-node"
            )
        self.device = resolve_device(config.device, self.world.local_rank if self.world.size > 1 else None)
        self.rows = config.rows(shards)
        self.schedule = config.schedule
        self.model = Transformer(model, shards.vocab_size, self.rows.most_tokens, shards.tokenizer_sha256)
        self.model.initialize(config.seed, shards.token_hashes)
        self.optimizers: list[torch.optim.Optimizer] = []
        self.loss = Objective(self.model)
        self.objective: nn.Module = self.loss
        self.flops_per_token = self.model.flops_per_token(self.rows.mean_tokens)
        self.step, self.tokens, self.longest_row, self.seconds = 0, 0, 0, 0.0
        # bool[vocab_size], ids that were a target.
        self.learned = torch.zeros(shards.vocab_size, dtype=torch.bool, device=self.device)
        self._first_step = 0  # of this process
        self.bytes_seen = 0  # by this process
        self._logged = 0, 0.0
        self._warm: tuple[int, float] | None = None  # tokens and seconds at the end of the warm-up
        self.identity: dict[str, Any] = {
            "model": dataclasses.asdict(model),
            "train": config.fixed(),
            "initialization": initialization.VERSION,
            **arithmetic(config.precision, config.compile, self.device),
            "shards": [shards.tokenizer_sha256, shards.n_documents, shards.n_bytes, shards.n_tokens],
        }
        self._peak_flops = peak_flops(self.device) if self.identity["precision"] == "bf16" else None

    def check_identity(self, identity: dict[str, Any], folder: Path, ignored: Sequence[str] = ()) -> None:
        """Raise an error if the run that is already in a folder has other settings."""
        mine, theirs = _flat(self.identity), _flat(identity)
        keys = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key) and key not in ignored]
        if keys:
            differ = ", ".join(f"{key} ({theirs.get(key)} there, {mine.get(key)} now)" for key in keys)
            raise UserError(f"{folder} has a run with other settings: {differ}; use another folder or delete it")

    def begin(self) -> None:
        """Compile and distribute the model; load the checkpoint or the trunk if there is one."""
        world, config = self.world, self.config
        if self.identity.get("compile"):
            self.loss.fuse()
        self.model.to(self.device)
        self.optimizers = build_optimizers(self.model, config, world)
        self._resume()
        if not world.all_equal(self.step):
            raise UserError(f"the processes see different checkpoints in {self.folder}; it must be shared")
        if world.size > 1:
            cuda = self.device.type == "cuda"
            # Without find_unused_parameters, DDP rearranges its gradient buckets after the first step of each start.
            # With more than two processes this changes the rounding of sums in a resumed run. The option costs little
            # on a CPU; on CUDA, runs are not bitwise reproducible anyway.
            self.objective = DistributedDataParallel(
                self.objective,
                device_ids=[self.device] if cuda else None,
                broadcast_buffers=False,
                find_unused_parameters=not cuda,
            )

    def _resume(self) -> None:
        resumed = (self.folder / CHECKPOINT).exists()
        folder = self.folder if resumed else self.trunk
        if folder is not None:
            tensors, meta = load_tensors(folder / CHECKPOINT)
            self.check_identity(meta["run"], folder, () if resumed else LENGTH)
            if meta["step"] > (self.config.steps if resumed else self.schedule.constant_steps):
                raise UserError(f"{folder} has {meta['step']} steps, too many for a run of {self.config.steps}")
            self.learned = load_training_tensors(self.model, self.optimizers, tensors).to(self.device)
            self.step, self.seconds = meta["step"], meta["seconds"]
            if self.world.rank == 0:
                self.bytes_seen = meta["bytes_seen"]
            self.tokens, self.longest_row = meta["tokens"], meta["longest_row"]
            self._logged = self.tokens, self.seconds
            self._first_step = self.step
        elif self.epochs > 1 and self.world.rank == 0:
            warnings.warn(
                f"the training text has {self.shards.n_bytes / 1e6:.4g} MB, so training on "
                f"{self.epochs * self.shards.n_bytes / 1e6:.4g} MB reads it {self.epochs:.2f} times",
                stacklevel=2,
            )

    @property
    def memory_advice(self) -> str:
        """Remedies if the GPU's memory does not suffice."""
        step = math.ceil(self.rows.mean_rows / self.world.size)
        rows = min(step, self.config.microbatch_size or step)
        return (
            f"with {counted(rows, 'row')} of about {round(self.rows.mean_tokens)} tokens at a time; lower "
            "lm.train.microbatch_size, lm.train.context_bytes or lm.model.n_layers"
        )

    @property
    def epochs(self) -> float:
        """How often the whole run reads the shards."""
        return self.config.steps * self.rows.tokens_per_step / self.shards.n_tokens

    def advance(self) -> dict[str, Any] | None:
        """Do one step; return its log entry if it is logged."""
        began = time.perf_counter()
        config = self.config
        eos_id = self.shards.eos_id if config.document_mask else None
        batch = read_batch(self.rows, self.step, self.device, self.world, config.microbatch_size, eos_id)
        self.longest_row = max(self.longest_row, batch.longest)
        for part in batch.parts:
            self.learned.index_fill_(0, part.targets, True)
        factor = self.schedule.factor(self.step)
        logged = (self.step + 1) % config.log_every == 0 or self.step + 1 >= config.steps
        self.model.model.measuring = logged
        sums, squares = self._backward(batch.parts)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.grad_clip or math.inf)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += batch.n_tokens
        self.bytes_seen += batch.n_bytes
        if not logged:
            self.seconds += time.perf_counter() - began
            return None
        activation_norm = math.sqrt(self.world.sum(squares).item() / batch.n_tokens)
        norms = {"grad_norm": norm.item(), "activation_norm": activation_norm}
        entry = self._entry(sums, batch) | {"lr": config.matrix_lr * factor, **norms}
        self.seconds += time.perf_counter() - began
        # Since the last entry: in between, a GPU only queues its work.
        entry |= {"tokens_per_second": self._rate(self._logged), "seconds": self.seconds}
        if (mfu := self._mfu(self._logged)) is not None:
            entry["mfu"] = mfu
        self._logged = self.tokens, self.seconds
        if self._warm is None and self.step >= self._first_step + _WARM_UP_STEPS:
            self._warm = self._logged
        self._check_finite(entry)
        return entry

    def _rate(self, since: tuple[int, float]) -> float:
        """Tokens per second since the given numbers of tokens and seconds."""
        return (self.tokens - since[0]) / (self.seconds - since[1])

    def _mfu(self, since: tuple[int, float] | None) -> float | None:
        """Model FLOPs utilization since then; None if there is nothing to measure, or the GPU is not known."""
        if self._peak_flops is None or since is None or self.seconds == since[1]:
            return None
        return self._rate(since) * self.flops_per_token / (self._peak_flops * self.world.size)

    def _entry(self, sums: Tensor, batch: Batch) -> dict[str, Any]:
        """Loss and totals of all processes after a step, for the log."""
        counts = torch.tensor([batch.n_bytes, self.bytes_seen], dtype=sums.dtype, device=sums.device)
        totals = self.world.sum(torch.cat((sums, counts)))  # exact below 2^53
        all_nats, text_nats, n_bytes, bytes_seen = totals.tolist()
        loss = all_nats / batch.n_tokens
        self._check_finite({"loss": loss})
        return {
            "step": self.step,
            "loss": loss,
            "train_bits_per_byte": bits_per_byte(text_nats, max(1, n_bytes)),
            "bytes_seen": int(bytes_seen),
            "tokens_seen": self.tokens,
            "flops": self.tokens * self.flops_per_token,
        }

    def _check_finite(self, entry: dict[str, Any]) -> None:
        """Raise a DivergedError for infinities and NaN; gradients overflow before the loss does."""
        for name, value in entry.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"{name} of step {self.step} is {value}: training diverged; lower the learning rates"
                )

    def _backward(self, parts: Sequence[MicroBatch]) -> tuple[Tensor, Tensor]:
        """Accumulate the gradients of the loss over this process's rows, in micro-batches.

        The loss of a step is its nats over the mean number of tokens of a step, so that equal text has equal weight
        in every step.

        Returns:
            float64[2], nats of all targets in these rows, and of the text targets; and float64[], the sum of
            `Decoder.squares` over all targets, if it is measured.
        """
        # DDP averages gradients; multiply by the number of processes to get the sum.
        scale = self.world.size / self.rows.tokens_per_step
        bf16 = self.identity["precision"] == "bf16"
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        squares = sums.new_zeros((), dtype=torch.float64)
        for number, part in enumerate(parts, 1):
            more = isinstance(self.objective, DistributedDataParallel) and number < len(parts)
            # Exchange gradients once, after the last micro-batch.
            with self.objective.no_sync() if more else nullcontext():  # type: ignore[operator]
                with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                    total, nats = self.objective(*part)
                torch.autograd.backward(total * scale)
            nats = nats.double()
            sums += torch.stack((nats.sum(), (nats * (part.targets != self.shards.eos_id)).sum()))
            if self.model.model.measuring:
                squares += self.model.model.squares[0, : len(part.targets)].sum()
        return sums, squares

    def save_checkpoint(self) -> None:
        """Write the state that the next step depends on; a collective call."""
        bytes_seen, learned = self._total_bytes(), self._all_learned()
        if self.world.rank:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        meta = {
            "run": self.identity,
            "step": self.step,
            "seconds": self.seconds,
            "bytes_seen": bytes_seen,
            "tokens": self.tokens,
            "longest_row": self.longest_row,
        }
        save_tensors(self.folder / CHECKPOINT, training_tensors(self.model, self.optimizers, learned), meta)

    def _total_bytes(self) -> int:
        """Bytes of text that all processes have read; a collective call."""
        return int(self.world.sum(torch.tensor(self.bytes_seen)).item())

    def _all_learned(self) -> Tensor:
        """`learned` of all processes; a collective call."""
        return self.world.sum(self.learned.int()) > 0

    def finish(self) -> TrainingSummary:
        """Write the model, the ids that it learned and the summary; remove the checkpoint, or write the last step's."""
        summary, learned = self.summary(), self._all_learned()
        if self.keep_checkpoint:
            self.save_checkpoint()
        if self.world.rank == 0:
            self.model.context_tokens = self.longest_row  # it has seen no position beyond
            save_model(self.model, self.folder)
            save_learned(self.folder, learned.cpu().numpy())
            summary.save(self.folder)
            if not self.keep_checkpoint:
                (self.folder / CHECKPOINT).unlink(missing_ok=True)
        return summary

    def summary(self) -> TrainingSummary:
        """Summary of the run: settings, tokens, FLOPs, time."""
        config = self.config
        bytes_seen = self._total_bytes()
        return TrainingSummary(
            **{f"parameters_{name}": number for name, number in self.model.n_parameters().items()},
            flops=self.tokens * self.flops_per_token,
            flops_per_token=self.flops_per_token,
            flops_formula=FLOPS_FORMULA,
            bytes=bytes_seen,
            tokens=self.tokens,
            steps=self.step,
            rows=self.rows.mean_rows,
            context_tokens=self.rows.mean_tokens,
            context_bytes=config.context_bytes,
            epochs=self.epochs,
            seconds=self.seconds,
            tokens_per_second=self.tokens / self.seconds,
            mfu=self._mfu(self._warm),
            device=str(self.device),
            threads=torch.get_num_threads(),
            processes=self.world.size,
            run=self.identity,
        )


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in identity.items() if key not in ("model", "train")}
    return {**identity["model"], **identity["train"], **others}
