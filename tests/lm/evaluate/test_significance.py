"""Intervals, p-values and corrections: by hand, and in simulations whose true difference is known."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from lm.evaluate.comparison import enough
from lm.evaluate.significance import Ratio, family_level, pool, pooled_variance, strata, t_quantile


def test_the_pooled_variance_by_hand():
    """Two-way residuals of [[0, 1, 2], [0, 2, 1], [3, 3, 3]]: those of the first two arms, of 4 degrees of freedom."""
    values = np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [3.0, 3.0, 3.0]])
    variance, degrees = pooled_variance(values)
    means = values.mean(1, keepdims=True) + values.mean(0) - values.mean()
    assert (float(variance), degrees) == (pytest.approx(2 * ((values - means) ** 2).sum() / 4 / 3), 4)
    # The seeds' own level and a reference's values have no effect.
    assert pooled_variance(values + np.array([5, 7, 9]))[0] == pytest.approx(variance)
    assert pooled_variance(values - values[0])[0] == pytest.approx(variance)
    # Of two arms, it is the variance of their difference.
    pair = Ratio.of((values[1] - values[0])[:, None], np.ones(1))
    assert pooled_variance(values[:2]) == (pytest.approx(float(pair.seed_variance)), pair.seed_degrees)


def test_pooling_never_replaces_a_larger_variance_of_its_own():
    """Seeds of the third arm vary by 3, those of the others by 0.1."""
    seeds = np.array([[0.1, -0.1, 0.0], [0.0, 0.1, -0.1], [3.0, 0.0, -3.0]])
    pairs = {(0, i): Ratio.of(row[:, None], np.ones(1)) for i, row in enumerate(seeds, 1)}
    pooled = pool(pairs, [True] * 4)
    variance, degrees = pooled_variance(np.stack([np.zeros(3), *seeds]))
    assert {ratio.seed_degrees for ratio in pooled.values()} == {degrees}
    mean = np.mean([pair.seed_variance for pair in pairs.values()])
    assert pooled[0, 1].seed_variance == pooled[0, 2].seed_variance == max(variance, mean)
    assert pooled[0, 3].seed_variance == pairs[0, 3].seed_variance > max(variance, mean)
    assert pool(pairs, [True, True, False, False]) == pairs


def test_equal_sizes_give_the_interval_of_the_mean():
    """Student's t from the tables: 2.570582 for 5 degrees of freedom, 4.302653 for 2."""
    values = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])  # not skewed; variance 0.8
    ratio = Ratio.of(values[None] * 2, np.full(6, 2.0))
    half = 2.570582 * math.sqrt(0.8 / 6)
    assert ratio.interval(0.95) == (pytest.approx(2 - half, rel=1e-6), pytest.approx(2 + half, rel=1e-6))
    assert ratio.effective_units == pytest.approx(6)
    shifted = Ratio.of((values[None] - 2 + half) * 2, np.full(6, 2.0))
    assert shifted.p_value() == pytest.approx(0.05, rel=1e-5)
    # Three seeds that agree on no document: their differences alone.
    seeds = Ratio.of(np.outer([1.0, 2.0, 3.0], np.ones(6)), np.ones(6))
    assert seeds.interval(0.95)[1] == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-6)
    # Independent seeds and documents: the squares of the half widths add up.
    both = Ratio.of(np.add.outer([1.0, 2.0, 3.0], values), np.ones(6))
    assert both.interval(0.95)[1] == pytest.approx(4 + math.hypot(half, 4.302653 / math.sqrt(3)), rel=1e-6)


@pytest.mark.parametrize(
    ("numerators", "denominators"),
    [
        ([-0.0001, 0.0016, -0.0091, -0.0152], [0.12, 0.50, 0.99, 4.64]),
        ([0.0193, 0.0006, -0.0014, 0.0022], [3.81, 0.05, 0.14, 0.09]),
    ],
)
def test_few_effective_units_have_a_p_value_that_agrees_with_the_interval(numerators, denominators):
    ratio = Ratio.of(np.array([numerators]), np.array(denominators))
    low, high = ratio.known_interval(0.95)
    assert low < 0 < high
    assert ratio.p_value() > 0.05


def test_noise_of_single_runs_counts_once():
    """Noise of each run on each document is part of the spread of seeds, and not of that of documents."""
    noise = np.random.default_rng(0).normal(size=(2000, 3, 50))
    ratio = Ratio.of(noise, np.ones((2000, 50)))
    assert float(np.median(ratio.unit_variance)) < 0.1 / 150
    low, high = ratio.interval(0.95)
    assert 0.93 <= float(np.mean((low <= 0) & (high >= 0))) <= 0.99


def test_a_long_tail_lengthens_its_side_of_the_interval():
    values = np.random.default_rng(0).exponential(size=40)
    ratio = Ratio.of(values[None], np.ones(40))
    low, high = ratio.interval(0.95)
    assert high - ratio.value > 1.3 * (ratio.value - low)
    low, high = Ratio.of(-values[None], np.ones(40)).interval(0.95)
    assert -values.mean() - low > 1.3 * (high + values.mean())


def test_the_sample_that_is_needed_finds_the_difference():
    rng = np.random.default_rng(0)

    def draw(seeds, documents, rounds=500):
        return rng.normal(0, 0.02, (rounds, seeds, 1)) + rng.normal(0, 0.3, (rounds, 1, documents))

    clusters, seeds = Ratio.of(draw(400, 2000, 1)[0], np.ones(2000)).needed(0.05, 0.95)
    assert (seeds, 300 < clusters < 1000) == (5, True)
    low, _ = Ratio.of(0.05 + draw(seeds, clusters), np.ones((500, clusters))).interval(0.95)
    assert 0.75 <= float(np.mean(low > 0)) <= 0.97
    alone = Ratio.of(draw(1, 4000, 1)[0], np.ones(4000)).needed(0.05, 0.95)
    assert alone.seeds is None
    assert 200 < alone.clusters < 350  # (1.96 + 0.84)² · 0.3² / 0.05² = 283


def test_a_function_of_one_ratio_is_that_ratio_in_strata_too():
    rng = np.random.default_rng(0)
    numerators, denominators = rng.normal(1, 0.3, (3, 40)), rng.uniform(1, 5, 40)
    for kinds in (None, np.arange(40) % 3):
        one = Ratio.of(numerators, denominators, kinds)
        same = Ratio.of_function(lambda r: r[0], numerators[None], denominators, kinds)
        for name, value in vars(one).items():
            assert value == pytest.approx(getattr(same, name), rel=1e-9), name
    # A sum of two ratios with the same denominators is the ratio of the sums.
    two = Ratio.of_function(lambda r: r[0] + r[1], np.stack([numerators, 2 * numerators]), denominators)
    assert two.interval(0.95) == pytest.approx(Ratio.of(3 * numerators, denominators).interval(0.95), rel=1e-9)
    alone = Ratio.of_function(lambda r: r[0], np.ones((1, 2, 1)), np.ones(1))
    assert alone.known_interval(0.95) is None


SIZES = {
    "equal": lambda _, shape: np.ones(shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1, shape),
    "Pareto 1.5": lambda rng, shape: 1 + rng.pareto(1.5, shape),
    "Zipf": lambda _, shape: np.broadcast_to(1 / np.arange(1.0, shape[-1] + 1), shape),
}
"""Distributions of the sizes of documents or sources."""
NOISE = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "lognormal": lambda rng, shape: (rng.lognormal(0, 1, shape) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e),
}
"""Distributions of differences per byte, with mean 0 and variance 1; their skewness is 0, 0, 2 and 6.2."""


class Scenario(NamedTuple):
    """A distribution of differences whose mean is 0."""

    n_units: int  # documents or sources
    sizes: str  # the distribution of their sizes
    noise: str  # the distribution of their differences per byte
    n_seeds: int = 1
    # Shares of the variance of the result from seeds, from units, and from single runs on single units.
    variance: tuple[float, float, float] = (0.0, 1.0, 0.0)
    n_arms: int = 2  # tokenizers, each of which is compared with the first
    pooled: bool = False  # whether the variance of seeds is pooled over them
    noisy: float = 1.0  # standard deviation of the seeds of one of them, relative to that of the others
    noisy_arm: int = -1  # which one
    # With several budgets, the slope of the difference over their logarithms is measured. Half of the variance of seeds
    # and of units is common to all budgets, as with a trunk.
    budgets: int = 1
    by_size: float = 0.0  # share of the variance of a difference per byte that is inversely proportional to the size
    unit: str = "document"  # or `source`


def coverage(scenario, rounds):
    """Share of 95 % intervals that contain 0, where a verdict would not be withheld; of many arms, all together."""
    rng = np.random.default_rng(1)
    n, seeds, k = scenario.n_units, scenario.n_seeds, scenario.budgets
    drawn = 1 if scenario.n_arms == 2 else scenario.n_arms
    sizes = SIZES[scenario.sizes](rng, (rounds, n))
    sizes = sizes / sizes.mean(-1, keepdims=True)

    def per_byte(n_runs, budgets):
        shape = (rounds, drawn, budgets, n_runs, n)
        values = math.sqrt(1 - scenario.by_size) * NOISE[scenario.noise](rng, shape)
        if scenario.by_size:
            values += np.sqrt(scenario.by_size / sizes)[:, None, None, None] * NOISE[scenario.noise](rng, shape)
        return values

    def common(draw):
        return draw(1) if k == 1 else math.sqrt(0.5) * (draw(1) + draw(k))

    of_seeds, of_units, of_both = (math.sqrt(share) for share in scenario.variance)
    values = of_units * common(lambda budgets: per_byte(1, budgets))
    if seeds > 1:
        # The variances of the mean over seeds and units are in the proportion of the shares.
        scale = of_seeds * np.sqrt(seeds * (sizes**2).mean(-1) / n)[:, None, None, None, None]
        scale = (
            scale * np.where(np.arange(drawn) == scenario.noisy_arm % drawn, scenario.noisy, 1.0)[:, None, None, None]
        )
        values = values + scale * common(lambda budgets: rng.standard_normal((rounds, drawn, budgets, seeds, 1)))
        values = values + of_both * math.sqrt(seeds) * per_byte(seeds, k)
    nats = values * sizes[:, None, None, None]
    differences = [nats[:, 0]] if drawn == 1 else [nats[:, i] - nats[:, 0] for i in range(1, drawn)]
    x = np.linspace(-1, 1, k)

    def ratio(difference):
        if k == 1:
            return Ratio.of(difference[:, 0], sizes)
        return Ratio.of_function(lambda ratios: np.tensordot(x, ratios, 1), difference, sizes)

    pairs = {(0, i): ratio(each) for i, each in enumerate(differences, 1)}
    ratios = list((pool(pairs, [True] * drawn) if scenario.pooled else pairs).values())
    covered = np.ones(rounds, bool)
    for each in ratios:
        low, high = each.interval(family_level(0.95, len(ratios)))
        covered &= (low <= 0) & (high >= 0)
    known = np.asarray(enough(ratios[0].effective_units, scenario.unit))
    return float(covered[known].mean()) if known.mean() > 0.1 else math.nan


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("budgets", [1, 4])
def test_intervals_contain_the_truth_as_often_as_they_say(noise, budgets):
    """At least 93 % where a verdict is given, less two standard errors, for differences and for slopes over budgets.

    Slopes take several times as long, so only the difficult cases of few units are simulated for them.
    """
    few = budgets > 1
    scenarios = [
        *(Scenario(n, "equal", noise) for n in ((30,) if few else (30, 100, 1000))),
        *(
            Scenario(n, sizes, noise, by_size=s)
            for n in ((100,) if few else (100, 500))
            for sizes in ("lognormal", "Pareto 1.5")
            for s in (0, 1)
        ),
        # Differences of sources are sums over documents, so five sources are not as skewed as lognormal noise.
        *(Scenario(n, "equal", noise, unit="source") for n in (5, 10, 20) if n > 5 or noise != "lognormal"),
        *(Scenario(20, sizes, noise, by_size=0.5, unit="source") for sizes in ("lognormal", "Zipf")),
        *(
            Scenario(100, "lognormal", noise, n_seeds, variance, by_size=0.5)
            for n_seeds in ((3,) if few else (2, 3, 5))
            for variance in ((1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.2, 0.4, 0.4), (0.0, 0.0, 1.0))
        ),
    ]
    rates = {each: coverage(each._replace(budgets=budgets), 1000) for each in scenarios}
    low = {each: rate for each, rate in rates.items() if rate < 0.92}
    assert not low
    assert np.nanmean(list(rates.values())) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("n_arms", "budgets"), [(3, 1), (6, 1), (3, 4)])
@pytest.mark.parametrize("pooled", [False, True])
def test_equal_tokenizers_are_undecided_as_often_as_they_say(n_arms, pooled, budgets):
    for n_seeds, variance in ((3, (0.4, 0.4, 0.2)), (3, (1.0, 0.0, 0.0)), *([(1, (0.0, 1.0, 0.0))] * (not pooled))):
        for noise in NOISE:
            options = {"pooled": pooled, "by_size": 0.5, "budgets": budgets}
            assert coverage(Scenario(100, "lognormal", noise, n_seeds, variance, n_arms, **options), 500) > 0.93


@pytest.mark.slow
@pytest.mark.parametrize("n_arms", [3, 6])
@pytest.mark.parametrize("n_seeds", [3])
def test_an_arm_of_noisy_seeds_does_not_spoil_the_family(n_arms, n_seeds):
    """Its own standard error is larger than the pooled one, which alone would be wrong in 7 % of the families."""
    scenario = Scenario(100, "equal", "normal", n_seeds, (1.0, 0.0, 0.0), n_arms, pooled=True, noisy=3.0)
    assert coverage(scenario, 4000) > 0.94
    # The reference's seeds are in all comparisons. Without the mean of their variances: 0.897 with six arms.
    assert coverage(scenario._replace(noisy_arm=0), 4000) > 0.92


def test_equal_units_in_two_strata_give_the_interval_of_welch():
    """Half of the bytes in 4 units, half in 6; Student's t of Welch's degrees of freedom, which are 5.66 here."""
    values = np.array([1.0, 3.0, 1.0, 3.0, 11.0, 12.0, 13.0, 11.0, 12.0, 13.0])
    sizes, kinds = np.repeat([3.0, 2.0], [4, 6]), np.repeat([0, 1], [4, 6])
    ratio = Ratio.of((values * sizes)[None], sizes, kinds)
    one, two = 0.25 * values[:4].var(ddof=1) / 4, 0.25 * values[4:].var(ddof=1) / 6
    degrees = (one + two) ** 2 / (one**2 / 3 + two**2 / 5)
    half = t_quantile(0.95, degrees) * math.sqrt(one + two)
    assert float(ratio.unit_degrees) == pytest.approx(degrees)
    assert ratio.interval(0.95) == (pytest.approx(7 - half), pytest.approx(7 + half))
    assert ratio.value == Ratio.of((values * sizes)[None], sizes).value
    # With all of the variance in one stratum, its interval times its share.
    still = np.where(kinds == 1, 12.0, values**2)
    whole, part = Ratio.of((still * sizes)[None], sizes, kinds), Ratio.of(still[None, :4], np.ones(4))
    for end, of_part in zip(whole.interval(0.95), part.interval(0.95), strict=True):
        assert end - whole.value == pytest.approx((of_part - part.value) / 2)


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_a_single_stratum_is_no_stratum(n_seeds):
    rng = np.random.default_rng(0)
    numerators, denominators = rng.lognormal(0, 1, (2, n_seeds, 40)), rng.lognormal(0, 1, 40)

    def change(ratios):
        return ratios[1] / ratios[0]

    for measure in (
        lambda strata: Ratio.of(numerators[0], denominators, strata),
        lambda strata: Ratio.of_function(change, numerators, denominators, strata),
    ):
        none, one = measure(None), measure(np.zeros(40, int))
        assert vars(none).keys() == vars(one).keys()
        assert all(np.array_equal(value, getattr(one, name)) for name, value in vars(none).items())
        assert float(none.unit_degrees) == pytest.approx(float(none.effective_units) - 1, rel=1e-12)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([5, 4, 3], [0, 1, 2]),
        ([5, 4, 2], [0, 1, 1]),  # the smallest other one
        ([5, 4, 1], [0, 1, 1]),
        ([5, 1, 1], [0, 0, 0]),  # two units in one stratum are still too few
        ([9, 5, 2, 1], [0, 1, 3, 3]),  # both together are enough
        ([2, 1, 1], [2, 2, 2]),  # all are too few
        ([1], [0]),
    ],
)
def test_kinds_of_few_units_join_others(numbers, expected):
    kinds = np.repeat(np.arange(len(numbers)), numbers)
    joined = strata(kinds, np.ones(len(kinds)))
    assert [len(set(joined[kinds == k])) for k in range(len(numbers))] == [1] * len(numbers)
    groups = [[other for other in range(len(numbers)) if expected[other] == expected[k]] for k in range(len(numbers))]
    for k, group in enumerate(groups):
        assert sorted(set(kinds[joined == joined[kinds == k][0]].tolist())) == group


def test_effective_units_and_units_without_text_decide_what_joins():
    """Four units, one of which has nearly all of the text, and a kind without text."""
    kinds = np.repeat([0, 1, 2], [5, 4, 2])
    sizes = np.array([2.0] * 5 + [6.0, 0.1, 0.1, 0.1] + [0.0] * 2)
    joined = strata(kinds, sizes)
    assert len(set(joined)) == 1
    ratio = Ratio.of(np.where(sizes > 0, 1.0, 0.0)[None], sizes, joined)
    assert ratio.known_interval(0.95) is not None


class Kinds(NamedTuple):
    """Differences of sources whose kinds have different true values."""

    sources: tuple[int, ...]  # sources of each kind
    noise: str  # the distribution of their differences per byte
    sizes: str = "lognormal"  # the distribution of their sizes
    n_seeds: int = 1
    variance: tuple[float, float] = (0.0, 1.0)  # shares of the variance of the result from seeds and from sources


def coverage_of_kinds(scenario, rounds, stratified=True):
    """Share of 95 % intervals that contain the truth: the kinds' true values, by their shares of the bytes."""
    rng = np.random.default_rng(1)
    kinds = np.repeat(np.arange(len(scenario.sources)), scenario.sources)
    truth, spread = np.array([5.0, -3.0, 1.0])[kinds % 3], np.array([1.0, 0.5, 2.0])[kinds % 3]
    sizes = SIZES[scenario.sizes](rng, (rounds, len(kinds))) * np.array([1.0, 2.0, 0.5])[kinds % 3]
    values = truth + math.sqrt(scenario.variance[1]) * spread * NOISE[scenario.noise](rng, sizes.shape)
    total = sizes.sum(-1, keepdims=True)
    error = np.sqrt((((sizes * spread) / total) ** 2).sum(-1))
    seeds = rng.standard_normal((rounds, scenario.n_seeds)) * error[:, None]
    seeds = seeds * math.sqrt(scenario.n_seeds * scenario.variance[0])
    numerators = sizes[:, None] * (values[:, None] + seeds[..., None])
    joined = np.stack([strata(kinds, each) for each in sizes]) if stratified else None
    ratio = Ratio.of(numerators, sizes, joined)
    low, high = ratio.interval(0.95)
    target = (truth * sizes).sum(-1) / total[:, 0]
    known = np.asarray(enough(ratio.effective_units, "source"))
    return float(((low <= target) & (target <= high))[known].mean()), float(np.median((high - low)[known]))


def test_stratified_intervals_contain_the_truth():
    for n_seeds, variance in ((3, (0.5, 0.5)), (5, (0.2, 0.8))):
        scenario = Kinds((30, 12, 6), "lognormal", "equal", n_seeds, variance)
        rate, width = coverage_of_kinds(scenario, 500)
        assert rate >= 0.93
        assert width < coverage_of_kinds(scenario, 500, stratified=False)[1] / 2


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("sources", [(40, 15, 6), (30, 12, 1), (15, 8, 2), (60,)])
def test_stratified_intervals_contain_the_truth_as_often_as_they_say(noise, sources):
    """At least 93 %, less two standard errors, for kinds of one source too."""
    scenarios = [
        Kinds(sources, noise, sizes, n_seeds, variance)
        for sizes in ("equal", "lognormal")
        for n_seeds, variance in (
            (1, (0.0, 1.0)),
            *((3, shares) for shares in ((0.1, 0.9), (0.5, 0.5), (0.9, 0.1))),
            (5, (0.5, 0.5)),
        )
    ]
    rates = {each: coverage_of_kinds(each, 1000)[0] for each in scenarios}
    assert not {each: rate for each, rate in rates.items() if rate < 0.92}
