"""FLOP-equivalent bits per byte: a tokenizer that is cheaper to serve may spend the saving on training.

With C the training FLOPs of the reference, rho the FLOPs of serving over a model's life divided by those of its
training, and s the cost of serving an arm relative to the reference, training and serving together cost the same if
the arm trains with C (1 + rho (1 - s)). Its curve is read there. rho = 0 is plain bits per byte at equal training
FLOPs. Where 1 + rho (1 - s) is not positive, no training budget can pay for the serving.
(Definition: marin-community/marin, pull request 6916.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm.scaling.curve import Curve
from lm.scaling.estimates import Arm
from tokenizer.errors import UserError


@dataclass(frozen=True)
class Equivalent:
    """FLOP-equivalent bits per byte of an arm at one budget of the reference.

    Attributes:
        reference_flops: Training FLOPs of the reference.
        flops: Training FLOPs of the arm; None if none are left.
        bits_per_byte: Bits per byte of the arm there; None if it cannot be read.
        extrapolated: Whether that budget is outside the measured ones.
        reason: Why there is no number; empty if there is one.
    """

    reference_flops: float
    flops: float | None
    bits_per_byte: float | None
    extrapolated: bool
    reason: str


def equivalent_factor(rho: float, relative_cost: float) -> float:
    """Training FLOPs of an arm over those of the reference at equal total cost, 1 + rho (1 - s); may be negative.

    >>> equivalent_factor(4.5, 0.8)
    1.9
    """
    return 1 + rho * (1 - relative_cost)


def equivalent_bits_per_byte(curve: Curve, reference_flops: float, *, rho: float, relative_cost: float) -> Equivalent:
    """FLOP-equivalent bits per byte of one arm.

    Args:
        curve: Curve of the arm.
        reference_flops: Training FLOPs of the reference.
        rho: FLOPs of serving over those of training, of the reference.
        relative_cost: Cost of serving the arm over that of the reference, the s of `deployment.relative_cost`.
    """
    factor = equivalent_factor(rho, relative_cost)
    if factor <= 0:
        reason = (
            f"{curve.name} costs {relative_cost:.2f} times as much to serve as the reference: at rho={rho:g} that is "
            "more than training costs, and cannot be matched"
        )
        return Equivalent(reference_flops, None, None, False, reason)
    flops = reference_flops * factor
    try:
        reading = curve.read(flops)
    except UserError as error:
        return Equivalent(reference_flops, flops, None, False, str(error))
    return Equivalent(reference_flops, flops, reading.bits_per_byte, reading.extrapolated, "")


@dataclass(frozen=True)
class EquivalentGap:
    """Difference of FLOP-equivalent bits per byte to the reference.

    Attributes:
        percent: In percent of the reference's bits per byte, negative is better; None if one curve cannot be read.
        interval: Its interval; None if there is nothing to compute it from.
        reason: Why there is no number; empty if there is one.
    """

    percent: float | None
    interval: tuple[float, float] | None
    reason: str


def equivalent_gap(
    reference: Arm, arm: Arm, reference_flops: float, *, rho: float, relative_cost: float, confidence: float = 0.95
) -> EquivalentGap:
    """Gap between an arm and the reference where training and serving together cost the same.

    Both curves are read in the same way: as laws if both have one, otherwise by interpolation.
    """
    found = equivalent_bits_per_byte(arm.curve, reference_flops, rho=rho, relative_cost=relative_cost)
    if found.flops is None or found.bits_per_byte is None:
        return EquivalentGap(None, None, found.reason)
    law = reference.curve.law is not None and arm.curve.law is not None
    if found.extrapolated and not law:
        reason = f"the curve of {reference.curve.name} only interpolates: {reference.curve.reason}"
        return EquivalentGap(None, None, reason)
    gap = arm.read(np.array([found.flops]), law=law).percent_above(reference.read(np.array([reference_flops]), law=law))
    intervals = gap.intervals(confidence)
    return EquivalentGap(float(gap.values[0]), None if intervals is None else intervals[0], "")
