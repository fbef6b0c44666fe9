"""Uncertainty of ratios of sums and of functions of them: intervals, p-values, required samples, pooled seeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

Floats = np.ndarray[Any, np.dtype[np.float64]]

# The skewness of a small sample is too small. 5 is the smallest whole factor with which intervals over 10 effective
# documents cover the truth at least 93 % of the time (`tests/lm/evaluate/test_significance.py`).
_SKEWNESS_FACTOR = 5
_SMALLEST_P = 1e-15
_POWER = 0.8
FEWEST_IN_STRATUM = 3
"""Fewest effective units of a kind of text that has a variance of its own."""


def effective_number(sizes: NDArray[Any]) -> Floats:
    """Number of units of equal size that give the same precision as units of these sizes, float[..., n_units].

    It is 1 / sum of squared shares (Kish, Survey Sampling, 1965, section 11.7).
    """
    shares = sizes / sizes.sum(-1, keepdims=True)
    return np.asarray(1 / (shares**2).sum(-1))


def reaches(effective: float | NDArray[np.float64], fewest: float) -> Any:
    """Whether there are at least `fewest` effective units; the slack is for rounding."""
    return effective >= fewest - 1e-6


def strata(kinds: NDArray[np.integer], sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Stratum of each unit, int64[n_units]: its kind, or another one if the kind has too few units for a variance.

    A kind with fewer than `FEWEST_IN_STRATUM` effective units joins the smallest other one. Residuals from the ratio of
    both are too large rather than too small.

    >>> strata(np.array([0, 0, 0, 1, 1, 1, 2]), np.array([5, 5, 5, 3, 3, 3, 4])).tolist()
    [0, 0, 0, 1, 1, 1, 1]

    Args:
        kinds: int[n_units], kind of each unit.
        sizes: float[n_units], denominator of each unit.
    """
    totals, squares = (dict(enumerate(np.bincount(kinds, power).tolist())) for power in (sizes, sizes**2))
    stratum = np.arange(len(totals))
    while len(totals) > 1:
        few = [k for k, total in totals.items() if not total or not reaches(total**2 / squares[k], FEWEST_IN_STRATUM)]
        if not few:
            break
        smallest = min(few, key=totals.__getitem__)
        other = min((k for k in totals if k != smallest), key=totals.__getitem__)
        stratum[stratum == smallest] = other
        totals[other] += totals.pop(smallest)
        squares[other] += squares.pop(smallest)
    of_unit: NDArray[np.int64] = stratum[kinds]
    return of_unit


class Needed(NamedTuple):
    """Sample that would show a given difference with 80 % probability.

    Attributes:
        clusters: Number of documents or sources like those measured.
        seeds: Number of seeds; None if it is unknown, because there was one seed.
    """

    clusters: int
    seeds: int | None


@dataclass(frozen=True)
class Ratio:
    """Sum of numerators over sum of denominators, averaged over training seeds, with its uncertainty.

    The seeds and the units (documents or sources) are samples: the interval is about other training runs and other
    text. With one seed it is about other text only. Kinds of text are not a sample: units vary within strata, whose
    shares of the denominators are fixed (Cochran, Sampling Techniques, 1977, section 5). All fields have the same
    leading dimensions, so that simulations compute many ratios at once; a single ratio has none.

    Attributes:
        by_seed: The ratio of each seed, float[..., n_seeds].
        effective_units: Effective number of units, by their denominators.
        seed_variance: Squared standard error from seeds; 0 with one seed.
        seed_degrees: Degrees of freedom of `seed_variance`.
        unit_variance: Squared standard error from units, without the noise of single runs on single units, which
            `seed_variance` includes.
        unit_degrees: Degrees of freedom of `unit_variance`: with a single stratum, `effective_units` - 1.
        correction: Factor on `unit_variance`, because residuals are from measured ratios: with a single stratum,
            n / (n - 1) for n effective units.
        size_covariance: Covariance of the residuals and the denominators, on the scale of `unit_variance`.
        skewness: Skewness of the residuals over the square root of the number of units.
        luck_variance: Squared standard error from the text that the tokenizers were trained on (`with_further`).
        luck_degrees: Degrees of freedom of `luck_variance`.
        settings_change: Largest change of the ratio over settings that are about as good as the chosen ones.
    """

    value: Floats
    by_seed: Floats
    n_units: int
    effective_units: Floats
    seed_variance: Floats
    seed_degrees: int
    unit_variance: Floats
    unit_degrees: Floats
    correction: Floats
    size_covariance: Floats
    skewness: Floats
    luck_variance: float = 0.0
    luck_degrees: int = 0
    settings_change: float = 0.0

    @classmethod
    def of(
        cls,
        numerators: NDArray[np.float64],
        denominators: NDArray[np.float64],
        strata: NDArray[np.integer] | None = None,
    ) -> Ratio:
        """Measure a ratio.

        Args:
            numerators: float[..., n_seeds, n_units].
            denominators: float[..., n_units].
            strata: int[..., n_units], stratum of each unit (`strata`); None for a single one.
        """
        total = denominators.sum(-1, keepdims=True)
        parts = numerators / total[..., None]
        return cls.of_residuals(parts.sum(-1), parts, denominators / total, strata)

    @classmethod
    def of_function(
        cls,
        function: Callable[[Floats], Floats],
        numerators: NDArray[np.float64],
        denominators: NDArray[np.float64],
        strata: NDArray[np.integer] | None = None,
    ) -> Ratio:
        """Measure a smooth function of several ratios with the same denominators, such as a slope.

        The residual of a unit is the change of the function when the unit is left out, times the share of the other
        units; of a single ratio, that is its residual (delete-one jackknife: Efron, The Jackknife, the Bootstrap and
        Other Resampling Plans, 1982, section 3). The other units of its stratum then stand for the whole stratum, so
        that the shares of the strata stay.

        Args:
            function: Maps the ratios, float[n_ratios, ...], to a number for each of the other dimensions.
            numerators: float[..., n_ratios, n_seeds, n_units].
            denominators: float[..., n_units].
            strata: As for `of`.
        """
        total = denominators.sum(-1, keepdims=True)
        shares = denominators / total
        parts = np.moveaxis(numerators / total[..., None, None], -3, 0)
        ratios = parts.sum(-1)
        by_seed = function(ratios)
        in_stratum = _sums(parts, _by_seed(strata))
        with np.errstate(all="ignore"):  # one unit has all of the denominators
            others = (1 - shares / _sums(shares, strata))[..., None, :]
            without = ratios[..., None] - in_stratum + (in_stratum - parts) / others
            residuals = (by_seed[..., None] - function(without)) * others
        return cls.of_residuals(by_seed, residuals, shares, strata)

    @classmethod
    def of_residuals(
        cls, by_seed: Floats, residuals: Floats, shares: Floats, strata: NDArray[np.integer] | None = None
    ) -> Ratio:
        """Combine the residuals of seeds and units.

        Args:
            by_seed: The ratio of each seed, float[..., n_seeds].
            residuals: Each unit's part of the deviation from it, float[..., n_seeds, n_units]; their mean in a stratum
                does not matter.
            shares: Each unit's share of the denominators, float[..., n_units].
            strata: As for `of`.
        """
        n_seeds = by_seed.shape[-1]
        weights = _sums(shares, strata)
        # Residuals are from the ratio of the stratum, so that they sum to 0 in it.
        residuals = residuals - _sums(residuals, _by_seed(strata)) * (shares / weights)[..., None, :]
        mean = residuals.mean(-2)
        variance = (mean**2).sum(-1)
        noise, seed_variance = np.zeros_like(variance), np.zeros_like(variance)
        if n_seeds > 1:
            noise = ((residuals - mean[..., None, :]) ** 2).sum((-2, -1)) / (n_seeds * (n_seeds - 1))
            seed_variance = by_seed.var(-1, ddof=1) / n_seeds
        nonzero = np.where(variance > 0, variance, 1.0)
        signal = np.clip(1 - noise / nonzero, 0, 1)
        with np.errstate(all="ignore"):  # one unit has all of the denominators
            n = 1 / _sums((shares / weights) ** 2, strata)
            # Without any deviation, the degrees of freedom are those of residuals in proportion to the sizes.
            squares = np.where(variance[..., None] > 0, mean**2, shares**2)
            corrected = squares * n / (n - 1)
            total = corrected.sum(-1)
            of_stratum = _sums(corrected, strata)
            correction = total / squares.sum(-1)
            # The part of a stratum in the total's deviation is proportional to its variance.
            pull = n / (n - 1) * of_stratum / (weights * total[..., None])
            return cls(
                value=by_seed.mean(-1),
                by_seed=by_seed,
                n_units=shares.shape[-1],
                effective_units=effective_number(shares),
                seed_variance=seed_variance,
                seed_degrees=n_seeds - 1,
                unit_variance=signal * variance,
                unit_degrees=total**2 / (corrected * of_stratum / (n - 1)).sum(-1),
                correction=correction,
                size_covariance=np.sqrt(signal) * (mean * shares * pull).sum(-1) / correction,
                skewness=(mean**3).sum(-1) / nonzero**1.5,
            )

    def with_pooled(self, variance: Floats, degrees: int) -> Ratio:
        """Use a pooled variance of seeds (`pooled_variance`), or the ratio's own variance where that is larger.

        The own one protects the family where an arm is noisier than the others.
        """
        return replace(self, seed_variance=np.maximum(self.seed_variance, variance), seed_degrees=degrees)

    def with_further(self, luck_variance: float, luck_degrees: int, settings_change: float) -> Ratio:
        """Add uncertainty that neither the seeds nor the units show, measured apart."""
        return replace(self, luck_variance=luck_variance, luck_degrees=luck_degrees, settings_change=settings_change)

    def interval(self, confidence: float | Floats) -> tuple[Floats, Floats]:
        """Interval of the ratio; not finite if one unit has all of the denominators."""
        below, above = self._reach(1 - np.asarray(confidence))
        return self.value - below, self.value + above

    def known_interval(self, confidence: float) -> tuple[float, float] | None:
        """Interval of a single ratio; None if one unit has all of the denominators."""
        low, high = (float(end) for end in self.interval(confidence))
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    def p_value(self) -> Floats:
        """Two-sided p-value against 0, at least 1e-15: one minus the confidence at which the interval reaches 0."""
        low, high = np.full(self.value.shape, np.log(_SMALLEST_P)), np.zeros(self.value.shape)
        for _ in range(40):
            middle = (low + high) / 2
            below, above = self._reach(np.exp(middle))
            inside = np.where(self.value > 0, below, above) >= np.abs(self.value)
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return np.asarray(np.exp(np.where(high == 0, high, low)))

    def needed(self, difference: float, confidence: float) -> Needed:
        """Number of units and seeds that would show a difference with 80 % probability, if the variances stay.

        The seeds are as few as possible (at least 3) with at most half of the permitted variance.
        """

        def factor(degrees: float) -> float:
            return float(_quantile(1 - confidence, degrees) + _quantile(2 * (1 - _POWER), degrees)) ** 2

        n_seeds = self.by_seed.shape[-1]
        room = difference**2
        seeds = None
        if n_seeds > 1:
            spread = n_seeds * float(self.seed_variance)
            lowest = max(3, math.ceil(factor(np.inf) * spread / (room / 2)))
            # Pooled over k pairs of arms, n seeds have k (n - 1) degrees of freedom.
            pairs = self.seed_degrees / (n_seeds - 1)
            seeds = next(n for n in itertools.count(lowest) if factor(pairs * (n - 1)) * spread / n <= room / 2)
            room -= factor(pairs * (seeds - 1)) * spread / seeds
        clusters = factor(np.inf) * self.n_units * float(self.unit_variance) / room
        return Needed(max(2, math.ceil(clusters)), seeds)

    def _reach(self, p: NDArray[np.float64]) -> tuple[Floats, Floats]:
        """Distances from the value to the two ends of the interval with the confidence 1 - p.

        The units' part has three steps (docs/certainty.md derives them):

        - a quantile of Student's t with `unit_degrees` degrees of freedom;
        - a longer end on the side of the longer tail (Johnson, Modified t tests and confidence intervals for
          asymmetrical populations, JASA 73, 1978, with a factor for the small sample);
        - the residuals are taken from the ratio that is tested, not from the measured one, so that a large unit cannot
          hide its own deviation (a score interval).

        Seeds have their own quantile of t, and the squares add up (Banerjee, Sankhya 22, 1960). Satterthwaite's single
        quantile is too small for two seeds. So has the luck of the tokenizers' text; the change over settings is no
        sample, and has none.
        """
        beside = np.zeros(np.shape(p)) + self.settings_change**2
        if self.seed_degrees:
            beside = beside + _quantile(p, self.seed_degrees) ** 2 * self.seed_variance
        if self.luck_degrees:
            beside = beside + _quantile(p, self.luck_degrees) ** 2 * self.luck_variance
        ends = []
        with np.errstate(all="ignore"):  # one unit has all of the denominators
            t = _quantile(p, self.unit_degrees)
            for sign in (-1, 1):
                tail = sign * self.skewness
                longer = t + np.where(tail > 0, tail * _SKEWNESS_FACTOR * (2 * t**2 + 1) / 6, 0.0)
                square = longer**2 * self.correction
                middle, variance = sign * self.size_covariance, self.unit_variance
                far = np.hypot(square * middle, np.sqrt(square * variance)) - square * middle
                # The same number without the cancellation of two large ones.
                near = variance / (np.hypot(middle, np.sqrt(variance / square)) + middle)
                units = np.where(middle > 0, near, far)
                ends.append(np.sqrt(units**2 + beside))
        return ends[0], ends[1]


def _sums(values: Floats, strata: NDArray[np.integer] | None) -> Floats:
    """Sum of values[..., n_units] over the stratum of each unit, float[..., n_units]."""
    if strata is None:
        return np.broadcast_to(values.sum(-1, keepdims=True), values.shape)
    sums = np.zeros(values.shape)
    for stratum in np.unique(strata):
        inside = strata == stratum
        sums = np.where(inside, np.where(inside, values, 0.0).sum(-1, keepdims=True), sums)
    return sums


def _by_seed(strata: NDArray[np.integer] | None) -> NDArray[np.integer] | None:
    """The strata with a dimension for seeds."""
    return None if strata is None else strata[..., None, :]


def t_quantile(confidence: float, degrees: float) -> float:
    """The t for which |T| < t has this probability; T follows Student's t.

    >>> round(t_quantile(0.95, 2), 3)
    4.303
    """
    return float(_quantile(1 - confidence, degrees))


def _quantile(p: float | NDArray[np.float64], degrees: float | NDArray[np.float64]) -> Any:
    """The t for which |T| > t has the probability p; T follows Student's t."""
    from scipy.special import stdtrit  # here because the import is slow, and most commands need no interval

    return -stdtrit(degrees, np.asarray(p) / 2)


def pooled_variance(by_seed: Floats) -> tuple[Floats, int]:
    """Squared standard error from seeds of a difference of two arms, pooled over all arms, and its degrees of freedom.

    Seeds are paired across arms, so that their common part cancels: the mean square of the residuals after the means of
    arms and of seeds has (A - 1) (S - 1) degrees of freedom. With two arms it is the variance of the pair alone.

    Args:
        by_seed: float[..., n_arms, n_seeds], a number for each arm and seed, such as its loss; differences from a
            reference give the same result, with zeros for the reference itself.
    """
    n_arms, n_seeds = by_seed.shape[-2:]
    residuals = by_seed - by_seed.mean(-1, keepdims=True)
    residuals = residuals - residuals.mean(-2, keepdims=True)
    degrees = (n_arms - 1) * (n_seeds - 1)
    return 2 * (residuals**2).sum((-2, -1)) / degrees / n_seeds, degrees


def pool(pairs: Mapping[tuple[int, int], Ratio], members: Sequence[bool]) -> dict[tuple[int, int], Ratio]:
    """Pool the seeds' variance of the pairs of arms whose seeds vary by the same amount.

    A noisy reference is in all pairs with it, and counts little in the pooled variance. So these pairs have at least
    the mean of their own variances.

    Args:
        pairs: Differences in one unit by (index of A, index of B); those with the reference, arm 0, are among them.
        members: For each arm, whether it takes part. Without the reference and two others, nothing is pooled.
    """
    chosen = [i for i, member in enumerate(members) if member]
    if len(chosen) < 3 or chosen[0] or not pairs[0, chosen[1]].seed_degrees:
        return dict(pairs)
    rows = [pairs[0, i].by_seed for i in chosen[1:]]
    pooled, degrees = pooled_variance(np.stack([np.zeros_like(rows[0]), *rows], -2))
    mean = np.mean([pairs[0, i].seed_variance for i in chosen[1:]], axis=0)
    of_reference = np.maximum(pooled, mean)
    found = dict(pairs)
    for (i, j), ratio in pairs.items():
        if members[i] and members[j]:
            found[i, j] = ratio.with_pooled(pooled if i else of_reference, degrees)
    return found


def family_level(confidence: float, n: int) -> float:
    """Confidence of each of `n` intervals for this confidence of all together, by Bonferroni.

    >>> round(family_level(0.95, 3), 4)
    0.9833
    """
    return 1 - (1 - confidence) / max(1, n)
