"""Differences of arms to the reference over training compute: gaps with intervals, and their slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.bits import bits
from lm.evaluate.comparison import (
    DETECTABLE,
    NOTHING_FURTHER,
    Decision,
    Difference,
    Further,
    enough,
    percent_difference,
)
from lm.evaluate.significance import Ratio, family_level, pool, t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import SamplingUnits
    from lm.scaling.points import Points

    Floats = NDArray[np.float64]
    Function = Callable[[Floats, Floats], Floats]
    """Maps the bits per byte of the reference and of an arm, float[n_budgets, ...] each, to numbers."""

Interval = tuple[float, float]


class Slope(NamedTuple):
    """Slope of the gap in percent over ln FLOPs, by least squares.

    Attributes:
        points: Points of percent per e-fold (factor of 2.718) of FLOPs.
        interval: Its interval, not corrected for the number of arms; None if it is unknown.
        scatter: Whether the interval is from the scatter of independent budgets around the line, because there is
            neither a second seed nor a second document or source.
    """

    points: float
    interval: Interval | None
    scatter: bool = False

    @property
    def direction(self) -> int:
        """1 or -1 if the interval is above or below 0, otherwise 0."""
        return 0 if self.interval is None else int(self.interval[0] > 0) - int(self.interval[1] < 0)


@dataclass(frozen=True, kw_only=True)
class Gap(Difference):
    """Difference of an arm to the reference, in percent of the reference's bits per byte; negative is better.

    Attributes:
        flops: Training FLOPs of the budgets (the reference's `Points.flops`).
        spent: Training FLOPs that were spent on the reference's models (`Points.spent`).
        percent: Gap at each budget, mean over the seeds.
        intervals: Interval of each; None with too few documents (or sources).
        decisions: For each budget, whether the models are shown to be better or worse; see `compare_arms`.
        slope: Slope over the budgets, at the level `confidence`; None with a single one.
    """

    arm: str
    reference: str
    flops: tuple[float, ...]
    spent: tuple[float, ...]
    percent: tuple[float, ...]
    intervals: tuple[Interval, ...] | None
    decisions: tuple[Decision, ...]
    slope: Slope | None

    @property
    def decided(self) -> bool:
        """Whether a difference at the largest budget is shown."""
        return self.decisions[-1] is not Decision.UNDECIDED


@dataclass(frozen=True, eq=False)
class Losses:
    """Losses of all arms, for estimates in percent of the first one.

    Attributes:
        bits: float64[n_arms, n_budgets, n_seeds, n_units], scaled by `SamplingUnits.scale`.
        sizes: float64[n_units], scaled bytes of the units that have any.
        pooled: For each arm, whether the variance of its seeds is pooled with the others'.
        strata: int64[n_units], as for `Ratio.of`.
    """

    bits: Floats
    sizes: Floats
    pooled: Sequence[bool]
    strata: NDArray[np.int64]

    @classmethod
    def of(cls, arms: Sequence[Points], units: SamplingUnits) -> Losses:
        """Pair the arms by seeds and units."""
        sizes = units.sizes * units.scale
        losses = np.stack([bits(arm.nats) for arm in arms]) * units.scale
        pooled = [arm.pooled and not arm.barred for arm in arms]
        return cls(losses.swapaxes(1, 2)[..., sizes > 0], sizes[sizes > 0], pooled, units.strata[sizes > 0])

    def estimate(self, functions: Mapping[int, Function]) -> dict[int, Ratio]:
        """Measure a function of the bits per byte of the reference and of an arm, by the index of the arm."""
        n = self.bits.shape[1]
        measured = {
            (0, i): Ratio.of_function(
                lambda ratios, function=function: function(ratios[:n], ratios[n:]),  # type: ignore[misc]
                np.concatenate([self.bits[0], self.bits[i]]),
                self.sizes,
                self.strata,
            )
            for i, function in functions.items()
        }
        members = [pooled and (i == 0 or i in functions) for i, pooled in enumerate(self.pooled)]
        return {i: ratio for (_, i), ratio in pool(measured, members).items()}


def compare_arms(
    arms: Sequence[Points],
    losses: Losses,
    cluster: str,
    *,
    confidence: float = 0.95,
    further: Further = NOTHING_FURTHER,
) -> list[Gap]:
    """Compare all arms with the first one at every budget.

    The budgets are tested from the largest down, until one whose interval includes 0. Because the order is fixed
    beforehand, no correction for the number of budgets is needed (Westfall and Krishen, Journal of Statistical Planning
    and Inference 99, 2001). For the number of arms, the level is corrected by Bonferroni. Arms that take part in no
    verdict are measured, decide nothing, and are not corrected for. The variance of seeds is pooled over arms
    (`significance.pool`), never over budgets, because these share trunks.

    Args:
        arms: The arms, the first is the reference.
        losses: Their losses.
        cluster: Unit of sampling: "document" or "source".
        confidence: Confidence level.
        further: Uncertainty beyond seeds and text, of the gaps at every budget.
    """
    reference, *others = arms
    level = family_level(confidence, sum(not arm.barred for arm in others))
    functions: list[Function] = [
        lambda a, b, i=i: percent_difference(a[i], b[i])  # type: ignore[misc]
        for i in range(len(reference.flops))
    ]
    if len(reference.flops) > 1:
        functions.append(lambda a, b: np.tensordot(_slope_weights(reference.flops), percent_difference(a, b), 1))
    estimates = [losses.estimate(dict.fromkeys(range(1, len(arms)), function)) for function in functions]
    for at_budget in estimates[: len(reference.flops)]:
        at_budget.update({i: further.widen((0, i), ratio) for i, ratio in at_budget.items()})
    names = tuple(arm.name for arm, pooled in zip(arms, losses.pooled, strict=True) if pooled)
    return [
        _gap(reference, arm, cluster, [at_budget[i] for at_budget in estimates], confidence, level, names)
        for i, arm in enumerate(others, 1)
    ]


def _gap(
    reference: Points,
    arm: Points,
    cluster: str,
    estimates: Sequence[Ratio],
    confidence: float,
    level: float,
    pooled: tuple[str, ...],
) -> Gap:
    """Describe a gap; the estimates are those at every budget, and of the slope if there are several."""
    n = len(reference.flops)
    at_budgets, last = estimates[:n], estimates[n - 1]
    barred = reference.barred or arm.barred
    level = confidence if barred else level
    percent = tuple(float(ratio.value) for ratio in at_budgets)
    intervals = tuple(filter(None, (ratio.known_interval(level) for ratio in at_budgets)))
    if len(intervals) < n or not enough(last.effective_units, cluster):
        intervals = ()
    return Gap(
        arm=arm.name,
        reference=reference.name,
        flops=tuple(map(float, reference.flops)),
        spent=tuple(map(float, reference.spent)),
        percent=percent,
        intervals=intervals or None,
        decisions=_shown(() if barred else intervals) or (Decision.UNDECIDED,) * n,
        confidence=confidence,
        level=level,
        n_seeds=len(arm.seeds),
        n_clusters=last.n_units,
        effective_clusters=float(last.effective_units),
        cluster=cluster,
        barred=barred,
        slope=_slope(estimates[n], reference.flops, percent, confidence) if n > 1 else None,
        needed=last.needed(max(100 * DETECTABLE, abs(percent[-1])), level) if intervals else None,
        pooled=pooled if arm.name in pooled and last.seed_degrees >= len(arm.seeds) else (),
    )


def _shown(intervals: Sequence[Interval]) -> tuple[Decision, ...]:
    """Decisions at the budgets, from the largest down to the first interval that includes 0."""
    decisions = [Decision.of(interval) for interval in intervals]
    undecided = [i for i, decision in enumerate(decisions) if decision is Decision.UNDECIDED]
    n = undecided[-1] + 1 if undecided else 0
    return (Decision.UNDECIDED,) * n + tuple(decisions[n:])


def _slope_weights(flops: Sequence[float]) -> Floats:
    """Weights of the budgets' values in the slope of least squares over ln FLOPs."""
    x = np.log(flops)
    weights: Floats = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return weights


def _slope(slope: Ratio, flops: Sequence[float], percent: Sequence[float], confidence: float) -> Slope:
    points, interval = float(slope.value), slope.known_interval(confidence)
    n = len(flops)
    if interval is not None or slope.by_seed.shape[-1] > 1 or slope.n_units > 1 or n < 3:
        return Slope(points, interval)
    _, covariance = np.polyfit(np.log(flops), percent, 1, cov=True)
    half = t_quantile(confidence, n - 2) * math.sqrt(covariance[0, 0])
    return Slope(points, (points - half, points + half), scatter=True)
