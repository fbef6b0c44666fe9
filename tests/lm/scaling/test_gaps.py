"""Gaps over compute: known differences, slopes, and the budgets at which they are shown."""

import dataclasses
import json
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import compare_all, eligible
from lm.evaluate.significance import Ratio
from lm.scaling.gaps import Losses
from tests.lm.evaluate.evaluations import made_up
from tests.lm.scaling.ladders import FLOPS, SIZES, SOURCES, compared, gap, heldout, points


def test_gaps_are_measured_in_percent_of_the_reference():
    found = gap([-0.2, 0.1, 0.5, 1.0], documents=0.5)
    assert found.percent == pytest.approx([-0.2, 0.1, 0.5, 1.0], abs=0.2)
    assert len({round(b - a, 9) for a, b in zip(found.percent, [-0.2, 0.1, 0.5, 1.0], strict=True)}) == 1
    assert all(low < value < high for (low, high), value in zip(found.intervals, found.percent, strict=True))
    assert (found.n_clusters, found.n_seeds, found.withheld) == (60, 3, "")
    assert found.effective_clusters == pytest.approx(48)


def test_the_slope_is_that_of_least_squares():
    found = gap([-1.4, -1.2, -1.0, -0.8], scatter=0.05)
    assert found.slope.points == pytest.approx(np.polyfit(np.log(FLOPS), [-1.4, -1.2, -1.0, -0.8], 1)[0])
    # All seeds have the same slope.
    assert found.slope.interval == pytest.approx((found.slope.points,) * 2)
    assert found.slope.direction == 1


def test_one_budget_is_the_comparison_at_that_budget():
    """The interval of a gap is that of the ratio of differences to the reference, to first order."""
    reference, arm = points("ref", [0.0], n_seeds=1), points("arm", [0.7], n_seeds=1, documents=1.0)
    (found,) = compared(reference, arm)
    bits = [each.nats[:, 0] / math.log(2) for each in (reference, arm)]
    ratio = Ratio.of(bits[1] - bits[0], bits[0].sum(0))
    assert found.percent[0] == pytest.approx(100 * float(ratio.value), rel=1e-9)
    low, high = (100 * end for end in ratio.known_interval(0.95))
    assert found.intervals[0][1] - found.intervals[0][0] == pytest.approx(high - low, rel=0.15)
    assert found.slope is None


def test_budgets_are_tested_from_the_largest_down():
    """A difference that is shown at a smaller budget only does not count."""
    assert gap([0.1, 2.0, 0.1, 2.0], scatter=0.2).decisions == ("undecided", "undecided", "undecided", "worse")
    assert gap([2.0, 2.0, 2.0, 0.1], scatter=0.2).decisions == ("undecided", "undecided", "undecided", "undecided")
    # At the two smaller budgets, 0 is within the intervals of half width 0.5.
    assert gap([0.1, 0.3, 0.8, 0.9], scatter=0.2).decisions == ("undecided", "undecided", "worse", "worse")


def test_more_arms_widen_the_intervals():
    reference, arm = points("ref", [0.0] * 4), points("arm", [0.5] * 4, scatter=0.15)
    (alone,) = compared(reference, arm)
    first, _ = compared(reference, arm, dataclasses.replace(arm, name="other"))
    assert (alone.level, first.level) == (0.95, 0.975)
    assert set(alone.decisions) == {"worse"}
    assert set(first.decisions) == {"undecided"}


def test_the_ladder_and_the_comparison_page_agree():
    """One engine: equal differences, levels, standard errors and intervals for the same losses."""
    percent, scatter, seeds = [0.0, 0.6, -0.3, 0.4], [0.1, 0.3, 0.2, 0.5], range(4)
    arms = [
        points(str(i), [value], scatter=s, documents=1.0, seed=i, pooled=True)
        for i, value, s in zip(seeds, percent, scatter, strict=True)
    ]
    arms[2].nats[:] = arms[2].nats[::-1]  # another order of the seeds
    runs = [[made_up(nats[0], SIZES) for nats in arm.nats] for arm in arms]
    at_once = compare_all(runs, eligible(runs, [arm.name for arm in arms], [True] * 4))
    for i, found in enumerate(compared(*arms), 1):
        one = at_once[0, i]
        assert (found.percent[0], found.intervals[0]) == (pytest.approx(one.percent), pytest.approx(one.interval))
        assert (found.level, found.pooled) == (one.level, one.pooled) == (pytest.approx(1 - 0.05 / 3), tuple("0123"))
        assert found.needed == one.needed or abs(found.percent[0]) > 0.5
    alone = compared(*(dataclasses.replace(arm, pooled=False) for arm in arms))
    widths = [[gap.intervals[0][1] - gap.intervals[0][0] for gap in gaps] for gaps in (compared(*arms), alone)]
    wider = np.divide(*widths[::-1])
    assert max(wider) > 1.3


def test_slopes_are_pooled_over_arms_too():
    arms = [points(str(i), [0.1 * i] * 4, documents=0.2, seed=i, pooled=True) for i in range(4)]
    rng = np.random.default_rng(0)
    for arm in arms:
        arm.nats[:] *= 1 + rng.normal(0, 0.002, (3, 4, 1))
    slopes = [compared(*(dataclasses.replace(arm, pooled=pooled) for arm in arms)) for pooled in (True, False)]
    widths = [[g.slope.interval[1] - g.slope.interval[0] for g in found] for found in slopes]
    assert np.mean(widths[0]) < 0.8 * np.mean(widths[1])


def test_barred_arms_have_gaps_and_no_part_in_the_verdict():
    reference, arm = points("ref", [0.0] * 4), points("arm", [0.5] * 4, scatter=0.15)
    lossy = points("lower", [-7.0] * 4, barred="lower changes or loses text")
    found, barred = compared(reference, arm, lossy)
    assert found == compared(reference, arm)[0]
    assert barred.percent == pytest.approx([-7.0] * 4)
    assert (barred.decisions, barred.withheld, barred.barred) == (("undecided",) * 4, lossy.barred, lossy.barred)
    assert {each.withheld for each in compared(lossy, reference, arm)} == {lossy.barred}


@pytest.mark.parametrize(
    ("sizes", "cluster", "reason"),
    [
        ([1000], "document", "1.0 effective documents, at least 10 are required"),
        ([1_000_000, 10, 10, 10], "document", "1.0 effective documents, at least 10 are required"),
        ([1000] * 4, "source", "4.0 effective sources, at least 5 are required"),
    ],
)
def test_too_little_text_shows_nothing(sizes, cluster, reason):
    sizes = np.array(sizes)
    arms = [points(name, [value] * 4, sizes=sizes) for name, value in (("ref", 0.0), ("better", -5.0))]
    (found,) = compared(*arms, text=heldout(sizes), cluster=cluster)
    assert (found.withheld, set(found.decisions), found.too_few) == (reason, {"undecided"}, True)
    assert found.intervals is None
    json.dumps(dataclasses.asdict(found), allow_nan=False)


def test_documents_are_paired():
    """Documents differ much more between each other than between arms."""
    found = gap([-0.7], n_seeds=1, documents=0.1)
    assert found.intervals[0][1] - found.intervals[0][0] < 0.1
    losses = Losses.of([points("ref", [0.0], n_seeds=1), points("arm", [0.0], n_seeds=1)], heldout())
    alone = losses.estimate({1: lambda a, _: a[0]})[1].known_interval(0.95)
    assert 100 * (alone[1] - alone[0]) > 5


def test_documents_without_weight_do_not_count():
    text = heldout(SIZES, SOURCES, {"web": 1.0})
    (found,) = compared(points("ref", [0.0] * 2), points("arm", [1.0] * 2, documents=1.0), text=text)
    assert (found.n_clusters, found.effective_clusters) == (30, pytest.approx(30))
    assert len(SIZES) == 60


@pytest.mark.parametrize("weights", [{}, {"english": 0.9, "code": 0.1}])
def test_the_gap_at_a_budget_is_the_comparison_there_in_kinds_too(weights):
    rng = np.random.default_rng(0)
    sizes, kind = rng.integers(100, 900, 40), np.repeat([0, 1], [25, 15]).astype(np.int32)
    sources = Grouping(tuple(map(str, range(40))), np.arange(40, dtype=np.int32))
    groups = {"source": sources, "kind": Grouping(("english", "code"), kind)}
    differences = np.array([0.03, -0.05])[kind] + rng.normal(0, 0.01, (3, 40))
    nats = np.stack([np.ones((3, 40)), 1 + differences]) * sizes
    runs = [[made_up(loss, sizes, groups) for loss in arm] for arm in nats]
    runs = [
        [dataclasses.replace(r, config=dataclasses.replace(r.config, weights=weights)) for r in arm] for arm in runs
    ]
    (expected,) = compare_all(runs).values()
    units = runs[0][0].units()
    arms = [points(name, [0.0], sizes=sizes) for name in "ab"]
    arms = [dataclasses.replace(arm, nats=losses[:, None]) for arm, losses in zip(arms, nats, strict=True)]
    (found,) = compared(*arms, text=units, cluster="source")
    assert found.percent[0] == pytest.approx(expected.percent)
    assert found.intervals[0] == pytest.approx(expected.interval)
    unstratified = units._replace(strata=np.zeros(40, np.int64))
    (wide,) = compared(*arms, text=unstratified, cluster="source")
    assert wide.intervals[0][1] - wide.intervals[0][0] > 1.5 * (expected.interval[1] - expected.interval[0])
