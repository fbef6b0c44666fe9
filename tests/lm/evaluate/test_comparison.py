"""Intervals and verdicts on made-up losses whose spread is known."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import compare, compare_all
from lm.evaluate.significance import Component, estimate, holm, ratio_component, seed_component, t_quantile
from tests.lm.evaluate.test_evaluation import made_up
from tokenizer.errors import UserError

LOG2 = math.log(2)


@pytest.mark.parametrize(
    ("confidence", "degrees", "value"),
    [(0.95, 1, 12.706205), (0.95, 2, 4.302653), (0.99, 5, 4.032143), (0.9, 30, 1.697261), (0.95, 1e7, 1.959964)],
)
def test_t_quantiles_equal_the_tables(confidence, degrees, value):
    assert t_quantile(confidence, degrees) == pytest.approx(value, abs=2e-6)


def test_holm_by_hand():
    # 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1 -> not below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_components_by_hand():
    assert seed_component([1.0, 2.0, 3.0]) == pytest.approx((1 / 3, 2))
    # Equal sizes: the variance of the mean ratio is that of a mean.
    assert ratio_component(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == pytest.approx((0.25, 1))
    both = estimate(1.0, [seed_component([0.0, 2.0]), seed_component([1.0, 1.0])], 0.95)
    assert both.interval == pytest.approx((1 - 12.706205, 1 + 12.706205), rel=1e-5)
    assert both.p_value == pytest.approx(0.5)  # t = 1 with one degree of freedom
    both = estimate(1.0, [Component(0.04, 2), Component(0.09, 5)], 0.95)
    half = math.sqrt(0.04 * 4.302653**2 + 0.09 * 2.570582**2)
    assert both.interval == pytest.approx((1 - half, 1 + half), rel=1e-6)
    assert estimate(half, [Component(0.04, 2), Component(0.09, 5)], 0.95).p_value == pytest.approx(0.05, rel=1e-6)


def runs(rng, n_seeds, *, shift=0.0, seed_sd=0.0, n=40, index=None, shared=0.0):
    """Evaluations of two tokenizers over seeds; `shared` is noise of a source, which all its documents carry."""
    sizes = np.full(n, 100)
    groups = {} if index is None else {"source": Grouping(tuple(map(str, range(index.max() + 1))), index)}
    document = rng.normal(0, 0.02, n) + (0 if index is None else rng.normal(0, shared, index.max() + 1)[index])
    made = []
    for _ in range(n_seeds):
        base = 100 * (1 + rng.normal(0, 0.1, n))
        other = base + 100 * (shift + rng.normal(0, seed_sd) + document + rng.normal(0, 0.01, n))
        made.append((made_up(base, sizes, groups), made_up(other, sizes, groups)))
    return [pair[0] for pair in made], [pair[1] for pair in made]


def with_config(evaluation, **settings):
    return dataclasses.replace(evaluation, config=dataclasses.replace(evaluation.config, **settings))


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_intervals_over_seeds_have_their_nominal_coverage(n_seeds):
    """95 % intervals over new seeds and documents in each trial. Intervals over documents alone cover half as often."""
    rng = np.random.default_rng(0)
    hits = alone = 0
    for _ in range(200):
        a, b = runs(rng, n_seeds, seed_sd=0.02)
        found = compare(*([with_config(e, bootstrap_samples=2) for e in each] for each in (a, b)))
        hits += found.interval[0] <= 0 <= found.interval[1]
        alone += abs(found.difference) <= 1.96 * found.document_error
    assert 0.93 <= hits / 200 <= 1.0
    assert alone / 200 < 0.75


def test_a_difference_within_the_spread_of_seeds_is_not_significant():
    rng = np.random.default_rng(1)
    a, b = runs(rng, 3, shift=0.01, seed_sd=0.05)
    over = compare(a, b)
    assert over.verdict == "no significant difference"
    assert over.n_seeds == 3
    assert over.difference == pytest.approx(np.mean(over.seed_differences))
    assert over.seed_error > over.document_error > 0
    # Single pairs of those runs say that it is one: their documents agree.
    assert {compare(one, two).verdict for one, two in zip(a, b, strict=True)} & {"A better", "B better"}
    json.dumps(over.summary(), allow_nan=False)


def test_a_difference_that_all_seeds_share_is_found():
    a, b = runs(np.random.default_rng(2), 3, shift=-0.1, seed_sd=0.005)
    found = compare(a, b)
    assert found.verdict == "B better"
    assert found.p_value < 0.05
    assert found.interval[0] < found.bootstrap_interval[0] < found.bootstrap_interval[1] < found.interval[1] < 0
    assert compare(b, a).verdict == "A better"
    with pytest.raises(UserError, match="train the same number"):
        compare(a, b[:2])


def test_documents_of_one_source_are_resampled_together():
    index = np.repeat(np.arange(40), 25).astype(np.int32)
    a, b = runs(np.random.default_rng(3), 1, n=1000, index=index, shared=0.05)
    single = ([with_config(e, cluster="document") for e in each] for each in (a, b))
    together, apart = compare(a, b), compare(*single)
    assert (together.cluster, together.n_clusters) == ("source", 40)  # auto: there are enough of them
    assert (apart.cluster, apart.n_clusters) == ("document", 1000)
    assert together.difference == pytest.approx(apart.difference)
    widths = [found.interval[1] - found.interval[0] for found in (together, apart)]
    assert widths[0] > 2.5 * widths[1]


def test_few_sources_are_resampled_only_on_request():
    index = np.repeat(np.arange(4), 10).astype(np.int32)
    (a,), (b,) = runs(np.random.default_rng(3), 1, index=index)
    assert compare(a, b).cluster == "document"
    asked = [with_config(e, cluster="source") for e in (a, b)]
    assert compare(*asked).n_clusters == 4
    nowhere = dataclasses.replace(asked[0], groups={})
    with pytest.raises(UserError, match="source_field"):
        nowhere.summary()
    with pytest.raises(UserError, match="different sources"):
        compare(asked[0], dataclasses.replace(asked[1], groups={"source": Grouping(tuple("abcd"), index[::-1].copy())}))


def test_three_tokenizers_are_compared_pairwise_with_a_correction():
    rng = np.random.default_rng(4)
    sizes = np.full(50, 100)
    a = made_up(100 + rng.normal(0, 1, 50), sizes)
    b, c = (made_up(a.text_nats + rng.normal(mean, 3, 50), sizes) for mean in (-1.0, 0.0))
    found = compare_all([a, b, c])
    assert list(found) == [(0, 1), (0, 2), (1, 2)]
    p = [comparison.p_value for comparison in found.values()]
    assert [comparison.p_adjusted for comparison in found.values()] == pytest.approx(holm(p))
    for comparison in found.values():
        if comparison.p_adjusted > 0.05:
            assert comparison.verdict == "no significant difference"
        else:
            assert (comparison.verdict == "A better") == (comparison.interval[0] > 0)
    (alone,) = compare_all([a, b]).values()
    assert alone.p_adjusted == alone.p_value


def test_a_difference_that_survives_alone_may_not_survive_the_correction():
    rng = np.random.default_rng(6)
    sizes = np.full(60, 100)
    a = made_up(100 + rng.normal(0, 1, 60), sizes)
    noise = rng.normal(0, 1, 60)
    noise -= noise.mean()
    # 2.3 standard errors from 0: p of about 0.02, times 10 comparisons of 5 tokenizers.
    b = made_up(a.text_nats + noise - 2.3 * noise.std() / math.sqrt(60), sizes)
    assert compare(a, b).verdict == "B better"
    others = [made_up(a.text_nats + rng.normal(0, 1, 60), sizes) for _ in range(3)]
    assert compare_all([a, b, *others])[0, 1].verdict == "no significant difference"
