"""FLOP-equivalent bits per byte: a tokenizer that is cheaper to serve may spend the saving on training.

With C the training FLOPs of the reference, rho the FLOPs of serving over a model's life divided by those of its
training, and s the cost of serving an arm relative to the reference, training and serving together cost the same if
the arm trains with C (1 + rho (1 - s)). rho = 0 is plain bits per byte at equal training FLOPs. Where 1 + rho (1 - s)
is not positive, no training budget can pay for the serving. (Definition: marin-community/marin, pull request 6916.)

C is as large as the measurements allow: one of the two arms is read at the largest measured budget, the other between
measured ones. Nothing is read beyond them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.scaling.gaps import Gap, Interval, Pair

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
        interval: Its interval; None if one document has all of the text.
    """

    answer: Answer
    reason: str
    reference_flops: float | None = None
    flops: float | None = None
    bits_per_byte: float | None = None
    percent: float | None = None
    interval: Interval | None = None


def equivalent_factor(rho: float, relative_cost: float) -> float:
    """Training FLOPs of an arm over those of the reference at equal total cost, 1 + rho (1 - s); may be negative.

    >>> equivalent_factor(4.5, 0.8)
    1.9
    """
    return 1 + rho * (1 - relative_cost)


def equivalent(pair: Pair, gap: Gap, *, rho: float, relative_cost: float) -> Equivalent:
    """Compare an arm with the reference at equal cost of training and serving.

    Args:
        pair: Losses of both.
        gap: Their gap at equal training FLOPs.
        rho: FLOPs of serving over those of training, of the reference.
        relative_cost: Cost of serving the arm over that of the reference, the s of `deployment.relative_cost`.
    """
    factor = equivalent_factor(rho, relative_cost)
    if factor <= 0:
        costs = f"{gap.arm} costs {relative_cost:.2f} times as much to serve as {gap.reference}"
        return Equivalent(
            "withheld" if gap.barred else "no",
            gap.withheld if gap.barred else f"{costs}: at ρ = {rho:g} that is more than training costs",
        )
    smallest, largest = float(pair.flops[0]), float(pair.flops[-1])
    at = largest / max(factor, 1), largest * min(factor, 1)  # of the reference and of the arm
    if min(at) < smallest * (1 - 1e-9):
        reason = f"not measured: a budget of {min(at):.2g} FLOPs is below the smallest one, {smallest:.2g}"
        return Equivalent("unknown", reason)
    found = pair.estimate(
        lambda a, b: 100 * (interpolate(pair.flops, b, at[1]) / interpolate(pair.flops, a, at[0]) - 1)
    )
    interval = found.known_interval(gap.level)
    bits = float(pair.estimate(lambda _, b: interpolate(pair.flops, b, at[1])).value)
    answer: Answer = "undecided"
    if gap.withheld:
        answer = "withheld"
    elif interval is not None and not interval[0] <= 0 <= interval[1]:
        answer = "yes" if interval[1] < 0 else "no"
    return Equivalent(answer, gap.withheld, *at, bits, float(found.value), interval)


def interpolate(flops: NDArray[np.float64], points: NDArray[np.float64], at: float) -> NDArray[np.float64]:
    """Read points[n_budgets, ...] at a budget between the measured ones, linearly in both logarithms."""
    x = np.log(flops)
    i = min(int(np.searchsorted(x, np.log(at), side="right")), len(x) - 1) if len(x) > 1 else 0
    share = np.clip((np.log(at) - x[i - 1]) / (x[i] - x[i - 1]), 0, 1) if len(x) > 1 else 1.0
    with np.errstate(invalid="ignore"):  # one unit has all of the denominators
        values: NDArray[np.float64] = np.exp((1 - share) * np.log(points[i - 1]) + share * np.log(points[i]))
    return values
