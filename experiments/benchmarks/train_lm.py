"""Training steps against Hugging Face's Llama: `python -m experiments.benchmarks.train_lm FILES`.

Both models have the same shape, weights, rows of real text, precision and optimizers. They take their steps in turn in
one process, so that drift of the machine affects both. The first step must give the same loss. A large matrix product
is timed as well: it is the limit of the processor, and each model's FLOPs per second are shown relative to it. On a
CPU, time is the process's CPU time divided by its threads, which other processes affect less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from experiments.benchmarks import common
from experiments.cli.console import si
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.model.transformer import ModelConfig
from lm.train.config import PRECISIONS, TrainConfig
from lm.train.optim import Muon
from lm.train.trainer import Trainer
from tokenizer import count_pretokens, train_bpe


@dataclass
class Clock:
    """Seconds of named pieces of work, round by round."""

    device: torch.device
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, work: Any) -> Any:
        """Do the work and record how long it took."""
        began = self._now()
        result = work()
        self.seconds.setdefault(name, []).append(self._now() - began)
        return result

    def median(self, name: str) -> float:
        """Median of all rounds but the first, which warms up."""
        rounds = self.seconds[name]
        return statistics.median(rounds[1:] or rounds)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time() / torch.get_num_threads()


def hugging_face_llama(run: Trainer) -> nn.Module:
    """Hugging Face's model with the shape of the run's model."""
    import transformers

    shape = run.model.config
    kind: Any = transformers.LlamaForCausalLM
    config = transformers.LlamaConfig(
        vocab_size=run.model.lm_head.weight.shape[0],
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        num_key_value_heads=shape.n_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=run.context_tokens,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        attn_implementation="sdpa",
    )
    model: nn.Module = kind(config)
    return model


class Llama:
    """Hugging Face's model with the weights of ours, its own loss, and the same optimizers.

    Args:
        run: The training run of our model.
        bf16: Whether matrix products are in bf16.
    """

    def __init__(self, run: Trainer, *, bf16: bool) -> None:
        self.model = hugging_face_llama(run).to(run.device)
        self.model.load_state_dict(run.model.state_dict(), strict=True)
        if run.identity.get("compile"):
            self.model.compile(dynamic=False)
        matrices = [p for name, p in self.model.named_parameters() if p.ndim == 2 and ".layers." in name]
        others = [p for name, p in self.model.named_parameters() if p.ndim == 1 or ".layers." not in name]
        self.optimizers = [Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.95), fused=True)]
        self._bf16 = bf16

    def gradients(self, inputs: Tensor, targets: Tensor) -> float:
        """Do the forward and backward pass; return the mean loss."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self._bf16):
            loss: Tensor = self.model(input_ids=inputs, labels=targets, shift_labels=targets, use_cache=False).loss
        torch.autograd.backward(loss)
        return loss.item()


def update(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Clip the gradients and step. The learning rates are so small that the models stay nearly equal."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def measure(run: Trainer, rounds: int) -> tuple[Clock, float]:
    """Take `rounds` steps of both models in turn; return the times and the FLOPs per second of a matrix product."""
    bf16 = run.identity["precision"] == "bf16"
    llama = Llama(run, bf16=bf16)
    clock = Clock(run.device)
    size = 8192 if run.device.type == "cuda" else 1536
    factor = torch.randn(size, size, device=run.device, dtype=torch.bfloat16 if bf16 else torch.float32)
    count = run.config.batch_size * run.context_tokens

    def read(step: int) -> Tensor:
        return torch.from_numpy(run.stream.read(step * count, (step + 1) * count + 1)).to(run.device)

    def gradients(inputs: Tensor, targets: Tensor) -> float:
        with torch.autocast(run.device.type, torch.bfloat16, enabled=bf16):
            total, _ = run.objective(inputs, targets)
        torch.autograd.backward(total / count)
        return float(total.item()) / count

    for number in range(rounds):
        ids = clock.time("data", lambda step=number: read(step))
        rows = ids[:-1].view(run.config.batch_size, -1), ids[1:].view(run.config.batch_size, -1)
        ours = clock.time("ours", lambda rows=rows: gradients(*rows))
        clock.time("ours, update", lambda: update(run.model, run.optimizers))
        theirs = clock.time("llama", lambda rows=rows: llama.gradients(*rows))
        clock.time("llama, update", lambda: update(llama.model, llama.optimizers))
        clock.time("product", lambda: factor @ factor)
        if number == 0 and not run.config.document_mask and abs(ours / theirs - 1) > (1e-2 if bf16 else 1e-4):
            raise AssertionError(f"the models are not the same: losses {ours} and {theirs}")
    return clock, 2 * size**3 / clock.median("product")


def table(run: Trainer, clock: Clock, limit: float) -> Table:
    """Table of tokens per second, without and with the optimizers, and of FLOPs relative to the matrix product."""
    tokens = run.config.batch_size * run.context_tokens
    parameters = run.model.n_parameters()
    unit = "second" if run.device.type == "cuda" else f"CPU second of {torch.get_num_threads()} thread(s)"
    data, step = clock.median("data"), clock.median("ours") + clock.median("ours, update")
    rows = Table(
        title=(
            f"Tokens per {unit}: {si(parameters['non_embedding'])} parameters + {run.model.lm_head.weight.shape[0]:,} "
            f"tokens, {run.config.batch_size} rows of {run.context_tokens}, {run.identity['precision']}, {run.device}"
        ),
        caption=(
            f"medians; a matrix product: {si(limit)} FLOPs per second; data loading: {data / (data + step):.2%} "
            "of our step"
        ),
    )
    for column in ("", "gradients", "with optimizers", "FLOPs / matrix product"):
        rows.add_column(column, justify="left" if column == "" else "right")
    rates = {}
    for name in ("ours", "llama"):
        bare, whole = clock.median(name), clock.median(name) + clock.median(f"{name}, update")
        rates[name] = tokens / bare, tokens / whole
        share = tokens * run.flops_per_token / bare / limit
        label = "ours" if name == "ours" else "Hugging Face Llama"
        rows.add_row(label, *(f"{rate:,.0f}" for rate in rates[name]), f"{share:.0%}")
    ratios = (f"{a / b:.2f}" for a, b in zip(rates["ours"], rates["llama"], strict=True))
    rows.add_row("ours / Llama", *ratios, "")
    return rows


def prepare(arguments: argparse.Namespace, folder: Path) -> Trainer:
    """Train a tokenizer on the text, write its shards, and set up a run over them."""
    text = common.corpus(arguments.paths, arguments.field, arguments.max_bytes)
    tokenizer = train_bpe(count_pretokens(text.batches(), "gpt2"), arguments.vocab_size)
    write_shards(folder / "shards", tokenizer, text.batches())
    hidden_size = arguments.hidden_size or 0
    # No padding of the vocabulary: Llama would predict it.
    model = ModelConfig(
        n_layers=arguments.n_layers, hidden_size=hidden_size, head_dim=min(64, hidden_size or 64), vocab_multiple=1
    )
    train = TrainConfig(
        train_bytes=arguments.rows * arguments.rounds,
        bytes_per_step=arguments.rows,
        context_bytes=1,
        context_tokens=arguments.context,
        document_mask=arguments.document_mask,
        precision=arguments.precision,
        compile=arguments.compile,
        device=arguments.device,
        matrix_lr=1e-3,
        embedding_lr=1e-3,
        head_lr=1e-3,
        vector_lr=1e-3,
    )
    run = Trainer(model, train, Shards.open(folder / "shards"), folder / "run")
    with torch.no_grad():  # with zero projections, attention would have no gradients to compute
        for parameter in run.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    run.begin()
    return run


@common.command
def main(argv: list[str]) -> int:
    """Parse the command line, measure and print the table; return the exit code."""
    options = common.parser("Training steps beside Hugging Face's Llama.")
    options.set_defaults(rounds=7)
    options.add_argument("--n-layers", type=common.positive, default=4, help="layers (default 4)")
    options.add_argument("--hidden-size", type=common.positive, help="default 64 times the layers")
    options.add_argument("--vocab-size", type=common.positive, default=8192, help="default 8192")
    options.add_argument("--rows", type=common.positive, default=8, help="rows of a step (default 8)")
    options.add_argument("--context", type=common.positive, default=256, help="tokens of a row (default 256)")
    options.add_argument("--precision", choices=PRECISIONS, default="auto")
    options.add_argument("--compile", action="store_true", help="fuse both models' layers with torch.compile")
    options.add_argument("--document-mask", action="store_true", help="only for ours: Llama attends to whole rows")
    options.add_argument("--device", default="auto")
    options.add_argument("--threads", type=common.positive, help="threads on a CPU (default: Torch's)")
    arguments = options.parse_args(argv)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(arguments, Path(folder))
        common.CONSOLE.print(table(run, *measure(run, arguments.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
