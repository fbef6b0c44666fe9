"""The models of an experiment: arms × sizes × seeds × budgets, listed once, before anything is computed.

Training, tuning, placement on a cluster, scoring, comparison and the pages iterate over this list, and find each
other's results by the run itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, product
from typing import TYPE_CHECKING

from experiments.numbers import si

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from experiments.config import BudgetConfig


@dataclass(frozen=True, order=True)
class Run:
    """One model to train and score.

    Attributes:
        arm: Name of the arm whose tokenizer it uses.
        size: Number of layers.
        seed: Seed of its weights and of the order of the text.
        budget: Training budget.
        unit: Unit of the budget, `bytes` of text or `flops` (`BudgetConfig.unit`).
    """

    arm: str
    size: int
    seed: int
    budget: int
    unit: str = "bytes"

    def __str__(self) -> str:
        """Name of the run in the terminal, in metrics and on pages."""
        layers = "1 layer" if self.size == 1 else f"{self.size} layers"
        unit = "B" if self.unit == "bytes" else " FLOPs"
        return f"{self.arm} ({layers}, seed {self.seed}, budget {si(self.budget)}{unit})"


def list_runs(arms: Iterable[str], sizes: Iterable[int], seeds: Iterable[int], budget: BudgetConfig) -> list[Run]:
    """Return all runs of an experiment in the order in which they are trained.

    The seeds of a size follow each other, so that all arms can be compared long before the last seed is trained. The
    budgets of an arm and a seed follow each other, smallest first, because they may share a trunk (`chains`).

    >>> from experiments.config import BudgetConfig
    >>> [str(run) for run in list_runs(["bpe", "superbpe"], [4], [0], BudgetConfig())]
    ['bpe (4 layers, seed 0, budget 12MB)', 'superbpe (4 layers, seed 0, budget 12MB)']
    """
    return [
        Run(arm, size, seed, amount, budget.unit)
        for size, seed, arm, amount in product(sorted(sizes), seeds, list(arms), budget.rungs())
    ]


def chains(runs: Sequence[Run]) -> list[list[Run]]:
    """Group consecutive runs that differ only in their budget."""
    return [list(chain) for _, chain in groupby(runs, key=lambda run: (run.arm, run.size, run.seed))]
