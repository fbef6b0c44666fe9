"""Averages over kinds of text, and measurements that must not be compared."""

import dataclasses

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping, SamplingUnits
from lm.scaling.pricing import Study
from tests.lm.scaling.ladders import heldout, points
from tokenizer.errors import UserError


def test_averages_over_kinds_by_hand():
    sizes, kinds = (
        np.array([100.0, 300, 200, 400]),
        Grouping(("code", "web", "empty"), np.array([0, 1, 0, 1], np.int32)),
    )
    values = np.array([200.0, 300.0, 400.0, 500.0])
    for weights, expected in (({}, 1400 / 1000), ({"code": 2, "web": 3}, 0.4 * 2 + 0.6 * 8 / 7), ({"code": 1}, 2)):
        assert SamplingUnits.of(sizes, kinds, weights).average(values) == pytest.approx(expected)


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
