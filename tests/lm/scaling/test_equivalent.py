"""Bits per byte where training and serving together cost the same, by hand."""

import numpy as np
import pytest

from lm.evaluate.deployment import Deployment
from lm.scaling.equivalent import Place, interpolate, place
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import FLOPS, compared, heldout, loss, points


def at(percent, *, rho=1.0, relative_cost=1.0, **options):
    arms = points("ref", [0.0] * len(percent)), points("arm", percent, **options)
    flops = [arm.flops for arm in arms]
    costs = [{"decode": 1.0}, {"decode": relative_cost}]
    (found,) = Study(arms, heldout())._equivalents(Deployment(rho=rho), costs, flops, "decode")
    return found


def test_a_cheaper_arm_is_compared_with_a_reference_that_trains_less():
    found = at([1.0] * 4, rho=4.5, relative_cost=0.8)
    assert found.flops == FLOPS[-1]
    assert found.reference_flops == pytest.approx(FLOPS[-1] / 1.9)
    reference = interpolate(FLOPS, loss(FLOPS), FLOPS[-1] / 1.9)
    expected = 100 * (1.01 * loss(FLOPS)[-1] / float(reference) - 1)
    assert found.percent == pytest.approx(expected)
    assert found.percent < -3
    assert found.answer == "yes"


def test_a_dearer_arm_trains_less():
    found = at([-1.0] * 4, rho=1.0, relative_cost=1.3)
    assert found.reference_flops == FLOPS[-1]
    assert found.flops == pytest.approx(0.7 * FLOPS[-1])
    assert found.answer == "no"


def test_without_serving_it_is_the_gap_at_the_largest_budget():
    found = at([0.1, 0.2, 0.3, -0.7], rho=0.0, relative_cost=0.5, scatter=0.1, documents=0.2)
    (gap,) = compared(points("ref", [0.0] * 4), points("arm", [0.1, 0.2, 0.3, -0.7], scatter=0.1, documents=0.2))
    assert (found.percent, found.interval) == (pytest.approx(gap.percent[-1]), pytest.approx(gap.intervals[-1]))
    assert at([0.3], rho=0.0).percent == pytest.approx(0.3)


@pytest.mark.parametrize(("percent", "answer"), [(-1.0, "yes"), (1.0, "no"), (0.1, "undecided")])
def test_the_interval_answers(percent, answer):
    assert at([percent] * 4, scatter=0.2).answer == answer
    few = at([percent] * 4, scatter=0.2, n_seeds=3, barred="arm changes or loses text")
    assert (few.answer, few.reason) == ("withheld", "arm changes or loses text")
    assert few.percent == pytest.approx(percent)


def test_nothing_is_read_beyond_the_measured_budgets():
    found = at([1.0, 1.0], rho=10.0, relative_cost=0.5)  # six times less training
    assert (found.answer, found.percent) == ("unknown", None)
    assert found.reason == "not measured: a budget of 1e+15 FLOPs is below the smallest one, 2e+15"
    assert at([1.0], rho=1.0, relative_cost=0.9).answer == "unknown"
    budgets = [1e18, 2e18]
    found = [place(budgets, budgets, rho=2.0, relative_cost=0.49, tolerance=tolerance) for tolerance in (0.02, 0.005)]
    assert [isinstance(one, Place) for one in found] == [True, False]  # 1 % below the smallest


def test_a_saving_that_cannot_be_matched():
    found = at([-1.0] * 4, rho=4.5, relative_cost=4.0)
    assert (found.answer, found.flops) == ("no", None)
    assert "it costs 4.00 times as much to serve" in found.reason
    assert at([-1.0] * 4, rho=4.5, relative_cost=4.0, barred="arm loses text").answer == "withheld"


def test_interpolation_is_linear_in_both_logarithms():
    flops, values = np.array([1e15, 1e17]), np.array([1.6, 0.9])
    assert interpolate(flops, values, 1e16) == pytest.approx(1.2)
    assert [interpolate(flops, values, float(each)) for each in flops] == pytest.approx(values)
    assert interpolate(flops, np.stack([values, values], 1), 1e16) == pytest.approx([1.2, 1.2], abs=0.5)
