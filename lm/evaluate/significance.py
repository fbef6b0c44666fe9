"""Significance of a difference: components of variance, intervals and p-values, Holm's correction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def t_quantile(confidence: float, degrees: float) -> float:
    """The t for which |T| < t has this probability; T follows Student's t with `degrees` degrees of freedom.

    >>> round(t_quantile(0.95, 2), 3)
    4.303
    """
    from scipy.special import stdtrit  # here because the import is slow, and most commands need no interval

    return float(stdtrit(degrees, (1 + confidence) / 2))


class Component(NamedTuple):
    """One source of uncertainty of a mean: its squared standard error and its degrees of freedom."""

    variance: float
    degrees: float


class Estimate(NamedTuple):
    """A difference with its interval and its two-sided p-value against 0."""

    interval: tuple[float, float]
    p_value: float


def seed_component(values: Sequence[float]) -> Component:
    """Between runs: sample variance of one value per seed, over the number of seeds (at least 2)."""
    n = len(values)
    return Component(float(np.var(values, ddof=1)) / n, n - 1)


def ratio_component(numerators: NDArray[np.float64], denominators: NDArray[np.float64]) -> Component:
    """Between clusters: the linearized variance of sum(numerators) / sum(denominators), with clusters drawn.

    (Cochran, Sampling Techniques, 3rd ed., section 6.4, without the correction for a finite population.)

    Args:
        numerators: float[n_clusters], at least 2 of them.
        denominators: float[n_clusters].
    """
    n, total = len(numerators), float(denominators.sum())
    residuals = numerators - numerators.sum() / total * denominators
    return Component(n / (n - 1) * float(residuals @ residuals) / total**2, n - 1)


def estimate(difference: float, components: Sequence[Component], confidence: float) -> Estimate:
    """Interval and p-value of a difference whose variance is the sum of independent components.

    Each component has its own quantile of Student's t: half the width is sqrt(sum of t² variance). (Banerjee,
    Approximate confidence interval for linear functions of means of k populations, Sankhya 22, 1960.) With
    Satterthwaite's single quantile, 95 % intervals from two seeds cover the truth only 89 % of the time if seeds make
    up most of the variance, because two runs often agree by chance.
    """

    def half(level: float) -> float:
        return math.sqrt(sum(t_quantile(level, part.degrees) ** 2 * part.variance for part in components))

    if not any(component.variance for component in components):
        return Estimate((difference, difference), 0.0 if difference else 1.0)
    low, high = 0.0, 1.0  # bounds of the confidence at which the interval reaches 0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if half(middle) < abs(difference) else (low, middle)
    width = half(confidence)
    return Estimate((difference - width, difference + width), 1 - low)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that the family-wise error rate of those below alpha is at most alpha.

    (Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.)

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
