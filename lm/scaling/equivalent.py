"""FLOP-equivalent bits per byte: a tokenizer that is cheaper to serve may spend the saving on training.

With C the training FLOPs of the reference, rho the FLOPs of serving over a model's life divided by those of its
training, and s the cost of serving an arm relative to the reference, training and serving together cost the same if
the arm trains with C (1 + rho (1 - s)). rho = 0 is plain bits per byte at equal training FLOPs. Where 1 + rho (1 - s)
is not positive, no training budget can pay for the serving. (Definition: marin-community/marin, pull request 6916.)

Both training budgets are FLOPs at the deployment. C is as large as the measurements allow: an arm that is cheaper to
serve is read at its largest budget, and the reference where the saving leaves it, between measured budgets. Nothing is
read beyond them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lm.evaluate.comparison import percent_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.evaluate.significance import Ratio
    from lm.scaling.gaps import Gap, Interval

    Floats = NDArray[np.float64]

Answer = Literal["yes", "no", "undecided", "withheld", "unknown"]


class Equivalent(NamedTuple):
    """An arm and the reference where training and serving together cost the same.

    Attributes:
        answer: Whether the arm is worth it: `yes` or `no` if the interval excludes 0, `no` if the serving cost cannot
            be matched, `withheld` where no tokenizer may be called better, `unknown` if nothing was measured there.
        reason: Why the answer is not from an interval; empty if it is.
        reference_flops: Training FLOPs of the reference; None if it is not measured.
        flops: Training FLOPs of the arm; None if it is not measured.
        bits_per_byte: Bits per byte of the arm there.
        percent: Difference in percent of the reference's bits per byte there; negative is better.
        interval: Its interval; None with too few documents (or sources).
    """

    answer: Answer
    reason: str
    reference_flops: float | None = None
    flops: float | None = None
    bits_per_byte: float | None = None
    percent: float | None = None
    interval: Interval | None = None


class Place(NamedTuple):
    """Training FLOPs at the deployment at which the reference and an arm cost the same in total.

    Attributes:
        reference: The reference's.
        arm: The arm's.
        budgets: FLOPs of the measured budgets of both, at the deployment.
        rate: `Deployment.rate`, by which losses follow from those at the largest budgets; None for reading between
            measured budgets.
    """

    reference: float
    arm: float
    budgets: tuple[Floats, Floats]
    rate: float | None = None

    def change(self, reference: Floats, arm: Floats) -> Floats:
        """The arm's bits per byte against the reference's there, in percent, from those of each budget."""
        return percent_difference(self.read(0, reference, self.reference), self.read(1, arm, self.arm))

    def read(self, which: int, losses: Floats, flops: float) -> Floats:
        """Bits per byte at a budget of the reference (0) or the arm (1), from those of each measured budget."""
        if self.rate is None:
            return interpolate(self.budgets[which], losses, flops)
        return np.asarray(losses[-1] * (self.budgets[which][-1] / flops) ** self.rate)


def place(
    reference: Sequence[float],
    arm: Sequence[float],
    *,
    rho: float,
    relative_cost: float,
    tolerance: float,
    rate: float | None = None,
) -> Place | Equivalent:
    """Find the largest training budgets at equal cost of training and serving, or the answer where there are none.

    Args:
        reference: Training FLOPs of the reference's budgets at the deployment, rising.
        arm: The same of the arm.
        rho: The reference's FLOPs of serving over its FLOPs of training.
        relative_cost: Cost of serving the arm over the reference's, in FLOPs per byte of the phase.
        tolerance: Accepted relative difference of budgets.
        rate: `Deployment.rate`; with it, losses follow from those at the largest budgets.
    """
    factor = 1 + rho * (1 - relative_cost)
    if factor <= 0:
        times = f"it costs {relative_cost:.2f} times as much to serve"
        return Equivalent("no", f"{times}: at ρ = {rho:g} that is more than training costs")
    budgets = np.asarray(reference, np.float64), np.asarray(arm, np.float64)
    largest = min(budgets[0][-1], budgets[1][-1] / factor)
    if largest * (1 + tolerance) >= budgets[0][-1]:  # equal but for the rounding of steps
        largest = budgets[0][-1]
    at = float(largest), float(min(largest * factor, budgets[1][-1]))
    for flops, measured in zip(at, budgets, strict=True):
        if rate is None and flops < measured[0] * (1 - tolerance):
            below = f"a budget of {flops:.2g} FLOPs is below the smallest one, {measured[0]:.2g}"
            return Equivalent("unknown", f"not measured: {below}")
    return Place(*at, budgets, rate)


def answered(gap: Gap, at: Place, change: Ratio, bits_per_byte: float) -> Equivalent:
    """Whether the arm is worth it.

    Args:
        gap: The gap at equal training FLOPs.
        at: Where both were read.
        change: The difference there.
        bits_per_byte: Bits per byte of the arm there.
    """
    interval = None if gap.intervals is None else change.known_interval(gap.level)
    answer: Answer = "undecided"
    if gap.withheld:
        answer = "withheld"
    elif interval is not None and not interval[0] <= 0 <= interval[1]:
        answer = "yes" if interval[1] < 0 else "no"
    return Equivalent(
        answer=answer,
        reason=gap.withheld,
        reference_flops=at.reference,
        flops=at.arm,
        bits_per_byte=bits_per_byte,
        percent=float(change.value),
        interval=interval,
    )


def interpolate(flops: NDArray[np.float64], points: NDArray[np.float64], at: float) -> NDArray[np.float64]:
    """Read points[n_budgets, ...] at a budget between the measured ones, linearly in both logarithms."""
    x = np.log(flops)
    i = min(int(np.searchsorted(x, np.log(at), side="right")), len(x) - 1) if len(x) > 1 else 0
    share = np.clip((np.log(at) - x[i - 1]) / (x[i] - x[i - 1]), 0, 1) if len(x) > 1 else 1.0
    with np.errstate(invalid="ignore"):  # one unit has all of the denominators
        values: NDArray[np.float64] = np.exp((1 - share) * np.log(points[i - 1]) + share * np.log(points[i]))
    return values
