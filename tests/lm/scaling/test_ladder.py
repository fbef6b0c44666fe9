"""Points on a ladder: averages over sources, best depths, and what must not be compared."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.scaling.estimates import Arm
from lm.scaling.ladder import (
    HeldOut,
    check_comparable,
    document_ladder,
    source_shares,
)
from tests.lm.scaling.ladders import REFERENCE, measured_ladder, with_documents
from tokenizer.errors import UserError

SIZES = np.array([100, 300, 200, 400])
SOURCES = Grouping(("code", "web", "empty"), np.array([0, 1, 0, 1], np.int32))
BITS = np.array([200.0, 300.0, 400.0, 500.0])


def average(**options):
    return float(HeldOut(SIZES, SOURCES, source_shares(SIZES, SOURCES, **options)).average(BITS))


def test_averages_over_sources_by_hand():
    code, web = 600 / 300, 800 / 700
    assert average() == pytest.approx(1400 / 1000)
    assert average(average="macro") == pytest.approx((code + web) / 2)
    assert average(fixed={"code": 0.4}) == pytest.approx(0.4 * code + 0.6 * web)
    assert average(fixed={"code": 1}) == pytest.approx(code)
    assert source_shares(SIZES, SOURCES, fixed={"code": 0.4, "web": 0.6}) == {"code": 0.4, "web": 0.6, "empty": 0}
    assert source_shares(SIZES, SOURCES, average="macro", fixed={"web": 0.2}) == {"code": 0.8, "web": 0.2, "empty": 0}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"cod": 0.4}, "no held-out text is from cod; the sources are code, web"),
        ({"empty": 0.4}, "no held-out text is from empty"),
        ({"code": 1.2}, "must sum to at most 1"),
        ({"code": -0.2}, "at least 0"),
        ({"code": 0.5, "web": 0.4}, "must sum to 1"),
        ({"code": math.nan}, "must sum to at most 1"),
        ({"code": math.nan, "web": 0.4}, "must sum to 1"),
    ],
)
def test_impossible_shares_are_rejected(fixed, message):
    with pytest.raises(UserError, match=message):
        source_shares(SIZES, SOURCES, fixed=fixed)


def test_a_ladder_of_documents_has_their_average_and_their_resamples():
    shares = source_shares(SIZES, SOURCES, average="macro")
    heldout = HeldOut(SIZES, SOURCES, shares)
    nats = math.log(2) * np.stack([[BITS, BITS * 0.9], [BITS * 1.1, BITS]])
    ladder = document_ladder("a", [1e15, 2e15], nats, heldout, seeds=[0, 1])
    mean = (2 + 8 / 7) / 2
    assert ladder.bits_per_byte == pytest.approx(mean * np.array([[1, 0.9], [1.1, 1]]))
    resampled = ladder.resampled(200, seed=0)
    assert resampled.shape == (200, 2)
    assert resampled[:, 1] / resampled[:, 0] == pytest.approx(np.full(200, 0.95 / 1.05))
    assert resampled.min() < mean < resampled.max()
    assert measured_ladder("a", [1e15], [[1.0]]).resampled(200, seed=0) is None


def test_documents_without_weight_are_not_drawn():
    """With 4 draws from 4 documents of which one has weight, 3 in 10 resamples would have no bytes."""
    nats = np.broadcast_to(math.log(2) * BITS, (1, 1, 4))
    sources = Grouping(("code", "web"), np.array([0, 1, 0, 1], np.int32))
    heldout = HeldOut(SIZES, sources, {"code": 1.0, "web": 0.0})
    resampled = document_ladder("a", [1e15], nats, heldout, seeds=[0]).resampled(200, seed=0)
    assert set(np.round(resampled[:, 0], 6)) == {2.0}
    one = HeldOut(
        SIZES, Grouping(tuple("abcd"), np.arange(4, dtype=np.int32)), {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}
    )
    ladder = document_ladder("a", [1e15], nats, one, seeds=[0])
    assert ladder.resampled(200, seed=0) is None
    assert Arm.of(ladder).points.intervals(0.95) is None


def test_arms_are_compared_on_the_same_text_budgets_and_seeds_only():
    a, b = with_documents(np.random.default_rng(0), {"a": REFERENCE, "b": REFERENCE}).values()
    check_comparable(a, b)
    for other, message in [
        (dataclasses.replace(b, shares={"web": 1.0}), "only one of them is scored on code"),
        (dataclasses.replace(b, shares={"web": 0.5, "code": 0.5}), "different shares"),
        (dataclasses.replace(b, document_bytes=b.document_bytes[::-1]), "different documents"),
        (dataclasses.replace(b, document_bytes=None), "different documents"),
        (b.rungs([0, 1, 2]), "it has 3 budgets instead of 4"),
        (dataclasses.replace(b, flops=b.flops * 1.02), r"more than 1 % apart; train both with budget=equal_flops"),
        (dataclasses.replace(b, seeds=(7,)), "its seeds are 7 instead of 0"),
    ]:
        with pytest.raises(UserError, match=f"b cannot be compared with a: .*{message}"):
            check_comparable(a, other)


def test_points_that_cannot_be_measurements_are_rejected():
    for flops, points, message in [
        ([1e15, 1e15], [[1.0, 1.0]], "each once, rising"),
        ([1e15, 2e15], [[1.0, np.nan]], "may have diverged"),
        ([1e15, 2e15], [[1.0]], "1 seeds and 2 budgets"),
    ]:
        with pytest.raises(UserError, match=message):
            measured_ladder("a", flops, points)
