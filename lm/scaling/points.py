"""Measurements at several budgets of training compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Measurements of one arm.

    Attributes:
        vocab_size: Rows of the head that the arm would be deployed with.
        flops: Training FLOPs of each budget, rising: those that were equal in training, of the measured models or at
            the configured deployment.
        seeds: Seeds of the models. The models of one seed share a trunk, so they are not independent.
        unit_tokens: int64[n_units], text tokens of each unit of sampling.
        nats: float64[n_seeds, n_budgets, n_units], loss of the text tokens of each.
        barred: Why the arm is left out of verdicts (`lm.evaluate.comparison.eligible`); empty if it is not.
        pooled: Whether its variance between seeds may be pooled with other such arms.
        read: Tokens and bytes of text that the models of each budget read; None for arms that were measured elsewhere,
            whose `flops` hold for any deployment.
        proxy_flops: Training FLOPs of the measured models at each budget; None if they are unknown.
        superwords: Whether its tokenizer has superwords, or may have.
    """

    name: str
    vocab_size: int
    flops: Sequence[float]
    seeds: Sequence[int]
    unit_tokens: NDArray[np.int64]
    nats: NDArray[np.float64]
    barred: str = ""
    pooled: bool = False
    read: Sequence[tuple[float, float]] | None = None
    proxy_flops: Sequence[float] | None = None
    superwords: bool = True

    @property
    def spent(self) -> Sequence[float]:
        """Training FLOPs that were spent on the measured models at each budget; `flops` if they are unknown."""
        return self.flops if self.proxy_flops is None else self.proxy_flops
