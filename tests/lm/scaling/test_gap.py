"""Differences over compute: known gaps, trends and crossings, published numbers, and the sentences about them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from lm.scaling.estimates import Arm, Estimates
from lm.scaling.gap import compare_arms
from lm.scaling.verdict import statements, verdict
from tests.lm.scaling.ladders import (
    CROSSING,
    FLOPS,
    REFERENCE,
    compare_ladders,
    law_through,
    measured_ladder,
    noisy,
    with_documents,
)
from tokenizer.errors import UserError

BAKEOFF_FLOPS = [6.0e19, 1.0e20, 1.5e20, 2.0e20, 2.6e20]
LLAMA_3 = np.array([0.9615, 0.9531, 0.9370, 0.9208, 0.9062])
SUPERBPE_128K = [0.4, 0.4, 1.1, 1.5, 1.9]
"""Means over 7 domains, and percent above Llama 3's tokenizer (marin-community/marin, pull request 6916)."""


def above(percent, name="arm", n_seeds=1, reference=None, scatter=0.0):
    """The reference and an arm at these percentages above it; seeds are spread evenly around them."""
    points = REFERENCE(FLOPS[: len(percent)]) if reference is None else reference
    flops = FLOPS[: len(percent)] if reference is None else BAKEOFF_FLOPS
    spread = scatter * np.linspace(-1, 1, n_seeds) if n_seeds > 1 else np.zeros(1)
    rows = [points * (1 + (np.array(percent) + shift) / 100) for shift in spread]
    return measured_ladder("ref", flops, [points] * n_seeds), measured_ladder(name, flops, rows)


def compared(reference, arm, **options):
    (gap,) = compare_ladders(reference, [arm], **options)
    return gap


def said(reference, arm):
    return statements(compared(reference, arm), [Arm.of(each).curve for each in (reference, arm)])


def test_published_numbers_give_the_published_lesson():
    reference, arm = above(SUPERBPE_128K, "SuperBPE 128k", reference=LLAMA_3)
    gap = compared(reference, arm)
    assert gap.trend.slope == pytest.approx(1.088, abs=5e-4)
    assert gap.trend.interval == pytest.approx((0.412, 1.765), abs=5e-4)  # t with 3 degrees of freedom
    assert gap.crossings == ()
    assert gap.intervals is None
    assert set(gap.signs) == {0}
    first, *others = said(dataclasses.replace(reference, name="Llama 3"), arm)
    assert first == (
        "between 6e19 and 2.6e20 FLOPs, the model of SuperBPE 128k needs more bits per byte than the model of Llama 3, "
        "by 0.4 to 1.9 %; the gap grows with compute (slope 1.1 points per e-fold of FLOPs, 95 % interval 0.4 to 1.8)"
    )
    assert others == [
        "the curves do not cross inside the measured 6e19 to 2.6e20 FLOPs",
        "one run per arm: this is about these models, and names no better tokenizer",
        "the curve of Llama 3 only interpolates: its points do not identify the floor and the exponent",
        "the curve of SuperBPE 128k only interpolates: its points do not identify the floor and the exponent",
    ]


def test_a_mean_over_other_domains_is_not_compared():
    sources = [f"domain {i}" for i in range(11)]
    reference = measured_ladder("Llama 3", BAKEOFF_FLOPS, [LLAMA_3], sources=sources[:7])
    arm = measured_ladder("SuperBPE", BAKEOFF_FLOPS, [LLAMA_3], sources=sources)
    with pytest.raises(
        UserError, match="SuperBPE cannot be compared with Llama 3: only one of them is scored on domain 10"
    ):
        compare_ladders(reference, [arm])


def test_a_known_crossing_is_found():
    reference, arm = (measured_ladder(name, FLOPS, [law(FLOPS)]) for name, law in (("a", REFERENCE), ("b", CROSSING)))
    gap = compared(reference, arm)
    assert gap.band.method == "law"
    (crossing,) = gap.crossings
    assert crossing.flops == pytest.approx(1e16, rel=1e-3)
    # Interpolation from three rungs finds it too, if less exactly.
    gap = compared(reference.rungs([0, 1, 3]), arm.rungs([0, 1, 3]))
    assert gap.band.method == "interpolation"
    assert gap.crossings[0].flops == pytest.approx(1e16, rel=0.1)


def test_a_crossing_has_the_range_in_which_it_may_be():
    rng = np.random.default_rng(0)
    reference, arm = noisy(rng, "a", REFERENCE, trunk=0.0005), noisy(rng, "b", CROSSING, trunk=0.0005)
    gap = compared(reference, arm)
    (crossing,) = gap.crossings
    assert crossing.low < 1e16 < crossing.high
    assert gap.signs[0] == 1
    assert gap.signs[-1] == -1
    sentences = said(reference, arm)
    assert ", b needs more bits per byte than a, by" in sentences[0]
    assert ", b needs fewer bits per byte than a, by" in sentences[0]
    assert "the gap falls with compute" in sentences[0]
    assert "the curves cross near 1.1e16 FLOPs (between 8e15 and 1.6e16)" in sentences[1]


def simulated(rng, n_seeds, ratio, trunk=0.003, rung=0.001):
    """Points of an arm and a reference, as `noisy` draws them, without fitting their curves."""

    def points(values):
        noise = trunk * rng.normal(size=(n_seeds, 1)) + rung * rng.normal(size=(n_seeds, len(values)))
        rows = values * np.exp(noise)
        return Estimates(rows.mean(axis=0), rows)

    base = REFERENCE(FLOPS)
    return points(base * ratio).percent_above(points(base))


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_intervals_of_gaps_and_trends_hold_the_truth_as_often_as_they_say(n_seeds):
    """400 simulations; 95 % intervals of the gap at the largest budget and of the slope."""
    rng = np.random.default_rng(0)
    x = np.log(FLOPS)
    percent = np.array([-0.2, 0.1, 0.5, 1.0])
    slope = np.polyfit(x, percent, 1)[0]
    gaps = slopes = 0
    for _ in range(400):
        gap = simulated(rng, n_seeds, 1 + percent / 100)
        low, high = gap.intervals(0.95)[-1]
        gaps += low <= 1.0 <= high
        low, high = gap.slope(x).intervals(0.95)[0]
        slopes += low <= slope <= high
    assert 0.92 <= gaps / 400 <= 0.98
    assert 0.92 <= slopes / 400 <= 0.98


@pytest.mark.slow
def test_coverage_in_a_long_simulation():
    """250 bake-offs of 3 arms with 3 seeds and 4 rungs: parameters, bands, extrapolation, crossing, false verdicts."""
    rng = np.random.default_rng(0)
    hits: dict[str, list[bool]] = {}

    def inside(name, interval, truth):
        hits.setdefault(name, []).append(interval[0] <= truth <= interval[1])

    for _ in range(250):
        ladders = [noisy(rng, name, law) for name, law in (("a", REFERENCE), ("same", REFERENCE), ("b", CROSSING))]
        arms = [Arm.of(ladder) for ladder in ladders]
        for arm, law in zip(arms, (REFERENCE, REFERENCE, CROSSING), strict=True):
            assert arm.curve.law is not None
            inside("floor", arm.curve.floor_interval, law.floor)
            inside("exponent", arm.curve.exponent_interval, law.exponent)
            at = np.array([1e16, 1.8e17])
            for name, interval, truth in zip(
                ("curve", "extrapolation"), arm.read(at, law=True).intervals(0.95), law(at), strict=True
            ):
                inside(name, interval, truth)
        same, crossing = compare_arms(arms[0], arms[1:])
        hits.setdefault("false verdicts", []).append(any(same.signs))
        for each in crossing.crossings:
            inside("crossing", (each.low or 0, each.high or np.inf), 1e16)
    rates = {name: np.mean(found) for name, found in hits.items()}
    assert rates.pop("false verdicts") <= 0.05 / 2 + 0.02  # half of the level: two arms are compared
    assert all(0.92 <= rate <= 0.995 for rate in rates.values()), rates


def test_documents_are_resampled_in_pairs():
    """One seed, and documents that differ much more between each other than between arms."""
    arms = with_documents(np.random.default_rng(0), {"a": REFERENCE, "b": law_through(1.49, 0.596, 0.2)})
    gap = compared(arms["a"], arms["b"], samples=400)
    assert gap.n_documents == 200
    widths = [high - low for low, high in gap.intervals]
    alone = Arm.of(arms["a"], samples=400).points.half_widths(0.95) / arms["a"].mean * 200
    assert max(widths) < min(alone) / 10
    # The linearized error of a ratio of sums.
    bits = [arms[name].document_bits[0, 0] for name in "ba"]
    residuals = bits[0] - bits[0].sum() / bits[1].sum() * bits[1]
    expected = 2 * 1.972 * 100 * np.sqrt(200 / 199 * residuals @ residuals) / bits[1].sum()
    assert widths[0] == pytest.approx(expected, rel=0.1)
    assert "this is about these models" in said(arms["a"], arms["b"])[2]


def test_the_verdict_names_the_range_and_the_trend():
    reference, arm = above([-1.4, -1.2, -1.0, -0.8], n_seeds=3, scatter=0.05)
    assert verdict(compared(reference, arm)) == (
        "between 2e15 and 6e16 FLOPs, arm needs fewer bits per byte than ref, by 0.8 to 1.4 %; "
        "the gap shrinks with compute (slope 0.2 points per e-fold of FLOPs, 95 % interval 0.2 to 0.2)"
    )
    # At the two smaller budgets, 0 is within the intervals of half width 0.5.
    reference, arm = above([0.1, 0.3, 0.8, 0.9], n_seeds=3, scatter=0.2)
    gap = compared(reference, arm)
    assert gap.signs == (0, 0, 1, 1)
    assert verdict(gap).startswith(
        "between 2e15 and 6.2e15 FLOPs, undecided: 0.1 to 0.3 %, with 95 % intervals from -0.4 to 0.8 %; "
        "between 1.9e16 and 6e16 FLOPs, arm needs more bits per byte than ref, by 0.8 to 0.9 %; the gap grows"
    )
    two = above([-1.4, -1.2, -1.0, -0.8], n_seeds=2, scatter=0.01)
    assert verdict(compared(*two)).startswith("between 2e15 and 6e16 FLOPs, the models of arm need fewer")
    assert said(*two)[2] == (
        "2 runs per arm: this is about these models, and names no better tokenizer; train 3 seeds or more"
    )


def test_rungs_are_tested_from_the_largest_budget_down():
    """A difference that is shown at a smaller budget only does not count."""
    reference, arm = above([2.0, 2.0, 0.1, 2.0], n_seeds=3, scatter=0.2)
    gap = compared(reference, arm)
    assert gap.signs == (0, 0, 0, 1)
    reference, arm = above([2.0, 2.0, 2.0, 0.1], n_seeds=3, scatter=0.2)
    gap = compared(reference, arm)
    assert gap.signs == (0, 0, 0, 0)
    assert verdict(gap).startswith("between 2e15 and 6e16 FLOPs, undecided: 0.1 to 2.0 %")


def test_more_arms_widen_the_intervals():
    reference, arm = above([0.5, 0.5, 0.5, 0.5], n_seeds=3, scatter=0.15)
    (alone,) = compare_ladders(reference, [arm])
    first, _ = compare_ladders(reference, [arm, dataclasses.replace(arm, name="other")])
    assert (alone.level, first.level) == (0.95, 0.975)
    assert set(alone.signs) == {1}
    assert set(first.signs) == {0}
    assert "with 95 % intervals, corrected to 97.5 %, from" in verdict(first)


def test_identical_arms_do_not_cross():
    reference, arm = above([0.0] * 4, n_seeds=3)
    gap = compared(reference, arm)
    assert gap.crossings == ()
    assert set(gap.signs) == {0}
    assert "no trend with compute is shown" in verdict(gap)
    single = above([0.0] * 4)
    assert verdict(compared(*single)).startswith("between 2e15 and 6e16 FLOPs, no difference was measured")


def test_one_budget_has_neither_trend_nor_crossing():
    reference, arm = above([0.7])
    assert said(reference, arm)[:2] == [
        "at 2e15 FLOPs, the model of arm needs more bits per byte than the model of ref, by 0.7 %",
        "one budget: neither a trend nor a crossing can be seen",
    ]


def test_gaps_can_be_stored_as_json():
    reference, arm = above([0.1, -0.3, 0.8, 0.9], n_seeds=3, scatter=0.2)
    json.dumps(dataclasses.asdict(compared(reference, arm)), allow_nan=False)
