"""Averages over sources, and measurements that must not be compared."""

import dataclasses
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.scaling.points import HeldOut
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import heldout, points
from tokenizer.errors import UserError

SIZES = np.array([100, 300, 200, 400])
SOURCES = Grouping(("code", "web", "empty"), np.array([0, 1, 0, 1], np.int32))
BITS = np.array([200.0, 300.0, 400.0, 500.0])


def average(**options):
    return float(HeldOut.of(SIZES, SOURCES, **options).average(BITS))


def test_averages_over_sources_by_hand():
    code, web = 600 / 300, 800 / 700
    assert average() == pytest.approx(1400 / 1000)
    assert average(fixed={"code": 0.4}) == pytest.approx(0.4 * code + 0.6 * web)
    assert average(fixed={"code": 1}) == pytest.approx(code)
    assert HeldOut.of(SIZES, SOURCES, fixed={"code": 0.4, "web": 0.6}).shares == {"code": 0.4, "web": 0.6, "empty": 0}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"cod": 0.4}, "no held-out text is from cod; the sources are code, web"),
        ({"empty": 0.4}, "no held-out text is from empty"),
        ({"code": 1.2}, "must sum to at most 1"),
        ({"code": -0.2}, "at least 0"),
        ({"code": 0.5, "web": 0.4}, "must sum to 1"),
        ({"code": math.nan}, "must sum to at most 1"),
    ],
)
def test_impossible_shares_are_rejected(fixed, message):
    with pytest.raises(UserError, match=message):
        HeldOut.of(SIZES, SOURCES, fixed=fixed)


def test_arms_are_compared_on_the_same_budgets_and_seeds_only():
    a, b = points("a", [0.0] * 4), points("b", [1.0] * 4)
    assert Study([a, b], heldout()).gaps
    for other, message in [
        (points("b", [1.0] * 3), "b cannot be compared with a: it has 3 budgets instead of 4"),
        (dataclasses.replace(b, flops=[1.02 * f for f in b.flops]), r"more than 1 % apart; .*budget=eq"),
        (dataclasses.replace(b, flops=b.flops[:1] * 4), "the budgets of b must rise"),
        (dataclasses.replace(b, seeds=[0, 1, 7]), "its seeds are 0, 1, 7 instead of 0, 1, 2"),
    ]:
        with pytest.raises(UserError, match=message):
            Study([a, other], heldout())
