"""Learning-rate schedules: linear warm-up, a constant rate, and a decay to zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

DECAYS = ("linear", "sqrt", "cosine")
"""Shapes of the decay. `linear` and `sqrt` (1 - sqrt(x), Hägele et al. 2024, arXiv 2405.18392) follow a constant rate;
`cosine` decays from the end of the warm-up (Loshchilov and Hutter 2017, arXiv 1608.03983)."""


@dataclass(frozen=True)
class Schedule:
    """Factor on the peak learning rates at every step of a run.

    Attributes:
        warmup: Steps over which the factor rises from 0 to 1.
        decay: Steps at the end over which it falls to 0; `cosine` falls over all steps after the warm-up.
        shape: Shape of the decay, one of `DECAYS`.

    >>> schedule = Schedule(steps=100, warmup=10, decay=50, shape="linear")
    >>> [schedule.factor(step) for step in (4.5, 29.5, 74.5)]
    [0.5, 1.0, 0.5]
    """

    steps: int
    warmup: float
    decay: float
    shape: str

    def factor(self, step: float) -> float:
        """Factor for step number `step`, counted from 0, at the middle of the step."""
        position = step + 0.5
        if position < self.warmup:
            return position / self.warmup
        decay = self.steps - self.warmup if self.shape == "cosine" else self.decay
        left = self.steps - position
        if left >= decay:
            return 1.0
        share = max(0.0, left / decay)
        if self.shape == "linear":
            return share
        if self.shape == "sqrt":
            return 1 - math.sqrt(1 - share)
        return (1 - math.cos(math.pi * share)) / 2

    @property
    def constant_steps(self) -> int:
        """Number of steps at the beginning, warm-up included, that do not depend on the length of the run."""
        if self.shape == "cosine":
            return 0
        return max(0, math.floor(self.steps - self.decay - 0.5) + 1)
