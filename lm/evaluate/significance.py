"""How sure a difference is: Student's t without SciPy, components of variance, Holm's correction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def t_two_sided(t: float, degrees: float) -> float:
    """Probability that Student's t with so many degrees of freedom (1 or more) is at least |t| away from 0.

    With t = sqrt(degrees) tan(angle), the density is cos(angle) ** (degrees - 1) up to a constant.

    >>> round(t_two_sided(1.0, 1.0), 12)
    0.5
    """
    angle = math.atan(abs(t) / math.sqrt(degrees))
    # The density falls off on the scale of 1 / sqrt(degrees): beyond 12 such lengths nothing is left.
    inside = min(angle, 12.0 / math.sqrt(degrees))
    at = (_NODES + 1) * inside / 2
    area = float(_WEIGHTS @ np.cos(at) ** (degrees - 1)) * inside / 2
    return min(1.0, max(0.0, 1 - 2 * _t_constant(degrees) * math.sqrt(degrees) * area))


def t_quantile(confidence: float, degrees: float) -> float:
    """The t that |T| stays below with this probability, by Newton's method, which approaches it from below.

    >>> round(t_quantile(0.95, 2), 3)
    4.303
    """
    t = 0.0
    for _ in range(200):
        density = _t_constant(degrees) * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = (t_two_sided(t, degrees) - (1 - confidence)) / (2 * density)
        t += step
        if step <= 1e-12 * t:
            break
    return t


def _t_constant(degrees: float) -> float:
    """The density at 0."""
    return math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi * degrees)


class Component(NamedTuple):
    """One source of uncertainty of a mean: its squared standard error, and the degrees of freedom behind it."""

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

    Each component brings its own quantile of Student's t: half the width is sqrt(sum of t² variance). (Banerjee,
    Approximate confidence interval for linear functions of means of k populations, Sankhya 22, 1960.) With
    Satterthwaite's single quantile instead, two seeds' 95 % intervals hold the truth 89 % of the time where seeds make
    most of the variance: a variance that two runs happen to hide is not noticed.
    """

    def half(level: float) -> float:
        return math.sqrt(sum(t_quantile(level, part.degrees) ** 2 * part.variance for part in components))

    if not any(component.variance for component in components):
        return Estimate((difference, difference), 0.0 if difference else 1.0)
    low, high = 0.0, 1.0  # confidences between which the interval reaches 0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if half(middle) < abs(difference) else (low, middle)
    width = half(confidence)
    return Estimate((difference - width, difference + width), 1 - low)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of several comparisons: below alpha, all of them hold at once with probability 1 - alpha.

    (Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.)

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
