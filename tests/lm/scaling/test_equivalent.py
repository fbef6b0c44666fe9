"""FLOP-equivalent bits per byte, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lm.scaling.curve import fit_curve
from lm.scaling.equivalent import equivalent_bits_per_byte, equivalent_factor, equivalent_gap
from lm.scaling.estimates import Arm
from tests.lm.scaling.ladders import CROSSING, FLOPS, REFERENCE, measured_ladder, noisy

FITTED = fit_curve(measured_ladder("arm", FLOPS, [REFERENCE(FLOPS)]))
INTERPOLATED = fit_curve(measured_ladder("arm", [1e16, 1e18], [[1.6, 0.9]]))


def test_the_budget_at_equal_total_cost():
    assert equivalent_factor(0, 0.5) == 1
    assert equivalent_factor(4.5, 0.83) == pytest.approx(1.765)
    assert equivalent_factor(4.5, 4) == -12.5
    assert equivalent_factor(2, 1.5) == 0


def test_the_curve_is_read_at_the_budget_that_the_saving_pays_for():
    # 1e16 (1 + 4.5 (1 - 0.8)) = 1.9e16 FLOPs.
    found = equivalent_bits_per_byte(FITTED, 1e16, rho=4.5, relative_cost=0.8)
    assert found.flops == pytest.approx(1.9e16)
    assert found.bits_per_byte == pytest.approx(0.6 + 0.9 * 1.9**-0.2)
    assert (found.extrapolated, found.reason) == (False, "")
    # An arm that is dearer to serve has less to train with: 1e17 (1 + 3 (1 - 1.3)) = 1e16, the middle of both logs.
    found = equivalent_bits_per_byte(INTERPOLATED, 1e17, rho=0, relative_cost=1.3)
    assert found.bits_per_byte == pytest.approx(1.2)
    found = equivalent_bits_per_byte(INTERPOLATED, 1e17, rho=3, relative_cost=1.3)
    assert found.bits_per_byte == pytest.approx(1.6)


def test_a_saving_that_cannot_be_matched():
    for relative_cost in (4, 1 + 1 / 4.5):
        found = equivalent_bits_per_byte(FITTED, 1e16, rho=4.5, relative_cost=relative_cost)
        assert found.flops is None
        assert found.bits_per_byte is None
        assert "arm costs" in found.reason
        assert "at rho=4.5 that is more than training costs, and cannot be matched" in found.reason


def test_budgets_outside_the_measured_ones():
    found = equivalent_bits_per_byte(FITTED, 6e16, rho=4.5, relative_cost=0.8)
    assert found.extrapolated
    assert found.bits_per_byte == pytest.approx(float(REFERENCE(np.array(6e16 * 1.9))))
    found = equivalent_bits_per_byte(FITTED, 6e16, rho=10, relative_cost=0.6)  # five times the largest budget
    assert found.bits_per_byte is None
    assert "by more than a factor of 4" in found.reason
    found = equivalent_bits_per_byte(INTERPOLATED, 1e18, rho=1, relative_cost=0.9)
    assert found.bits_per_byte is None
    assert "its curve only interpolates: it has 2 budgets" in found.reason


def test_gaps_at_equal_total_cost_have_intervals():
    rng = np.random.default_rng(0)
    reference, arm = (Arm.of(noisy(rng, name, law)) for name, law in (("a", REFERENCE), ("b", CROSSING)))
    plain = equivalent_gap(reference, arm, 1e16, rho=0, relative_cost=0.8)
    assert plain.interval[0] < 0 < plain.interval[1]
    saving = equivalent_gap(reference, arm, 1e16, rho=1, relative_cost=0.8)
    assert saving.interval[0] < 100 * (float(CROSSING(np.array(1.2e16))) / 1.5 - 1) < saving.interval[1]
    assert "cannot be matched" in equivalent_gap(reference, arm, 1e16, rho=1, relative_cost=2.5).reason
    three = Arm.of(measured_ladder("a", FLOPS[:3], [REFERENCE(FLOPS[:3])] * 3))
    beyond = equivalent_gap(three, arm, FLOPS[2], rho=9, relative_cost=0.5)
    assert (beyond.percent, beyond.reason) == (
        None,
        "the curve of a only interpolates: it has 3 budgets, and a law needs 4",
    )
