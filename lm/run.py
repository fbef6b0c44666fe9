"""One training run: its state, its steps, its files."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.checkpoint import (
    load_model_tensors,
    load_optimizer_tensors,
    load_tensors,
    model_tensors,
    optimizer_tensors,
    save_tensors,
)
from lm.device import precision, resolve_device
from lm.diagnostics import Diagnostics
from lm.model import ModelConfig, Transformer
from lm.optim import build_optimizers, wsd
from lm.stream import DocumentStream
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from lm.shards import Shards
    from lm.training import TrainConfig

MODEL, SUMMARY = "model.safetensors", "summary.json"
_CHECKPOINT = "checkpoint.safetensors"
# These say how a run is watched or placed, not what it computes: a resumed run may change them.
FREE_TO_CHANGE = ("device", "threads", "checkpoint_seconds", "log_every", "diagnostics_every", "peak_flops")
_logger = logging.getLogger(__name__)


class Run:
    """State of one run: model, optimizers, position in the text, totals."""

    def __init__(self, model: ModelConfig, config: TrainConfig, shards: Shards, folder: Path) -> None:
        self.config, self.shards, self.folder = config, shards, folder
        self.device = resolve_device(config.device)
        self.stream = DocumentStream(shards, seed=config.seed, shuffle=config.shuffle)
        self.bytes_per_token = self.stream.bytes_per_token(config.train_bytes)
        self.context_tokens = self.stream.context_tokens(config.context_bytes, config.train_bytes)
        self.tokens_per_step = config.rows * self.context_tokens
        self.model = Transformer(model, shards.vocab_size, self.context_tokens, shards.tokenizer_sha256)
        self.model.initialize(config.seed)
        self.model.to(self.device)
        self.optimizers = build_optimizers(
            self.model,
            matrix_lr=config.matrix_lr,
            embedding_lr=config.embedding_lr,
            head_lr=config.head_lr,
            vector_lr=config.vector_lr,
            weight_decay=config.weight_decay,
        )
        self.lengths = torch.from_numpy(shards.token_byte_lengths).to(self.device)
        self.flops_per_token = self.model.flops_per_token()
        self.diagnostics = Diagnostics(config.diagnostics_every, config.peak_flops, precision(self.device))
        self.step = 0
        self.seconds = 0.0
        # On the device, so that a step that is not logged need not wait for it.
        self.bytes_seen = torch.zeros((), dtype=torch.int64, device=self.device)
        self.last_bits_per_byte = math.nan
        fixed = {k: v for k, v in dataclasses.asdict(config).items() if k not in FREE_TO_CHANGE}
        self.identity: dict[str, Any] = {
            "model": dataclasses.asdict(model),
            "train": fixed,
            "precision": precision(self.device),
            "shards": [shards.tokenizer_sha256, shards.n_documents, shards.n_bytes, shards.n_tokens],
        }

    def same_or_refuse(self, identity: dict[str, Any]) -> None:
        """Compare with the settings of the run that is already in the folder."""
        if identity == self.identity:
            return
        mine, theirs = _flat(self.identity), _flat(identity)
        differ = ", ".join(f"{k} ({theirs.get(k)} there, {v} now)" for k, v in mine.items() if theirs.get(k) != v)
        raise UserError(f"{self.folder} holds a run with other settings: {differ}; use another folder or delete it")

    def resume(self) -> None:
        """Load the checkpoint if there is one."""
        path = self.folder / _CHECKPOINT
        if path.exists():
            tensors, meta = load_tensors(path, str(self.device))
            self.same_or_refuse(meta["run"])
            load_model_tensors(self.model, {k: v for k, v in tensors.items() if "#" not in k})
            state = {k: v for k, v in tensors.items() if "#" in k}
            load_optimizer_tensors(self.model, self.optimizers, state)
            self.step, self.seconds = meta["step"], meta["seconds"]
            self.bytes_seen += meta["bytes_seen"]
            self.last_bits_per_byte = meta["last_bits_per_byte"]
            self.diagnostics.mark(self.step * self.tokens_per_step, self.seconds)
        elif self.epochs > 1:
            _logger.warning(
                "the shards hold %d bytes: training on %d bytes reads them %.2f times",
                self.shards.n_bytes,
                self.config.train_bytes,
                self.epochs,
            )

    @property
    def epochs(self) -> float:
        """How often the run as a whole reads the shards."""
        return self.config.steps * self.tokens_per_step / self.shards.n_tokens

    def advance(self) -> dict[str, Any] | None:
        """Do one step; return its log entry if this step is logged."""
        began = time.perf_counter()
        config = self.config
        start = self.step * self.tokens_per_step
        ids = torch.from_numpy(self.stream.read(start, start + self.tokens_per_step + 1)).to(self.device)
        inputs = ids[:-1].view(config.rows, -1)
        targets = ids[1:].view(config.rows, -1)
        factor = wsd((self.step + 0.5) / config.steps, config.warmup_fraction, config.decay_fraction)
        nats = self._backward(inputs, targets)
        limit = config.grad_clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step_bytes = self.lengths[targets].sum()
        self.bytes_seen += step_bytes
        self.step += 1
        entry = None
        due = self.diagnostics.due(self.step, config.steps)
        if due or self.step % config.log_every == 0 or self.step == config.steps:
            text_nats = (nats * (targets != self.shards.eos_id)).sum()
            loss = nats.mean().item()
            if not math.isfinite(loss):
                raise UserError(f"the loss of step {self.step} is {loss}: training diverged; lower the learning rates")
            self.last_bits_per_byte = text_nats.item() / math.log(2) / max(1, step_bytes.item())
            entry = {
                "step": self.step,
                "loss": loss,
                "train_bits_per_byte": self.last_bits_per_byte,
                "bytes_seen": int(self.bytes_seen.item()),
                "tokens_seen": self.step * self.tokens_per_step,
                "flops": self.step * self.tokens_per_step * self.flops_per_token,
                "lr": config.matrix_lr * factor,
                "grad_norm": norm.item(),
            }
        seconds = time.perf_counter() - began
        self.seconds += seconds
        if entry is not None:
            entry |= {"tokens_per_second": self.tokens_per_step / seconds, "seconds": self.seconds}
        if entry is not None and due:  # outside the time that is measured
            tokens = self.step * self.tokens_per_step
            entry |= self.diagnostics.row(
                self.model, inputs[: config.microbatch_rows], tokens=tokens, seconds=self.seconds
            )
        return entry

    def _backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Add up the gradients of the mean loss, micro-batch by micro-batch; nats of every target."""
        precision = torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()
        nats = torch.empty(targets.shape, device=self.device)
        size = self.config.microbatch_rows or len(inputs)
        for first in range(0, len(inputs), size):
            rows = slice(first, first + size)
            with precision:
                logits = self.model(inputs[rows])
            losses = F.cross_entropy(logits.float().flatten(0, 1), targets[rows].flatten(), reduction="none")
            torch.autograd.backward(losses.sum() / targets.numel())
            nats[rows] = losses.detach().view_as(targets[rows])
        return nats

    def save_checkpoint(self) -> None:
        """Write everything that the next step depends on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = model_tensors(self.model) | optimizer_tensors(self.model, self.optimizers)
        meta = {
            "run": self.identity,
            "step": self.step,
            "seconds": self.seconds,
            "bytes_seen": int(self.bytes_seen.item()),
            "last_bits_per_byte": self.last_bits_per_byte,
        }
        save_tensors(self.folder / _CHECKPOINT, tensors, meta)

    def finish(self) -> dict[str, Any]:
        """Write the model and the summary; the checkpoint has served."""
        self.folder.mkdir(parents=True, exist_ok=True)
        meta = {
            "model": dataclasses.asdict(self.model.config),
            "vocab_size": self.model.vocab_size,
            "context_tokens": self.context_tokens,
            "tokenizer_sha256": self.shards.tokenizer_sha256,
        }
        save_tensors(self.folder / MODEL, model_tensors(self.model), meta)
        summary = self.summary()
        partial = self.folder / f".{SUMMARY}.partial"
        partial.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        partial.replace(self.folder / SUMMARY)
        (self.folder / _CHECKPOINT).unlink(missing_ok=True)
        return summary

    def summary(self) -> dict[str, Any]:
        """What the run was and what it cost."""
        config, tokens = self.config, self.step * self.tokens_per_step
        bytes_seen = int(self.bytes_seen.item())
        parameters = self.model.n_parameters()
        return {
            "parameters_total": parameters["total"],
            "parameters_non_embedding": parameters["non_embedding"],
            "parameters_matmul": parameters["matmul"],
            "flops": tokens * self.flops_per_token,
            "flops_per_token": self.flops_per_token,
            "flops_formula": "per token: 6 * parameters_matmul + 12 * depth * width * context_tokens",
            "bytes": bytes_seen,
            "tokens": tokens,
            "steps": self.step,
            "mean_bytes_per_step": bytes_seen / self.step,
            "nominal_bytes_per_step": config.bytes_per_step,
            "rows": config.rows,
            "context_tokens": self.context_tokens,
            "context_bytes": config.context_bytes,
            "bytes_per_token": self.bytes_per_token,
            "epochs": self.epochs,
            "last_train_bits_per_byte": self.last_bits_per_byte,
            "seconds": self.seconds,
            "tokens_per_second": tokens / self.seconds,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "run": self.identity,
        }


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    return {**identity["model"], **identity["train"], "shards": identity["shards"]}
