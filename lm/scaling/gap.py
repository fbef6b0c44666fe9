"""Differences of arms to the reference over compute: gaps with intervals, trends and crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm.evaluate.comparison import enough, reason_withheld
from lm.scaling.estimates import Arm, Band, Estimates, Intervals, band_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Trend:
    """Regression of the gap in percent on ln FLOPs.

    Attributes:
        slope: Points of percent per e-fold (factor of 2.718) of FLOPs.
        interval: Interval of the slope at `confidence`; None if there is nothing to compute it from.
        confidence: Confidence level, not corrected for the number of arms.
    """

    slope: float
    interval: tuple[float, float] | None
    confidence: float

    @property
    def direction(self) -> int:
        """1 or -1 if the interval is above or below 0, otherwise 0."""
        return 0 if self.interval is None else _sign(self.interval)


@dataclass(frozen=True)
class Crossing:
    """A budget inside the measured range at which the sign of the gap changes.

    Attributes:
        flops: Where the curve of the gap is 0.
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
        flops: Training FLOPs of the rungs (the reference's).
        percent: Gap at each rung.
        intervals: Interval of each; None if there is nothing to compute it from.
        signs: For each rung, 1 (worse) or -1 (better) if that is shown, otherwise 0; see `compare_arms`.
        confidence: Confidence level of all signs of all arms together.
        level: Confidence level of each interval: corrected for the number of arms, not for the number of rungs.
        n_seeds: Number of seeds.
        n_documents: Number of documents or sources; 0 if they are not known.
        effective_units: Number of units of equal size; None if the documents are not known.
        withheld: Reason why the verdict about the tokenizers is withheld; empty if it is not or the documents are not
            known.
        trend: Trend over the rungs; None with a single one.
        band: The gap in percent over the range that both arms cover; None with a single rung.
        crossings: Changes of sign along the curve.
        cluster: Unit of sampling: "document" or "source".
    """

    arm: str
    reference: str
    flops: tuple[float, ...]
    percent: tuple[float, ...]
    intervals: Intervals | None
    signs: tuple[int, ...]
    confidence: float
    level: float
    n_seeds: int
    n_documents: int
    effective_units: float | None
    withheld: str
    trend: Trend | None
    band: Band | None
    crossings: tuple[Crossing, ...]
    cluster: str = "document"

    @property
    def too_few(self) -> bool:
        """Whether there is too little held-out text for any conclusion."""
        return _too_few(self.effective_units, self.cluster)


def compare_arms(reference: Arm, others: Sequence[Arm], *, confidence: float = 0.95) -> list[Gap]:
    """Compare arms with the reference at every budget.

    The rungs are tested from the largest budget down, until one whose interval includes 0. Because the order is fixed
    beforehand, no correction for the number of rungs is needed (Westfall and Krishen, Journal of Statistical Planning
    and Inference 99, 2001). For the number of arms, the level is corrected by Bonferroni.

    Args:
        reference: The arm that the others are compared with.
        others: The other arms; see `lm.scaling.ladder.check_comparable`.
        confidence: Confidence level.
    """
    level = 1 - (1 - confidence) / max(1, len(others))
    return [_gap(reference, arm, confidence, level) for arm in others]


def _gap(reference: Arm, arm: Arm, confidence: float, level: float) -> Gap:
    at_rungs = arm.points.percent_above(reference.points)
    intervals = at_rungs.intervals(level)
    flops = reference.ladder.flops
    band = _band(reference, arm, level) if len(flops) > 1 else None
    effective, cluster, n_seeds = at_rungs.effective_units, reference.ladder.cluster, len(at_rungs.by_seed)
    shown = not _too_few(effective, cluster)
    documents = reference.ladder.document_bytes
    return Gap(
        arm=arm.ladder.name,
        reference=reference.ladder.name,
        flops=tuple(map(float, flops)),
        percent=tuple(map(float, at_rungs.values)),
        intervals=intervals,
        signs=_shown(intervals if shown else None, len(flops)),
        confidence=confidence,
        level=level,
        n_seeds=n_seeds,
        n_documents=0 if documents is None else len(documents),
        effective_units=effective,
        withheld="" if effective is None else reason_withheld(effective, cluster, n_seeds),
        trend=_trend(at_rungs, np.log(flops), confidence) if len(flops) > 1 else None,
        band=band,
        crossings=() if band is None else _crossings(band, shown=shown),
        cluster=cluster,
    )


def _too_few(effective: float | None, cluster: str) -> bool:
    return effective is not None and not enough(effective, cluster)


def _sign(interval: tuple[float, float]) -> int:
    return int(interval[0] > 0) - int(interval[1] < 0)


def _shown(intervals: Intervals | None, n: int) -> tuple[int, ...]:
    """Signs of the rungs from the largest budget down to the first interval that includes 0."""
    signs = [0] * n
    for i in reversed(range(0 if intervals is None else n)):
        assert intervals is not None
        signs[i] = _sign(intervals[i])
        if not signs[i]:
            break
    return tuple(signs)


def _trend(at_rungs: Estimates, x: NDArray[np.float64], confidence: float) -> Trend:
    slope = at_rungs.slope(x)
    intervals = slope.intervals(confidence)
    return Trend(float(slope.values[0]), None if intervals is None else intervals[0], confidence)


def _band(reference: Arm, arm: Arm, level: float) -> Band:
    """Both curves are read in the same way, so that an error of interpolation mostly cancels."""
    law = reference.curve.law is not None and arm.curve.law is not None
    ends = [(ladder.flops[0], ladder.flops[-1]) for ladder in (reference.ladder, arm.ladder)]
    low, high = max(low for low, _ in ends), min(high for _, high in ends)
    return band_of(
        lambda grid: arm.read(grid, law=law).percent_above(reference.read(grid, law=law)), low, high, level, law=law
    )


def _crossings(band: Band, *, shown: bool) -> tuple[Crossing, ...]:
    """Changes of sign between neighbours, linear in ln FLOPs in between; points at exactly 0 are skipped."""
    found = []
    nonzero = [i for i, value in enumerate(band.values) if value]
    signs = [_sign(interval) for interval in band.intervals] if shown and band.intervals else [0] * len(band.flops)
    for i, j in itertools.pairwise(nonzero):
        one, two = band.values[i], band.values[j]
        if one * two > 0:
            continue
        share = one / (one - two)
        flops = math.exp((1 - share) * math.log(band.flops[i]) + share * math.log(band.flops[j]))
        low = next((band.flops[k] for k in range(i, -1, -1) if signs[k]), None)
        high = next((band.flops[k] for k in range(j, len(signs)) if signs[k]), None)
        found.append(Crossing(flops, low, high))
    return tuple(found)
