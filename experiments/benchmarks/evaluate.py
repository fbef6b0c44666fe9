"""Evaluation against the model's plain forward pass, in tokens per second, in turn in one process.

    python -m experiments.benchmarks.evaluate TEXT --tokenizer FOLDER --max-bytes 300kB

Both read the same documents with the same random weights, whose values do not matter. The plain pass reads full rows of
the trained length and discards the logits. Evaluation plans windows, pads them, computes the loss of every token, and
sums it up. With a minimum context, tokens are read again as context; the table shows their share.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import exit_code, si
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.data.stream import DocumentStream
from lm.evaluate.config import EvalConfig
from lm.evaluate.evaluation import evaluate
from lm.model.transformer import ModelConfig, Transformer
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str]) -> int:
    """Parse the command line and measure; return the exit code."""
    options = common.parser(__doc__ or "")
    options.add_argument("--tokenizer", required=True, type=Path, help="folder of the tokenizer")
    options.add_argument("--n-layers", type=common.positive, default=4)
    options.add_argument("--hidden-size", type=common.positive, default=128)
    options.add_argument("--context-bytes", type=common.positive, default=1024, help="in training and evaluation")
    options.add_argument("--min-context-bytes", type=int, nargs="+", default=[0, 256])
    options.add_argument("--batch-tokens", type=common.positive, default=8192)
    options.add_argument("--threads", type=common.positive, default=torch.get_num_threads())
    arguments = options.parse_args(argv)
    return exit_code(lambda: measure(arguments))


def measure(options: argparse.Namespace) -> None:
    """Print the table."""
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.load(options.tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(options.paths, options.field, options.max_bytes)
        write_shards(Path(folder) / "shards", tokenizer, text.batches("all"))
        shards = Shards.open(Path(folder) / "shards")
        context_tokens = DocumentStream(shards, seed=0).context_tokens(options.context_bytes, shards.n_bytes)
        model = Transformer(
            ModelConfig(n_layers=options.n_layers, hidden_size=options.hidden_size, head_dim=32),
            shards.vocab_size,
            context_tokens,
        )
        model.initialize(0, shards.token_hashes)
        jobs: dict[str, Callable[[], dict[str, float]]] = {
            "plain forward": lambda: _plain(model, shards, options.batch_tokens)
        }
        for least in options.min_context_bytes:
            config = EvalConfig(
                # With three quarters of the trained positions, few windows are limited by them.
                context_bytes=options.context_bytes * 3 // 4,
                min_context_bytes=least,
                batch_tokens=options.batch_tokens,
            )
            jobs[f"evaluate, min_context_bytes={least}"] = lambda config=config: _evaluate(model, shards, config)  # type: ignore[misc]
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
        for _ in range(options.rounds + 1):  # the first one warms up
            for name, job in jobs.items():
                rounds[name].append(_timed(job))
    _show(options, tokenizer, shards, {name: found[1:] for name, found in rounds.items()})


def _show(
    options: argparse.Namespace, tokenizer: Tokenizer, shards: Shards, rounds: dict[str, list[dict[str, float]]]
) -> None:
    size = f"n_layers {options.n_layers}, hidden_size {options.hidden_size}, vocabulary {tokenizer.vocab_size:,}"
    table = Table(
        title=f"{size}, {si(shards.n_bytes)}B in {shards.n_documents} documents, {options.threads} threads",
        caption="medians; tokens read by the model, context included; CPU seconds of this process",
    )
    for column in ("", "tokens", "tokens / CPU s", "of plain", "tokens / s", "of plain", "repeated context", "padding"):
        table.add_column(column, justify="left" if not column else "right")
    plain = {clock: median(_rate(found, clock) for found in rounds["plain forward"]) for clock in ("cpu", "seconds")}
    for name, found in rounds.items():
        rates = {clock: median(_rate(each, clock) for each in found) for clock in plain}
        cells = [f(rates[clock] / plain[clock]) for clock in plain for f in ("{:.2f}".format,)]
        last = found[-1]
        table.add_row(
            name,
            f"{last['tokens']:,.0f}",
            *(f"{rates['cpu']:,.0f}", cells[0], f"{rates['seconds']:,.0f}", cells[1]),
            *(f"{last[key]:.1%}" if key in last else "" for key in ("overlap", "padding")),
        )
    common.CONSOLE.print(table)


def _rate(facts: dict[str, float], clock: str) -> float:
    return facts["tokens"] / facts[clock]


def _timed(job: Callable[[], dict[str, float]]) -> dict[str, float]:
    began, used = time.perf_counter(), _cpu()
    facts = job()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return facts | {"seconds": time.perf_counter() - began, "cpu": _cpu() - used}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@torch.no_grad()
def _plain(model: Transformer, shards: Shards, batch_tokens: int) -> dict[str, float]:
    """Pass all tokens of the shards through the model in full rows, without a loss."""
    rows = max(1, batch_tokens // model.context_tokens)
    step = rows * model.context_tokens
    ids = shards.tokens(0, shards.n_tokens // step * step) if shards.n_tokens >= step else np.zeros(step, np.int64)
    for batch in ids.reshape(-1, rows, model.context_tokens):
        model(torch.from_numpy(batch))
    return {"tokens": len(ids)}


def _evaluate(model: Transformer, shards: Shards, config: EvalConfig) -> dict[str, float]:
    found = evaluate(model, shards, shards.token_byte_lengths, config)
    summary = found.summary() if len(found.text_nats) > 1 else {}
    return {
        "tokens": found.forward_tokens,
        "overlap": summary.get("overlap_share", 0.0),
        "padding": summary.get("padding_share", 0.0),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
