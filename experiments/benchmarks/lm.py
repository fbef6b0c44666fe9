"""Training steps and evaluation beside `transformers`, on a CPU or a GPU: `python -m experiments.benchmarks.lm`.

Steps: our model and Hugging Face's Llama have the same shape, weights, rows, precision and optimizers, and take their
steps in turn in one process, so that drift of the machine affects both. On a GPU both are compiled. Rows have equal
bytes and hence unequal numbers of tokens: ours are packed, and Llama's are padded to the longest of a micro-batch. Only
tokens of text count. The first step must give the same loss. Evaluation: our scoring of documents, and our plain
forward pass over rows of the same text, which discards the logits. Tokens are random, with the frequencies of a Zipf
law, so it needs no text and no network. On a CPU, time is the process's CPU time divided by its threads, which other
processes affect less. Each number of layers has a table.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.benchmarks import harness
from experiments.cli.arguments import whole
from experiments.numbers import si
from lm.data.shards import Shards, TextLoss
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.model.config import ModelConfig
from lm.train.batches import Batch, MicroBatch, read_batch
from lm.train.config import PRECISIONS, TrainConfig
from lm.train.optim import Muon
from lm.train.trainer import Trainer

_TOKEN_BYTES = 4
"""Mean bytes of a synthetic token."""
HAS_LLAMA = importlib.util.find_spec("transformers") is not None


class SyntheticShards(Shards):
    """Documents of random tokens in memory; tokens have the frequencies of a Zipf law.

    Even ids have two bytes and odd ones six. Their shares differ from document to document, so that rows of equal bytes
    have unequal numbers of tokens, as in real text (standard deviation: 30 %).
    """

    def __init__(self, vocab_size: int, n_tokens: int, document_tokens: int = 600) -> None:
        rng = np.random.default_rng(0)
        weights = np.cumsum(1 / (np.arange((vocab_size - 1) // 2) + 10))
        tokens = 2 * np.searchsorted(weights, rng.random(n_tokens) * weights[-1]).clip(max=len(weights) - 1)
        lengths = rng.lognormal(0, 1, 2 + 2 * n_tokens // document_tokens) * document_tokens / math.exp(0.5)
        ends = np.cumsum(lengths.astype(np.int64) + 2)
        self.document_ends = np.append(ends[ends < n_tokens - 2], n_tokens)
        sizes = np.diff(self.document_ends, prepend=0)
        tokens += rng.random(n_tokens) < np.repeat(rng.random(len(sizes)), sizes)
        self.vocab_size, self.eos_id, self.n_tokens = vocab_size, vocab_size - 1, n_tokens
        tokens[np.concatenate(([0], self.document_ends[:-1]))] = self.eos_id
        self._files, self._starts = [tokens.astype(np.uint32)], np.array([0, n_tokens])
        self.token_byte_lengths = np.append(2 + 4 * (np.arange(vocab_size - 1) % 2), 0)
        self.n_documents = len(self.document_ends)
        until = np.cumsum(self.token_byte_lengths[tokens])[self.document_ends - 1]
        self.document_bytes = np.diff(until, prepend=0)
        self.n_bytes = int(self.document_bytes.sum())
        self.normalized_bytes, self.covered_bytes = np.zeros(self.n_documents, np.int64), None
        self.token_hashes = np.arange(vocab_size, dtype=np.uint64)
        self.folder, self.tokenizer_sha256, self.text_loss = Path("synthetic"), "", TextLoss()


@dataclass
class Clock:
    """Tokens per second of named pieces of work, round by round."""

    device: torch.device
    rates: dict[str, list[float]] = field(default_factory=dict)

    def time(self, name: str, n_tokens: int, work: Callable[[], Any]) -> Any:
        """Do the work on `n_tokens` tokens and record its speed."""
        began = self._now()
        result = work()
        self.rates.setdefault(name, []).append(n_tokens / (self._now() - began))
        return result

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time() / torch.get_num_threads()


class Llama:
    """Hugging Face's Llama with the shape of a run's model, its own loss, and our optimizers.

    Args:
        run: The training run of our model; its precision is used as well.
    """

    def __init__(self, run: Trainer) -> None:
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
            max_position_embeddings=run.rows.most_tokens,
            rms_norm_eps=shape.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
            attn_implementation="sdpa",
        )
        self.model: Any = kind(config).to(run.device)
        matrices = [p for name, p in self.model.named_parameters() if p.ndim == 2 and ".layers." in name]
        others = [p for name, p in self.model.named_parameters() if p.ndim == 1 or ".layers." not in name]
        self.optimizers = [Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.95), fused=True)]
        self._bf16 = run.identity["precision"] == "bf16"
        if run.identity.get("compile"):  # as ours: each block, for any number of positions
            for block in self.model.model.layers:
                block.compile(dynamic=True)

    def step(self, parts: Sequence[tuple[Tensor, Tensor]], n_tokens: int) -> float:
        """Train on micro-batches of inputs and targets, int64[rows, positions]; return the mean loss."""
        losses = []
        for inputs, targets in parts:
            with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self._bf16):
                # Without num_items_in_batch, it would be the mean of the micro-batch.
                loss: Tensor = self.model(
                    input_ids=inputs, labels=targets, shift_labels=targets, use_cache=False, num_items_in_batch=n_tokens
                ).loss
            torch.autograd.backward(loss)
            losses.append(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(sum(losses))


def time_steps(run: Trainer, clock: Clock, alone: bool) -> None:
    """Take all steps of both models in turn, or of ours alone.

    Raises:
        AssertionError: If the losses of the first step differ.
    """
    llama = None if alone or not HAS_LLAMA else Llama(run)
    if llama is not None:
        llama.model.load_state_dict(run.model.state_dict(), strict=True)
    for number in range(run.config.steps):
        batch = read(run, number)
        ours = clock.time("ours", batch.n_tokens, run.advance)["loss"]
        if llama is not None:
            rows = [padded_rows(part) for part in batch.parts]
            theirs = clock.time("llama", batch.n_tokens, partial(llama.step, rows, batch.n_tokens))
            if number == 0 and abs(ours / theirs - 1) > (1e-2 if run.identity["precision"] == "bf16" else 1e-4):
                raise AssertionError(f"the models are not the same: losses {ours} and {theirs}")


def read(run: Trainer, step: int) -> Batch:
    """The rows of a step."""
    return read_batch(run.rows, step, run.device, run.world, run.config.microbatch_size)


def padded_rows(part: MicroBatch) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a micro-batch as int64[rows, positions]; targets are padded with -100."""
    lengths = part.segments.bounds.diff().tolist()
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    inputs: Tensor = pad(list(torch.split(part.ids, lengths)))
    targets: Tensor = pad(list(torch.split(part.targets, lengths)), padding_value=-100)
    return inputs, targets


@torch.no_grad()
def time_evaluation(run: Trainer, clock: Clock) -> None:
    """Score the shards' documents, and run the model on full rows of the same text."""
    shards = run.shards
    n_steps = max(1, int(shards.n_tokens / run.rows.tokens_per_step))
    rows = [padded_rows(part)[0] for step in range(n_steps) for part in read(run, step).parts]
    config = EvalConfig(context_bytes=run.config.context_bytes, min_context_bytes=0)
    score = partial(evaluate, run.model, shards, shards.token_byte_lengths, config)
    for _ in range(max(2, run.config.steps // 5)):
        clock.time("evaluation", shards.n_tokens - shards.n_documents, score)
        clock.time(
            "plain forward",
            sum(inputs.numel() for inputs in rows),
            lambda: deque((run.model(inputs) for inputs in rows), maxlen=0),
        )


def prepare(arguments: argparse.Namespace, depth: int, folder: Path) -> Trainer:
    """Set up a run over synthetic shards; the width of its model is 64 times its depth."""
    train = TrainConfig(
        train_bytes=_TOKEN_BYTES * arguments.tokens * arguments.rounds,
        bytes_per_step=_TOKEN_BYTES * arguments.tokens,
        context_bytes=_TOKEN_BYTES * arguments.context,
        microbatch_size=arguments.rows,
        precision=arguments.precision,
        device=arguments.device,
        log_every=1,
    )
    shards = SyntheticShards(arguments.vocab_size, 8 * max(arguments.tokens, 8192), min(600, arguments.context))
    # No padding of the vocabulary: Llama would predict it.
    model = ModelConfig(depth, hidden_size=arguments.hidden_size or 0, vocab_multiple=1, qk_norm=False)
    run = Trainer(model, train, shards, folder)
    with torch.no_grad():  # with zero projections, attention would have no gradients to compute
        for parameter in run.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    run.begin()
    return run


@harness.command
def main(argv: list[str]) -> int:
    """Parse the command line, measure and print a table for each number of layers; return the exit code."""
    options = argparse.ArgumentParser(description="Training steps and evaluation beside Hugging Face's Llama.")
    add = options.add_argument
    add("--n-layers", type=whole(), nargs="+", default=[4], help="layers (default 4)")
    add("--hidden-size", type=whole(), help="width of the model (default: 64 times its layers)")
    add("--context", type=whole(), default=256, help="mean tokens of a row (default 256)")
    add("--vocab-size", type=whole(), default=8192, help="default 8192")
    add("--tokens", type=whole(), default=2048, help="tokens of a step (default 2048; for a GPU: 131072)")
    add("--rows", type=whole(), help="rows of a micro-batch (default: all of a step)")
    add("--rounds", type=whole(), default=7, help="steps of each model, in turn (default 7)")
    add("--alone", action="store_true", help="our model alone, as without transformers")
    add("--precision", choices=PRECISIONS, default="auto")
    add("--device", default="auto")
    add("--threads", type=whole(), help="threads on a CPU (default: Torch's)")
    arguments = options.parse_args(argv)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for depth in arguments.n_layers:
        with tempfile.TemporaryDirectory() as folder:
            run = prepare(arguments, depth, Path(folder))
            clock = Clock(run.device)
            time_steps(run, clock, arguments.alone)
            time_evaluation(run, clock)
        shape = (
            f"{si(run.model.n_parameters()['non_embedding'])} parameters + {run.model.lm_head.weight.shape[0]:,} "
            f"tokens, {run.config.batch_size} rows of {run.rows.mean_tokens:.0f}, {run.identity['precision']}, "
            f"{run.device}"
        )
        summary = run.summary()
        # The first round warms up.
        medians = {name: statistics.median(rates[1:] or rates) for name, rates in clock.rates.items()}
        table = [{"": name, "tokens / s": f"{value:,.0f}"} for name, value in medians.items()]
        if summary.mfu is not None:
            shape += f", MFU {summary.mfu:.1%}"
        harness.print_table(shape, table, "medians; on a CPU, seconds of CPU time by threads")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
