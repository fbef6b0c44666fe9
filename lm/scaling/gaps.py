"""Differences of arms to the reference over training compute: gaps with intervals, their slope, and crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.evaluate.comparison import DETECTABLE, enough, reason_withheld
from lm.evaluate.significance import Needed, Ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.scaling.points import HeldOut, Points

    Floats = NDArray[np.float64]

Interval = tuple[float, float]


class Slope(NamedTuple):
    """Slope of the gap in percent over ln FLOPs, by least squares.

    Attributes:
        points: Points of percent per e-fold (factor of 2.718) of FLOPs.
        interval: Its interval, not corrected for the number of arms; None if one document has all of the text.
    """

    points: float
    interval: Interval | None

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
        flops: Training FLOPs of the budgets (the reference's).
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

    def estimate(self, function: Callable[[Floats, Floats], Floats]) -> Ratio:
        """Measure a function of the bits per byte of the reference and of the arm, float[n_budgets, ...] each."""
        n = len(self.flops)
        numerators = self.bits.reshape(2 * n, *self.bits.shape[2:])
        return Ratio.of_function(lambda ratios: function(ratios[:n], ratios[n:]), numerators, self.sizes)


def compare_arms(arms: Sequence[Points], heldout: HeldOut, *, confidence: float = 0.95) -> list[Gap]:
    """Compare all arms with the first one at every budget.

    The budgets are tested from the largest down, until one whose interval includes 0. Because the order is fixed
    beforehand, no correction for the number of budgets is needed (Westfall and Krishen, Journal of Statistical Planning
    and Inference 99, 2001). For the number of arms, the level is corrected by Bonferroni. Arms that take part in no
    verdict are measured, have no sign, and are not corrected for.

    Args:
        arms: The arms, see `check_comparable`; the first is the reference.
        heldout: The held-out documents.
        confidence: Confidence level.
    """
    reference, *others = arms
    family = sum(not arm.barred for arm in others)
    level = 1 - (1 - confidence) / max(1, family)
    return [_gap(reference, arm, heldout, confidence, confidence if arm.barred else level) for arm in others]


def _gap(reference: Points, arm: Points, heldout: HeldOut, confidence: float, level: float) -> Gap:
    pair, n = Pair.of(reference, arm, heldout), len(reference.flops)
    at_budgets = [pair.estimate(lambda a, b, i=i: 100 * (b[i] / a[i] - 1)) for i in range(n)]  # type: ignore[misc]
    percent = tuple(float(each.value) for each in at_budgets)
    found = [each.known_interval(level) for each in at_budgets]
    intervals = tuple(each for each in found if each is not None)
    barred, last = reference.barred or arm.barred, at_budgets[-1]
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
        slope=_slope(pair, confidence) if n > 1 else None,
        crossings=_crossings(pair.flops, percent, intervals if decides else ()),
        needed=last.needed(max(100 * DETECTABLE, abs(percent[-1])), level) if len(intervals) == n else None,
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


def _slope(pair: Pair, confidence: float) -> Slope:
    x = np.log(pair.flops)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slope = pair.estimate(lambda a, b: np.tensordot(weights, 100 * (b / a - 1), 1))
    return Slope(float(slope.value), slope.known_interval(confidence))


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
