r"""Training steps and evaluation on a GPU: `python -m experiments.benchmarks.gpu --to OUT`.

Both are those of `lm`, by depth, row length and vocabulary, with `transformers`' Llama where it is installed. Tokens
are random, with the frequencies of a Zipf law, so it needs no text and no network. `OUT/gpu.json` is written after
every case, so that a run that is stopped leaves what it has measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.benchmarks import harness, lm
from experiments.cli.arguments import whole
from lm.data.shards import Shards, TextLoss
from lm.model.config import ModelConfig
from lm.train.config import TrainConfig
from lm.train.trainer import Trainer


class SyntheticShards(Shards):
    """Documents of random tokens in memory; tokens have the frequencies of a Zipf law and 4 bytes each."""

    def __init__(self, vocab_size: int, n_tokens: int, document_tokens: int = 600) -> None:
        rng = np.random.default_rng(0)
        weights = np.cumsum(1 / (np.arange(vocab_size - 1) + 10))
        tokens = np.searchsorted(weights, rng.random(n_tokens) * weights[-1]).clip(max=vocab_size - 2)
        lengths = rng.lognormal(0, 1, 2 + 2 * n_tokens // document_tokens) * document_tokens / math.exp(0.5)
        ends = np.cumsum(lengths.astype(np.int64) + 2)
        self.document_ends = np.append(ends[ends < n_tokens - 2], n_tokens)
        self.vocab_size, self.eos_id, self.n_tokens = vocab_size, vocab_size - 1, n_tokens
        tokens[np.concatenate(([0], self.document_ends[:-1]))] = self.eos_id
        self._files, self._starts = [tokens.astype(np.uint32)], np.array([0, n_tokens])
        self.n_documents = len(self.document_ends)
        self.document_bytes = 4 * (np.diff(self.document_ends, prepend=0) - 1)
        self.n_bytes = int(self.document_bytes.sum())
        self.normalized_bytes, self.covered_bytes = np.zeros(self.n_documents, np.int64), None
        self.token_byte_lengths = np.append(np.full(vocab_size - 1, 4), 0)
        self.token_hashes = np.arange(vocab_size, dtype=np.uint64)
        self.folder, self.tokenizer_sha256, self.text_loss = Path("synthetic"), "", TextLoss()


@dataclass(frozen=True)
class Case:
    """Sizes of one measurement; `tokens` are those of a step."""

    depth: int
    context: int
    vocabulary: int
    document_mask: bool = True
    tokens: int = 1 << 15

    def trainer(self, device: str, folder: Path) -> Trainer:
        """A run with a model whose width is 64 times its depth; tiny for small steps."""
        toy = self.tokens < 1000
        config = TrainConfig(
            train_bytes=10**6 * self.tokens,
            bytes_per_step=self.tokens,
            context_bytes=self.context,
            context_tokens=self.context,
            document_mask=self.document_mask,
            device=device,
        )
        model = ModelConfig(self.depth, hidden_size=32 if toy else 0, head_dim=16 if toy else 64, vocab_multiple=1)
        shards = SyntheticShards(self.vocabulary, 1 << (12 if toy else 22), 20 if toy else 600)
        return Trainer(model, config, shards, folder)


CASES = [
    *(Case(24, 2048, 50_304), Case(12, 2048, 50_304), Case(12, 2048, 50_304, document_mask=False)),
    *(Case(24, 2048, 200_064), Case(24, 4096, 50_304), Case(24, 1024, 50_304)),
]
TOYS = [Case(1, 16, 300, tokens=64), Case(2, 32, 600, document_mask=False, tokens=128)]


def measure(case: Case, device: str, rounds: int) -> dict[str, Any]:
    """Tokens per second of training and evaluation, the share of what the processor can do, and memory."""
    with tempfile.TemporaryDirectory() as folder:
        run = case.trainer(device, Path(folder))
        run.begin()
        cuda = run.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        row = lm.measure(run, run.shards, rounds)
        return asdict(case) | row | {"peak GB": torch.cuda.max_memory_allocated() / 1e9 if cuda else math.nan}


@harness.command
def main(argv: list[str]) -> int:
    """Measure all cases, write them after each, and print them as a table; return the exit code."""
    options = argparse.ArgumentParser(description="Training steps and evaluation on a GPU.")
    options.add_argument("--to", type=Path, required=True, help="folder of the JSON")
    options.add_argument("--device", default="auto")
    options.add_argument("--rounds", type=whole(), default=20, help="steps of a case (default 20)")
    options.add_argument("--toy", action="store_true", help="the smallest sizes, for a test on a CPU")
    arguments = options.parse_args(argv)
    arguments.to.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for case in TOYS if arguments.toy else CASES:
        torch.compiler.reset()  # Torch keeps a limited number of graphs
        rows.append(measure(case, arguments.device, arguments.rounds))
        (arguments.to / "gpu.json").write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
    columns = {column: (lambda row, column=column: f"{row.get(column, math.nan):,.4g}") for column in rows[-1]}
    harness.print_table("Tokens per second", columns, rows, lm.MEDIANS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
