"""Bits per byte over training compute: E + A C^-alpha where the points identify it, interpolation otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lm.evaluate.significance import t_quantile
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.scaling.ladder import Ladder

FEWEST_RUNGS = 4
"""A law with three parameters needs at least this many budgets."""
FARTHEST = 4.0
"""Curves are read at most this many times beyond the measured budgets."""
HUBER = 0.003
"""Relative residual above which a point counts linearly instead of quadratically."""
EXPONENTS = (1e-3, 3.0)
"""Exponents that are tried."""
_ROUNDING = 1e-9
Interval = tuple[float, float]


class PowerLaw(NamedTuple):
    """BPB(C) = floor + coefficient C^-exponent, with C in FLOPs.

    >>> float(PowerLaw(1.0, 8.0, 0.5)(np.array(16.0)))
    3.0
    """

    floor: float
    coefficient: float
    exponent: float

    def __call__(self, flops: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bits per byte at these FLOPs."""
        return self.floor + self.coefficient * flops**-self.exponent


class Reading(NamedTuple):
    """Bits per byte read from a curve, and whether the budget is outside the measured ones."""

    bits_per_byte: float
    extrapolated: bool


@dataclass(frozen=True)
class Curve:
    """Curve of one arm through the means over its seeds.

    Attributes:
        name: Name of the arm.
        flops: Training FLOPs of the rungs.
        bits_per_byte: Bits per byte at the rungs, means over the seeds.
        law: The fitted law; None if the points do not identify it. The curve then interpolates between the points,
            linearly in the logarithms of both, and is not extrapolated.
        reason: Why there is no law; empty if there is one.
        floor_interval: Profile interval of the floor E; None without a law.
        exponent_interval: Profile interval of the exponent alpha; None without a law.
        confidence: Confidence level of both.
    """

    name: str
    flops: tuple[float, ...]
    bits_per_byte: tuple[float, ...]
    law: PowerLaw | None
    reason: str
    floor_interval: tuple[float, float] | None
    exponent_interval: tuple[float, float] | None
    confidence: float

    def extrapolates(self, flops: float) -> bool:
        """Whether a budget is outside the measured ones.

        Raises:
            UserError: If it is too far outside, or the curve only interpolates.
        """
        low, high = self.flops[0], self.flops[-1]
        if low * (1 - _ROUNDING) <= flops <= high * (1 + _ROUNDING):
            return False
        outside = f"{flops:.3g} FLOPs is outside the measured {low:.3g} to {high:.3g} of {self.name}"
        if self.law is None:
            raise UserError(f"{outside}, and its curve only interpolates: {self.reason}")
        if not low / FARTHEST <= flops <= high * FARTHEST:
            raise UserError(f"{outside} by more than a factor of {FARTHEST:g}; train a rung closer to it")
        return True

    def read(self, flops: float) -> Reading:
        """Bits per byte at a budget.

        Raises:
            UserError: As for `extrapolates`.
        """
        extrapolated = self.extrapolates(flops)
        at = np.array([flops])
        values = interpolate(self.flops, self.bits_per_byte, at) if self.law is None else self.law(at)
        return Reading(float(values[0]), extrapolated)


def interpolate(
    flops: Sequence[float] | NDArray[Any], points: Sequence[float] | NDArray[Any], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Interpolate points[n_rungs] linearly in ln FLOPs and ln bits per byte; outside, the value at the end."""
    values: NDArray[np.float64] = np.exp(np.interp(np.log(at), np.log(flops), np.log(points)))
    return values


def fit_power_laws(flops: NDArray[np.float64], points: NDArray[np.float64]) -> list[PowerLaw]:
    """For each row of points, the law with the least Huber loss of relative residuals.

    For a given exponent, floor and coefficient are linear, so only the exponent is searched: all of `EXPONENTS` on a
    grid, then finer grids around the best. (Loss: Hoffmann et al., Training Compute-Optimal Large Language Models,
    arXiv 2203.15556, section 3.3. Separation: Golub and Pereyra, SIAM Journal on Numerical Analysis 10, 1973.)

    Args:
        flops: float64[n_rungs], training FLOPs of at least 3 rungs.
        points: float64[n_rows, n_rungs], bits per byte.
    """
    x, center = _centered(flops)
    found = _fit(x, points)
    coefficients = found.levels * np.exp(found.exponents * center)
    return [PowerLaw(*map(float, row)) for row in zip(found.floors, coefficients, found.exponents, strict=True)]


def fit_curve(ladder: Ladder, *, confidence: float = 0.95) -> Curve:
    """Curve of an arm: a law if its points identify one.

    A law is identified if the points exclude, at this confidence, a floor of 0, a floor at the lowest point, and both
    ends of `EXPONENTS`. That is an F test between the fit and the fit with one parameter fixed; it also gives the
    intervals of both parameters (profile likelihood: Bates and Watts, Nonlinear Regression Analysis, section 6.1). The
    noise is that of the rungs around the fit and around each other: a shift that all rungs of one seed share does not
    count.
    """
    n_seeds, n_rungs = ladder.bits_per_byte.shape
    points = ladder.mean

    def curve(reason: str, law: PowerLaw | None = None, intervals: Sequence[Interval | None] = (None, None)) -> Curve:
        measured = tuple(map(float, ladder.flops)), tuple(map(float, points))
        return Curve(ladder.name, *measured, law, reason, intervals[0], intervals[1], confidence)

    if n_rungs < FEWEST_RUNGS:
        return curve(f"it has {n_rungs} budgets, and a law needs {FEWEST_RUNGS}")
    (x, center), rows = _centered(ladder.flops), points[None]
    best = _polished(x, points, _fit(x, rows))
    # The weights of the best fit in all others, so that their losses can be compared.
    weights = np.minimum(1.0, HUBER / np.maximum(np.abs(_residuals(x, points, best)), 1e-300))
    loss = float(_fit(x, rows, weights=weights).losses[0])
    logs = np.log(ladder.bits_per_byte)
    apart = logs - logs.mean(axis=0)
    apart -= apart.mean(axis=1, keepdims=True)
    degrees = fit_degrees(n_seeds, n_rungs)
    noise = (n_seeds * loss + float((apart**2).sum())) / degrees
    allowed = loss + max(t_quantile(confidence, degrees) ** 2 * noise / n_seeds, 1e-18)

    def excess_of_floors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        same = np.repeat(rows, len(values), axis=0)
        excess: NDArray[np.float64] = _fit(x, same, weights=weights, floors=values[:, None]).losses - allowed
        return excess

    def excess_of_exponents(values: NDArray[np.float64]) -> NDArray[np.float64]:
        excess: NDArray[np.float64] = _lines(x, rows, values[None], weights=weights).losses[0] - allowed
        return excess

    intervals = [
        _within(excess_of_floors, best.floor, 0.0, float(points.min())),
        _within(excess_of_exponents, best.exponent, *EXPONENTS),
    ]
    if None in intervals:  # both depend on each other, so neither is known without the other
        return curve("its points do not identify the floor and the exponent")
    law = PowerLaw(best.floor, best.coefficient * math.exp(best.exponent * center), best.exponent)
    return curve("", law, intervals)


def fit_degrees(n_seeds: int, n_rungs: int) -> int:
    """Degrees of freedom of the noise about a fitted law."""
    return n_rungs - 3 + (n_seeds - 1) * (n_rungs - 1)


def _centered(flops: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Logarithms of the budgets around their mean, and the mean."""
    logs = np.log(flops)
    return logs - logs.mean(), float(logs.mean())


class _Lines(NamedTuple):
    """Best laws for given exponents: arrays float64[n_rows, n_exponents], weights with n_rungs at the end."""

    floors: NDArray[np.float64]
    levels: NDArray[np.float64]  # coefficients at x = 0
    losses: NDArray[np.float64]
    weights: NDArray[np.float64]


def _lines(
    x: NDArray[np.float64],
    points: NDArray[np.float64],
    exponents: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None = None,
    floors: NDArray[np.float64] | None = None,
) -> _Lines:
    """Least squares of relative residuals in floor and level, neither of them negative.

    Args:
        x: float64[n_rungs], centered logarithms of the budgets.
        points: float64[n_rows, n_rungs].
        exponents: float64[n_rows, n_exponents].
        weights: float64[n_rungs]; None for Huber's, by iteratively reweighted least squares (Huber, Robust Statistics,
            section 7.8).
        floors: float64[n_rows, 1], floors to use instead of the best ones.
    """
    one = 1 / points[:, None, :]  # the floor's part of points / points = 1
    falling = np.exp(-exponents[:, :, None] * x) * one
    one = np.broadcast_to(one, falling.shape)
    used = np.ones_like(falling) if weights is None else np.broadcast_to(weights, falling.shape)
    for _ in range(20):
        aa, ab, bb, a, b = ((used * each).sum(axis=2) for each in (one**2, one * falling, falling**2, one, falling))
        if floors is None:
            best = np.maximum((a * bb - b * ab) / np.maximum(aa * bb - ab * ab, 1e-300), 0.0)
            best = np.where(b < ab * best, a / aa, best)
        else:
            best = np.broadcast_to(floors, aa.shape)
        levels = np.maximum((b - ab * best) / bb, 0.0)
        residuals = np.abs(best[:, :, None] * one + levels[:, :, None] * falling - 1)
        if weights is not None:
            return _Lines(best, levels, (used * residuals**2).sum(axis=2), used)
        before, used = used, np.minimum(1.0, HUBER / np.maximum(residuals, 1e-300))
        if np.abs(used - before).max() < 1e-9:
            break
    losses = np.where(residuals <= HUBER, residuals**2, HUBER * (2 * residuals - HUBER))
    return _Lines(best, levels, losses.sum(axis=2), used)


class _Fit(NamedTuple):
    """Best laws: arrays float64[n_rows], weights float64[n_rows, n_rungs]."""

    exponents: NDArray[np.float64]
    floors: NDArray[np.float64]
    levels: NDArray[np.float64]
    losses: NDArray[np.float64]
    weights: NDArray[np.float64]


def _fit(
    x: NDArray[np.float64],
    points: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None = None,
    floors: NDArray[np.float64] | None = None,
) -> _Fit:
    """Search the exponent; arguments as for `_lines`."""
    rows = np.arange(len(points))
    low, high = (np.full(len(points), np.log(bound)) for bound in EXPONENTS)
    n = 41
    for _ in range(10):  # to 1e-7 in the logarithm
        grid = np.linspace(low, high, n, axis=1)
        lines = _lines(x, points, np.exp(grid), weights=weights, floors=floors)
        best = lines.losses.argmin(axis=1)
        low, high = (grid[rows, np.clip(best + step, 0, n - 1)] for step in (-1, 1))
        found = _Fit(np.exp(grid[rows, best]), *(each[rows, best] for each in lines))
        n = 11
    return found


def _residuals(x: NDArray[np.float64], points: NDArray[np.float64], law: PowerLaw) -> NDArray[np.float64]:
    """Relative residuals of one row of points; `law` is over exp(x)."""
    residuals: NDArray[np.float64] = (law.floor + law.coefficient * np.exp(-law.exponent * x)) / points - 1
    return residuals


def _huber(residuals: NDArray[np.float64]) -> float:
    size = np.abs(residuals)
    return float(np.where(size <= HUBER, size**2, HUBER * (2 * size - HUBER)).sum())


def _polished(x: NDArray[np.float64], points: NDArray[np.float64], fit: _Fit) -> PowerLaw:
    """Newton's method in all three parameters, from the fit of one row of points to full precision.

    The search over the exponent compares losses, which are flat at the minimum. The page of a ladder fits in
    JavaScript, and only the gradient's zero is the same number there.

    Returns:
        The law over exp(x); that of the search if Newton's method does not improve it.
    """
    start = np.array([fit.floors[0], fit.levels[0], fit.exponents[0]])
    theta, loss = start, _huber(_residuals(x, points, PowerLaw(*start)))
    with np.errstate(all="ignore"):
        for _ in range(20):
            residuals = _residuals(x, points, PowerLaw(*theta))
            bounded = np.clip(residuals, -HUBER, HUBER)
            falling = np.exp(-theta[2] * x) / points
            columns = np.stack([1 / points, falling, -theta[1] * x * falling])
            hessian = (columns * (np.abs(residuals) <= HUBER)) @ columns.T
            hessian[1, 2] -= bounded @ (x * falling)
            hessian[2, 1] = hessian[1, 2]
            hessian[2, 2] += theta[1] * (bounded @ (x * x * falling))
            theta = theta - _solve(hessian, columns @ bounded)
        worse = not _huber(_residuals(x, points, PowerLaw(*theta))) <= loss * (1 + 1e-9)
    inside = theta[0] > 0 and theta[1] > 0 and EXPONENTS[0] < theta[2] < EXPONENTS[1]
    return PowerLaw(*map(float, theta if inside and not worse else start))


def _solve(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve three linear equations by Cramer's rule; not finite if they are singular."""
    a, b, c = matrix.T
    found = np.array([right @ np.cross(b, c), a @ np.cross(right, c), a @ np.cross(b, right)])
    solution: NDArray[np.float64] = found / (a @ np.cross(b, c))
    return solution


def _within(
    excess: Callable[[NDArray[np.float64]], NDArray[np.float64]], best: float, low: float, high: float
) -> Interval | None:
    """The interval around the best value where `excess` is not positive; None if it reaches a bound."""
    if excess(np.array([low, high])).min() <= 0:
        return None
    ends = []
    for outside in (low, high):
        inside = best
        for _ in range(10):  # to 1e-12 of the distance
            grid = np.linspace(inside, outside, 17)
            first = 1 + int((excess(grid[1:]) > 0).argmax())
            inside, outside = float(grid[first - 1]), float(grid[first])
        ends.append(inside)
    return ends[0], ends[1]
