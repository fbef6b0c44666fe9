"""Differences of arms to the reference over training compute: gaps with intervals, their slope, and crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.evaluate.comparison import DETECTABLE, enough, percent_change, reason_withheld
from lm.evaluate.significance import Needed, Ratio, family_level, pool, t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lm.scaling.points import HeldOut, Points

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
        return 0 if self.interval is None else _sign(self.interval)


class Crossing(NamedTuple):
    """A budget between measured ones at which the sign of the gap changes.

    Attributes:
        flops: Where the line between the measured gaps is 0.
        low: The nearest smaller budget at which the interval excludes 0; None if there is none.
        high: The nearest larger budget at which the interval excludes 0; None if there is none.
    """

    flops: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Gap:
    """Difference of an arm to the reference, in percent of the reference's bits per byte; negative is better.

    Attributes:
        arm: Name of the arm.
        reference: Name of the reference.
        flops: Training FLOPs of the budgets (the reference's `Points.flops`).
        percent: Gap at each budget, mean over the seeds.
        intervals: Interval of each; None if one document has all of the text.
        signs: For each budget, 1 (worse) or -1 (better) if that is shown, otherwise 0; see `compare_arms`.
        confidence: Confidence level of all signs of all arms together, and of the slope.
        level: Confidence level of each interval: corrected for the number of arms, not for the number of budgets.
        n_seeds: Number of seeds.
        n_clusters: Number of documents or sources.
        effective_clusters: Number of units of equal size that would give the same precision.
        cluster: Unit of sampling: "document" or "source".
        withheld: Why the verdict about the tokenizers is withheld; empty if it is not.
        barred: Whether it is withheld because one of the arms takes part in no verdict.
        slope: Slope over the budgets; None with a single one.
        crossings: Changes of sign between budgets.
        needed: Sample that would show the gap at the largest budget, or 0.5 % if that is larger; None without an
            interval.
        pooled: Names of the arms over which the variance of seeds is pooled at every budget; empty if it is not.
    """

    arm: str
    reference: str
    flops: tuple[float, ...]
    percent: tuple[float, ...]
    intervals: tuple[Interval, ...] | None
    signs: tuple[int, ...]
    confidence: float
    level: float
    n_seeds: int
    n_clusters: int
    effective_clusters: float
    cluster: str
    withheld: str
    barred: bool
    slope: Slope | None
    crossings: tuple[Crossing, ...]
    needed: Needed | None
    pooled: tuple[str, ...] = ()

    @property
    def too_few(self) -> bool:
        """Whether there is too little held-out text for any conclusion."""
        return not enough(self.effective_clusters, self.cluster)

    @property
    def decided(self) -> bool:
        """Whether a difference at the largest budget is shown."""
        return bool(self.signs[-1])


@dataclass(frozen=True, eq=False)
class Pair:
    """Losses of the reference and an arm, for estimates in percent of the reference.

    Attributes:
        bits: float64[2, n_budgets, n_seeds, n_units], of the reference and the arm, scaled by `HeldOut.scales`.
        sizes: float64[n_units], scaled bytes of the units that have any.
        flops: Training FLOPs of the budgets.
    """

    bits: Floats
    sizes: Floats
    flops: Floats

    @classmethod
    def of(cls, reference: Points, arm: Points, heldout: HeldOut) -> Pair:
        """Pair two arms by seeds and documents."""
        scale = heldout.scales()
        sizes = heldout.document_bytes * scale
        with_text = sizes > 0
        bits = np.stack([each.nats for each in (reference, arm)]) * scale / math.log(2)
        return cls(bits.swapaxes(1, 2)[..., with_text], sizes[with_text], np.asarray(reference.flops, np.float64))

    def estimate(self, function: Function) -> Ratio:
        """Measure a function of the bits per byte of the reference and of the arm, float[n_budgets, ...] each."""
        n = len(self.flops)
        numerators = self.bits.reshape(2 * n, *self.bits.shape[2:])
        return Ratio.of_function(lambda ratios: function(ratios[:n], ratios[n:]), numerators, self.sizes)


def compare_arms(arms: Sequence[Points], heldout: HeldOut, *, confidence: float = 0.95) -> list[Gap]:
    """Compare all arms with the first one at every budget.

    The budgets are tested from the largest down, until one whose interval includes 0. Because the order is fixed
    beforehand, no correction for the number of budgets is needed (Westfall and Krishen, Journal of Statistical Planning
    and Inference 99, 2001). For the number of arms, the level is corrected by Bonferroni. Arms that take part in no
    verdict are measured, have no sign, and are not corrected for. The variance of seeds is pooled over arms
    (`significance.pool`), never over budgets, because these share trunks.

    Args:
        arms: The arms, see `check_comparable`; the first is the reference.
        heldout: The held-out documents.
        confidence: Confidence level.
    """
    reference, *others = arms
    pairs = [Pair.of(reference, arm, heldout) for arm in others]
    level = family_level(confidence, sum(not arm.barred for arm in others))
    functions: list[Function] = [
        lambda a, b, i=i: percent_change(a[i], b[i])  # type: ignore[misc]
        for i in range(len(reference.flops))
    ]
    if len(reference.flops) > 1:
        functions.append(lambda a, b: np.tensordot(_slope_weights(reference.flops), percent_change(a, b), 1))
    estimates = [estimate_all(arms, pairs, [function] * len(pairs)) for function in functions]
    return [
        _gap(reference, arm, heldout, [each[i] for each in estimates], confidence, level, pooled_names(arms))
        for i, arm in enumerate(others)
    ]


def estimate_all(arms: Sequence[Points], pairs: Sequence[Pair], functions: Sequence[Function]) -> list[Ratio]:
    """Measure a function of each pair, with the variance of seeds pooled over the arms that may be pooled.

    Args:
        arms: The arms; the first is the reference.
        pairs: The pairs of the reference and the other arms.
        functions: For each pair, the function.
    """
    found = {
        (0, i): pair.estimate(function) for i, (pair, function) in enumerate(zip(pairs, functions, strict=True), 1)
    }
    return list(pool(found, [bool(arm.pooled and not arm.barred) for arm in arms]).values())


def pooled_names(arms: Sequence[Points]) -> tuple[str, ...]:
    """Names of the arms over which the variance of seeds is pooled; empty if it is not."""
    names = tuple(arm.name for arm in arms if arm.pooled and not arm.barred)
    return names if len(names) > 2 and arms[0].name in names and len(arms[0].seeds) > 1 else ()


def _gap(
    reference: Points,
    arm: Points,
    heldout: HeldOut,
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
    percent = tuple(float(each.value) for each in at_budgets)
    found = [each.known_interval(level) for each in at_budgets]
    intervals = tuple(each for each in found if each is not None)
    effective, n_seeds = float(last.effective_units), len(arm.seeds)
    decides = not barred and len(intervals) == n and enough(effective, heldout.cluster)
    signs = _shown(intervals) if decides else (0,) * n
    return Gap(
        arm=arm.name,
        reference=reference.name,
        flops=tuple(map(float, reference.flops)),
        percent=percent,
        intervals=intervals if len(intervals) == n else None,
        signs=signs,
        confidence=confidence,
        level=level,
        n_seeds=n_seeds,
        n_clusters=last.n_units,
        effective_clusters=effective,
        cluster=heldout.cluster,
        withheld=barred or reason_withheld(effective, heldout.cluster, n_seeds),
        barred=bool(barred),
        slope=_slope(estimates[n], reference.flops, percent, confidence) if n > 1 else None,
        crossings=_crossings(np.asarray(reference.flops), percent, intervals if decides else ()),
        needed=last.needed(max(100 * DETECTABLE, abs(percent[-1])), level) if len(intervals) == n else None,
        pooled=pooled if arm.name in pooled else (),
    )


def _sign(interval: Interval) -> int:
    return int(interval[0] > 0) - int(interval[1] < 0)


def _shown(intervals: Sequence[Interval]) -> tuple[int, ...]:
    """Signs of the budgets from the largest down to the first interval that includes 0."""
    signs = [0] * len(intervals)
    for i in reversed(range(len(intervals))):
        signs[i] = _sign(intervals[i])
        if not signs[i]:
            break
    return tuple(signs)


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
    x = np.log(flops)
    residuals = np.asarray(percent) - np.mean(percent) - points * (x - x.mean())
    error = math.sqrt(float((residuals**2).sum() / (n - 2) / ((x - x.mean()) ** 2).sum()))
    half = t_quantile(confidence, n - 2) * error
    return Slope(points, (points - half, points + half), scatter=True)


def _crossings(flops: Floats, percent: Sequence[float], intervals: Sequence[Interval]) -> tuple[Crossing, ...]:
    """Changes of sign between neighbours, linear in ln FLOPs in between; gaps of exactly 0 are skipped."""
    signs = [_sign(interval) for interval in intervals] or [0] * len(flops)
    crossings = []
    for i, j in itertools.pairwise([i for i, value in enumerate(percent) if value]):
        if percent[i] * percent[j] > 0:
            continue
        share = percent[i] / (percent[i] - percent[j])
        where = math.exp((1 - share) * math.log(flops[i]) + share * math.log(flops[j]))
        low = next((float(flops[k]) for k in range(i, -1, -1) if signs[k]), None)
        high = next((float(flops[k]) for k in range(j, len(signs)) if signs[k]), None)
        crossings.append(Crossing(where, low, high))
    return tuple(crossings)
