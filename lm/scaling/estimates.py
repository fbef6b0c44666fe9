"""Numbers that are estimated from seeds and documents at several budgets, and their intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lm.evaluate.significance import t_quantile
from lm.scaling.curve import FARTHEST, Curve, PowerLaw, fit_curve, fit_power_laws, interpolate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.scaling.ladder import Ladder


Intervals = tuple[tuple[float, float], ...]
GRID = 65
"""Budgets of a band."""
FEWEST_UNITS = 1.5
"""With fewer effective units there is no interval: it would be hundreds of standard errors wide."""


class Residual(NamedTuple):
    """Squared standard errors from the scatter of the points about a fit, float64[n], and their degrees of freedom."""

    variances: NDArray[np.float64]
    degrees: float


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimated numbers, one per budget, with what their intervals are computed from.

    Attributes:
        values: float64[n].
        by_seed: float64[n_seeds, n], from the whole ladder of each seed.
        resampled: float64[samples, n], from resampled documents; None if the documents are not known.
        effective_units: Number of units of equal size; None if the documents are not known.
        residual: With one seed, the scatter about a fit, if there is one.
    """

    values: NDArray[np.float64]
    by_seed: NDArray[np.float64]
    resampled: NDArray[np.float64] | None = None
    effective_units: float | None = None
    residual: Residual | None = None

    def half_widths(self, confidence: float) -> NDArray[np.float64] | None:
        """float64[n]: half the widths of the intervals; None if there is too little to compute them from.

        The variances of seeds, documents and scatter add up, each with its own quantile of Student's t, as in
        `significance.estimate`.
        """
        if self.effective_units is not None and (self.resampled is None or self.effective_units < FEWEST_UNITS):
            return None
        parts = [] if self.residual is None else [self.residual]
        n_seeds = len(self.by_seed)
        if n_seeds > 1:
            parts.append(Residual(self.by_seed.var(axis=0, ddof=1) / n_seeds, n_seeds - 1))
        if self.resampled is not None and self.effective_units is not None:
            parts.append(Residual(self.resampled.var(axis=0, ddof=1), self.effective_units - 1))
        if not parts:
            return None
        total: NDArray[np.float64] = sum(
            (t_quantile(confidence, part.degrees) ** 2 * part.variances for part in parts), np.zeros_like(self.values)
        )
        return np.sqrt(total)

    def intervals(self, confidence: float) -> Intervals | None:
        """Lower and upper ends."""
        half = self.half_widths(confidence)
        if half is None:
            return None
        return tuple((float(v - h), float(v + h)) for v, h in zip(self.values, half, strict=True))

    def each_row(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Estimates:
        """Apply a function of one number per budget to the values, to each seed's and to each resample's."""
        resampled = None if self.resampled is None else np.stack([function(row) for row in self.resampled])
        by_seed = np.stack([function(row) for row in self.by_seed])
        return Estimates(function(self.values), by_seed, resampled, self.effective_units)

    def percent_above(self, reference: Estimates) -> Estimates:
        """100 (self / reference - 1), with seeds and documents paired."""

        def percent(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
            return 100 * (a / b - 1)

        resampled = residual = None
        if self.resampled is not None and reference.resampled is not None:
            resampled = percent(self.resampled, reference.resampled)
        if self.residual is not None and reference.residual is not None:
            relative = self.residual.variances / self.values**2 + reference.residual.variances / reference.values**2
            degrees = min(self.residual.degrees, reference.residual.degrees)
            residual = Residual((100 * self.values / reference.values) ** 2 * relative, degrees)
        return Estimates(
            percent(self.values, reference.values),
            percent(self.by_seed, reference.by_seed),
            resampled,
            self.effective_units,
            residual,
        )

    def slope(self, x: NDArray[np.float64]) -> Estimates:
        """Slope of the least-squares line over x[n]: one number.

        With one seed, its standard error is from the scatter about the line (n - 2 degrees of freedom). With several,
        it is from the slopes of the seeds, because the rungs of one seed are not independent.
        """
        centered = x - x.mean()
        weights = centered / (centered @ centered)
        slope = self.each_row(lambda row: np.array([row @ weights]))
        if len(self.by_seed) > 1 or len(x) < 3:
            return slope
        scatter = self.values - self.values.mean() - slope.values * centered
        variances = np.array([scatter @ scatter]) / (len(x) - 2) / (centered @ centered)
        return replace(slope, residual=Residual(variances, len(x) - 2))


@dataclass(frozen=True, eq=False)
class Arm:
    """A ladder with its curve, and with the points of resampled documents.

    Attributes:
        ladder: The measured points.
        curve: Curve through the means over the seeds.
        points: The points as estimates.
    """

    ladder: Ladder
    curve: Curve
    points: Estimates

    @classmethod
    def of(cls, ladder: Ladder, *, confidence: float = 0.95, samples: int = 500, seed: int = 0) -> Arm:
        """Fit the curve and resample the documents; arms with the same seed are paired."""
        resampled = ladder.resampled(samples, seed)
        points = Estimates(ladder.mean, ladder.bits_per_byte, resampled, ladder.effective_units)
        return cls(ladder, fit_curve(ladder, confidence=confidence), points)

    def read(self, flops: NDArray[np.float64], *, law: bool) -> Estimates:
        """Read the curve at some budgets.

        Args:
            flops: float64[n]; nothing outside the measured range unless `law` is set.
            law: Read the fitted law, which the curve must have, instead of interpolating.
        """
        rungs, points = self.ladder.flops, self.points
        if not law:
            return points.each_row(lambda row: interpolate(rungs, row, flops))
        assert self.curve.law is not None
        residual = None if self.scatter is None else self.scatter.at(flops)
        return Estimates(
            self.curve.law(flops),
            np.stack([each(flops) for each in self.laws_by_seed]),
            None if self.laws_resampled is None else np.stack([each(flops) for each in self.laws_resampled]),
            points.effective_units,
            residual,
        )

    @cached_property
    def scatter(self) -> Scatter | None:
        """Scatter of a single run about its law; None with several seeds or without a law."""
        law = self.curve.law
        return None if law is None or len(self.points.by_seed) > 1 else Scatter.of(self.ladder, law)

    @cached_property
    def laws_by_seed(self) -> list[PowerLaw]:
        """Law of each seed's ladder."""
        return fit_power_laws(self.ladder.flops, self.points.by_seed)

    @cached_property
    def laws_resampled(self) -> list[PowerLaw] | None:
        """Law of each resample; None if the documents are not known."""
        resampled = self.points.resampled
        return None if resampled is None else fit_power_laws(self.ladder.flops, resampled)


@dataclass(frozen=True)
class Band:
    """Numbers over compute with their intervals.

    Attributes:
        flops: Training FLOPs, evenly spaced in their logarithm.
        values: The number at each.
        intervals: Interval of each, of each alone; None if there is nothing to compute them from.
        method: `law` if read from fitted laws, otherwise `interpolation`.
    """

    flops: tuple[float, ...]
    values: tuple[float, ...]
    intervals: Intervals | None
    method: Literal["law", "interpolation"]


def band_of(
    read: Callable[[NDArray[np.float64]], Estimates], low: float, high: float, confidence: float, *, law: bool
) -> Band:
    """What `read` returns for budgets between two ends."""
    grid = np.geomspace(low, high, GRID)
    found = read(grid)
    return Band(
        tuple(map(float, grid)),
        tuple(map(float, found.values)),
        found.intervals(confidence),
        "law" if law else "interpolation",
    )


def curve_bands(arm: Arm, confidence: float) -> tuple[Band, Band | None]:
    """Bits per byte of an arm over the measured budgets, and beyond them as far as its law may be read.

    With one seed, the intervals are about this run: they hold its documents and the scatter about its law.
    """
    law, flops = arm.curve.law is not None, arm.ladder.flops

    def read(grid: NDArray[np.float64]) -> Estimates:
        return arm.read(grid, law=law)

    measured = band_of(read, flops[0], flops[-1], confidence, law=law)
    return measured, band_of(read, flops[-1], FARTHEST * flops[-1], confidence, law=law) if law else None


@dataclass(frozen=True, eq=False)
class Scatter:
    """Relative scatter of the points of one run about their law, to first order.

    Attributes:
        law: The law.
        variance: Squared relative scatter of a point.
        degrees: Its degrees of freedom.
        scales: float64[3], norms of the derivatives of the points by floor, coefficient and exponent.
        triangle: float64[3, 3], R of the QR decomposition of the scaled derivatives, which are too close to linear
            dependence for their product.
    """

    law: PowerLaw
    variance: float
    degrees: int
    scales: NDArray[np.float64]
    triangle: NDArray[np.float64]

    @classmethod
    def of(cls, ladder: Ladder, law: PowerLaw) -> Scatter:
        """Measure the scatter about a law."""
        predicted = law(ladder.flops)
        scatter = ladder.mean / predicted - 1
        degrees = len(ladder.flops) - 3
        derivatives = _derivatives(law, ladder.flops) / predicted[:, None]
        scales = np.linalg.norm(derivatives, axis=0)
        triangle = np.linalg.qr(derivatives / scales).R
        return cls(law, float(scatter @ scatter) / degrees, degrees, scales, triangle)

    def at(self, flops: NDArray[np.float64]) -> Residual:
        """Variance of the law's readings at some budgets."""
        gradients = np.linalg.solve(self.triangle.T, (_derivatives(self.law, flops) / self.scales).T)
        return Residual(self.variance * (gradients**2).sum(axis=0), self.degrees)


def _derivatives(law: PowerLaw, at: NDArray[np.float64]) -> NDArray[np.float64]:
    falling = at**-law.exponent
    return np.stack([np.ones_like(at), falling, -law.coefficient * falling * np.log(at)], axis=1)
