"""Formulas from the literature, applied to two evaluated models, with the conclusion of each.

    python -m experiments.benchmarks.wrong_formulas artifacts/evaluation-A artifacts/evaluation-B

Everything is computed from the same runs on the same documents. `docs/evaluation.md` explains what is wrong with each.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from experiments.benchmarks import common
from experiments.cli.console import exit_code
from experiments.results import Folder, ShardsFolder, TrainedModel
from experiments.store.artifacts import Artifact, C, Store
from lm.data.shards import Shards
from lm.evaluate.bits_per_byte import Evaluation, compare
from lm.evaluate.scoring import score_documents
from lm.evaluate.windows import Window
from lm.model.weights import load_model
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

LOG2 = math.log(2)
# Bytes per token that the notebook of published SuperBPE models divides by (BPE, and transition at 180k).
PUBLISHED_BYTES_PER_TOKEN = (4.4587, 6.0884)
# Factor that a public trainer applies to validation losses of SuperBPE runs.
PUBLISHED_FACTOR = 0.8013


@dataclass(frozen=True)
class Side:
    """One of the two models: its evaluation, tokenizer and shards."""

    name: str
    evaluation: Evaluation
    lm: Artifact[TrainedModel]
    tokenizer: Tokenizer
    shards: Shards

    @classmethod
    def load(cls, folder: Path) -> Side:
        """Find model, tokenizer and held-out shards through the manifest of an evaluation."""
        store = Store(folder.resolve().parent)
        artifact = store.find(folder.name, Folder)
        if artifact is None or artifact.manifest.stage != "evaluation":
            raise UserError(f"{folder} is not the folder of an evaluation; give two of artifacts/evaluation-*")
        lm = _found(store, f"lm-{artifact.manifest.inputs['lm'][:12]}", TrainedModel)
        heldout = _found(store, f"shards-{artifact.manifest.inputs['heldout'][:12]}", ShardsFolder)
        tokenizer = Tokenizer.load(store.root / f"tokenizer-{lm.contents.tokenizer[:12]}")
        name = "SuperBPE" if len(tokenizer.superword_ids()) else "BPE"
        shards = Shards.open(heldout.path / "shards", tokenizer)
        return cls(name, Evaluation.load(folder), lm, tokenizer, shards)

    @cached_property
    def nats(self) -> float:
        """Total loss of all text tokens in nats."""
        return float(self.evaluation.text_nats.sum())

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all documents."""
        return int(self.evaluation.document_bytes.sum())

    @cached_property
    def per_token(self) -> float:
        """Mean nats of a target as trainers log it, `<|endoftext|>` included."""
        e = self.evaluation
        return float(e.token_nats.sum() / e.token_counts.sum())

    @cached_property
    def characters(self) -> NDArray[np.int64]:
        """Characters of each document, int64[n_documents]."""
        documents = (self.shards.document(i) for i in range(self.shards.n_documents))
        return np.array([len(self.tokenizer.decode(ids)) for ids in documents])

    @cached_property
    def decoded_lengths(self) -> NDArray[np.int64]:
        """Bytes of each token decoded alone, int64[vocab_size]: broken characters become U+FFFD."""
        lengths = [len(self.tokenizer.decode([i]).encode()) for i in range(self.tokenizer.vocab_size)]
        lengths[self.shards.eos_id] = 0
        return np.array(lengths)


Formula = tuple[str, "Callable[[Side, Side], float]"]
"""Name of a formula, and a function from a side and the other side to its value."""


def formulas() -> list[Formula]:
    """Return the protocol, then other formulas; in bits per byte unless the name says otherwise."""
    return [
        ("protocol: bits per byte", lambda s, _: s.nats / LOG2 / s.n_bytes),
        ("nats per token", lambda s, _: s.per_token),
        ("… over bytes per token of the training text", lambda s, _: _over(s, s.lm.contents.summary.bytes_per_token)),
        ("… over published bytes per token", lambda s, _: _over(s, PUBLISHED_BYTES_PER_TOKEN[_super(s)])),
        ("… times a constant for superwords (nats)", lambda s, _: s.per_token * (1.0, PUBLISHED_FACTOR)[_super(s)]),
        ("nats per token, weighted by bytes, as bits", _length_weighted),
        ("bytes from decoded strings", _decoded),
        ("<|endoftext|> counted in", lambda s, _: (s.nats + float(s.evaluation.eos_nats.sum())) / LOG2 / s.n_bytes),
        ("mean over documents of bits per byte", lambda s, _: _macro(s, s.evaluation.document_bytes)),
        ("mean over documents of bits per character", lambda s, _: _macro(s, s.characters)),
        ("the same number of tokens, not of bytes", _same_tokens),
        ("windows of equally many tokens", _token_windows),
        ("training loss of the last step", lambda s, _: float(s.lm.contents.summary.last_train_bits_per_byte)),
    ]


def main(argv: Sequence[str]) -> int:
    """Print the table; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("evaluations", nargs=2, type=Path, help="folders artifacts/evaluation-*: baseline, other")
    arguments = options.parse_args(argv)
    return exit_code(lambda: show(*(Side.load(folder) for folder in arguments.evaluations)))


def show(a: Side, b: Side) -> None:
    """Print the values of each formula and its conclusion."""
    names = (a.name, b.name) if a.name != b.name else ("A", "B")
    table = Table(title=f"The same two models, {a.n_bytes:,} bytes in {a.shards.n_documents} documents")
    for column in ("", *names, "change", "says"):
        table.add_column(column, justify="right" if column in (*names, "change") else "left")
    truth = None
    for name, formula in formulas():
        values = formula(a, b), formula(b, a)
        change = values[1] / values[0] - 1
        truth = change if truth is None else truth
        better = names[0] if change > 0 else names[1]
        wrong = "" if (change > 0) == (truth > 0) else ": the opposite"
        table.add_row(name, *(f"{value:.4f}" for value in values), f"{change:+.2%}", f"{better} is better{wrong}")
    common.CONSOLE.print(table)
    found = compare(a.evaluation, b.evaluation)
    if found.interval is not None:
        low, high = found.interval
        common.CONSOLE.print(
            f"protocol, one training run each: {names[1]} − {names[0]} = {found.difference:+.4f} bits per byte, "
            f"{100 * found.confidence:g} % interval {low:+.4f} to {high:+.4f} over {found.n_clusters} {found.cluster}s"
        )


def _length_weighted(s: Side, _: Side) -> float:
    """Loss times bytes, summed and divided by bytes, which is still nats per token."""
    e = s.evaluation
    means = e.token_nats / np.maximum(e.token_counts, 1)
    return float(means @ (e.token_counts * e.token_lengths)) / s.n_bytes / LOG2


def _decoded(s: Side, _: Side) -> float:
    return s.nats / LOG2 / float(s.evaluation.token_counts @ s.decoded_lengths)


def _macro(s: Side, sizes: NDArray[np.int64]) -> float:
    filled = sizes > 0
    return float(np.mean(s.evaluation.text_nats[filled] / sizes[filled])) / LOG2


def _same_tokens(s: Side, other: Side) -> float:
    """Score documents up to half of the shorter encoding's tokens; superwords cover more text."""
    tokens = min(int(each.evaluation.document_tokens.sum()) for each in (s, other)) // 2
    n = int(np.searchsorted(np.cumsum(s.evaluation.document_tokens), tokens)) + 1
    e = s.evaluation
    return float(e.text_nats[:n].sum()) / LOG2 / int(e.document_bytes[:n].sum())


def _token_windows(s: Side, other: Side) -> float:
    """Rolling windows with the same number of tokens, each starting with one token of context."""
    lengths = s.shards.token_byte_lengths
    model = load_model(s.lm.path)
    size = min(int(side.lm.contents.summary.context_tokens) for side in (s, other))
    scores = score_documents(model, s.shards, lengths, partial(rolling_windows, size), batch_tokens=8192)
    return float(scores.text_nats.sum()) / LOG2 / s.n_bytes


def rolling_windows(size: int, before: NDArray[np.int64]) -> list[Window]:
    """Return consecutive windows of `size` inputs; each keeps only one token of the previous window.

    >>> rolling_windows(2, np.zeros(4))
    [Window(start=0, first=1, last=2, limited=False), Window(start=2, first=3, last=3, limited=False)]
    """
    end = len(before) - 1
    return [Window(start, start + 1, min(end, start + size), limited=False) for start in range(0, end, size)]


def _super(s: Side) -> bool:
    return len(s.tokenizer.superword_ids()) > 0


def _over(s: Side, bytes_per_token: float) -> float:
    """Bits per token divided by a constant that was not measured on these documents."""
    return s.per_token / LOG2 / bytes_per_token


def _found(store: Store, name: str, result: type[C]) -> Artifact[C]:
    artifact = store.find(name, result)
    if artifact is None:
        raise UserError(f"{store.root}/{name} does not exist; run the experiment again")
    return artifact


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
