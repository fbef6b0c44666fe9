"""Fitted curves against known ones, and points that do not identify a curve."""

from __future__ import annotations

import numpy as np
import pytest

from lm.scaling.curve import PowerLaw, fit_curve, fit_power_laws
from lm.scaling.estimates import Arm
from tests.lm.scaling.ladders import FLOPS, REFERENCE, law_through, measured_ladder, noisy, with_documents
from tokenizer.errors import UserError


@pytest.mark.parametrize(
    "law", [REFERENCE, law_through(1.0, 0.0, 0.05), law_through(0.9, 0.89, 1.5), law_through(3.0, 0.2, 0.5)]
)
def test_exact_points_give_the_law_back(law):
    (found,) = fit_power_laws(FLOPS, law(FLOPS)[None])
    assert found == pytest.approx(law, rel=1e-5, abs=1e-5)
    assert found(FLOPS) == pytest.approx(law(FLOPS), rel=1e-9)


@pytest.mark.parametrize("law", [REFERENCE, law_through(0.9, 0.89, 1.5), law_through(3.0, 0.2, 0.5)])
def test_identified_laws_are_precise(law):
    """The page of a ladder finds the same law with other arithmetic, so the last digits must not be chance."""
    assert fit_curve(measured_ladder("a", FLOPS, [law(FLOPS)])).law == pytest.approx(law, rel=1e-11)
    noisy_points = law(FLOPS) * np.exp(5e-4 * np.array([1, -1, 1, -1]))
    one = fit_curve(measured_ladder("a", FLOPS, [noisy_points] * 3))
    two = fit_curve(measured_ladder("a", FLOPS, [noisy_points * (1 + 1e-14)] * 3))
    if one.law is not None:
        assert one.law == pytest.approx(two.law, rel=1e-10)
        assert one.floor_interval == pytest.approx(two.floor_interval, rel=1e-9)
        assert one.exponent_interval == pytest.approx(two.exponent_interval, rel=1e-9)


def test_a_diverged_rung_moves_the_law_less_than_least_squares():
    flops = np.geomspace(1e15, 1e18, 10)
    points = REFERENCE(flops)
    points[4] *= 1.05
    (robust,) = fit_power_laws(flops, points[None])
    assert robust(flops) == pytest.approx(REFERENCE(flops), rel=2e-3)


def test_rows_are_fitted_independently():
    points = np.stack([law(FLOPS) for law in (REFERENCE, law_through(1.2, 0.7, 0.3))])
    together = fit_power_laws(FLOPS, points)
    assert together[1] == pytest.approx(fit_power_laws(FLOPS, points[1:])[0])


def test_known_parameters_are_inside_their_intervals():
    """25 simulations of 3 seeds and 4 rungs; 95 % intervals."""
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(25):
        curve = fit_curve(noisy(rng, "a", REFERENCE))
        assert curve.law is not None
        hits.append(curve.floor_interval[0] <= REFERENCE.floor <= curve.floor_interval[1])
        hits.append(curve.exponent_interval[0] <= REFERENCE.exponent <= curve.exponent_interval[1])
    assert np.mean(hits) >= 0.86


def test_points_that_do_not_identify_a_law():
    few = fit_curve(measured_ladder("a", FLOPS[:3], [REFERENCE(FLOPS[:3])]))
    assert few.law is None
    assert few.reason == "it has 3 budgets, and a law needs 4"
    straight = 1.0 - 0.05 * np.log(FLOPS / FLOPS[0])  # falls as fast at the end as at the beginning
    for points in (straight, law_through(1.0, 0.0, 0.05)(FLOPS), np.full(4, 1.0), REFERENCE(FLOPS)[::-1]):
        curve = fit_curve(measured_ladder("a", FLOPS, [points]))
        assert curve.law is None
        assert curve.reason == "its points do not identify the floor and the exponent"
    # The same law with too much noise for four points of one run.
    curve = fit_curve(noisy(np.random.default_rng(0), "a", REFERENCE, n_seeds=1, rung=0.01))
    assert curve.law is None


def test_readings_outside_the_measured_range():
    curve = fit_curve(measured_ladder("a", FLOPS, [REFERENCE(FLOPS)]))
    assert curve.read(1e16) == pytest.approx((1.5, False))
    assert not curve.read(6e16).extrapolated
    far = curve.read(2.3e17)
    assert far.bits_per_byte == pytest.approx(float(REFERENCE(np.array(2.3e17))))
    assert far.extrapolated
    for flops in (2.5e17, 4e14):
        with pytest.raises(UserError, match=r"outside the measured 2e.15 to 6e.16 of a by more than a factor of 4"):
            curve.read(flops)


def test_interpolation_is_linear_in_both_logarithms_and_has_no_outside():
    curve = fit_curve(measured_ladder("a", [1e15, 1e17], [[1.6, 0.9]]))
    assert curve.read(1e16).bits_per_byte == pytest.approx(1.2)
    for flops in (2e17, 5e14):
        with pytest.raises(UserError, match="its curve only interpolates: it has 2 budgets"):
            curve.read(flops)


def test_bands_of_documents_and_of_seeds():
    """A shift that all documents share is no uncertainty of theirs; one that each seed has is one of the seeds."""
    rng = np.random.default_rng(0)
    ladder = with_documents(rng, {"a": REFERENCE})["a"]
    arm = Arm.of(ladder)
    at = np.array([3e15, 2e17])
    read = arm.read(at, law=True)
    # Documents scale the whole curve, so their relative error is the same everywhere, as is that of a direct bootstrap.
    half = read.half_widths(0.95) / read.values
    assert half[0] == pytest.approx(half[1], rel=0.02)
    ratio = arm.points.resampled[:, 0]
    assert half[0] == pytest.approx(1.972 * ratio.std(ddof=1) / ladder.mean[0], rel=0.02)
    seeds = Arm.of(noisy(rng, "a", REFERENCE, trunk=0.01, rung=0))
    read = seeds.read(at, law=True)
    shift = seeds.ladder.bits_per_byte[:, 0]
    expected = 4.303 * shift.std(ddof=1) / np.sqrt(3) / shift.mean()
    assert read.half_widths(0.95) / read.values == pytest.approx(np.full(2, expected), rel=0.01)
    # One seed without documents: only the scatter about the law is left, and it grows outside.
    single = Arm.of(noisy(rng, "a", REFERENCE, n_seeds=1, rung=1e-4))
    half = single.read(at, law=True).half_widths(0.95)
    assert 0 < 2 * half[0] < half[1]


def test_a_law_is_a_formula():
    assert PowerLaw(1.0, 8.0, 0.5)(np.array([16.0, 64.0])) == pytest.approx([3.0, 2.0])
