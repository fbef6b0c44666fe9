"""Intervals and verdicts on made-up losses whose spread is known."""

import dataclasses
import json
import math

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping, sampling_units
from lm.evaluate.comparison import Further, aggregate, compare, compare_all, eligible
from lm.evaluate.config import EvalConfig
from lm.evaluate.significance import t_quantile
from tests.lm.evaluate.evaluations import made_up
from tokenizer.errors import UserError, counted


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


def test_a_difference_within_the_spread_of_seeds_is_not_significant():
    rng = np.random.default_rng(1)
    a, b = runs(rng, 3, shift=0.01, seed_sd=0.05)
    over = compare(a, b)
    assert over.verdict == "undecided"
    assert over.n_seeds == 3
    assert over.percent == pytest.approx(np.mean(over.by_seed))
    assert over.seed_error > over.document_error > 0
    assert over.needed.seeds > 3
    json.dumps(over.summary(), allow_nan=False)


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_fewer_than_three_seeds_give_no_verdict_about_tokenizers(n_seeds):
    """The same tokenizer trained twice: single pairs of runs differ, because their documents agree."""
    a, b = runs(np.random.default_rng(1), 3, seed_sd=0.05)
    assert {compare(one, two).decision for one, two in zip(a, b, strict=True)} & {"better", "worse"}
    found = compare(a[:n_seeds], b[:n_seeds])
    assert found.verdict == "withheld"
    assert found.withheld == f"{counted(n_seeds, 'seed')}, at least 3 are required"
    assert found.summary()["verdict"] == "withheld"


def test_a_difference_that_all_seeds_share_is_found():
    a, b = runs(np.random.default_rng(2), 3, shift=-0.1, seed_sd=0.005)
    found = compare(a, b)
    assert (found.verdict, found.decision, found.withheld) == ("better", "better", "")
    assert found.p_value < 0.05
    assert found.interval[1] < 0
    assert compare(b, a).verdict == "worse"
    with pytest.raises(UserError, match="train the same number"):
        compare(a, b[:2])


def test_documents_of_one_source_are_resampled_together():
    index = np.repeat(np.arange(40), 25).astype(np.int32)
    a, b = runs(np.random.default_rng(3), 1, n=1000, index=index, shared=0.05)
    single = ([with_config(e, cluster="document") for e in each] for each in (a, b))
    together, apart = compare(a, b), compare(*single)
    assert (together.cluster, together.n_clusters) == ("source", 40)
    assert (apart.cluster, apart.n_clusters) == ("document", 1000)
    assert together.percent == pytest.approx(apart.percent)
    widths = [found.interval[1] - found.interval[0] for found in (together, apart)]
    assert widths[0] > 2.5 * widths[1]


@pytest.mark.parametrize("copies", [2, 3000])
@pytest.mark.parametrize("cluster", ["document", "source"])
def test_copies_of_a_document_are_no_evidence(copies, cluster):
    """Neither in a place of their own, nor in other sources."""
    rng, n = np.random.default_rng(0), 160
    sizes, differences = rng.integers(500, 1500, n), rng.normal(0.01, 0.02, n)
    index = np.concatenate([np.arange(n), np.zeros(copies, int)])
    order = rng.permutation(len(index))
    order = order[np.argsort(index[order] != 0, kind="stable")]  # the first of all is the one with copies

    def runs(chosen, weights):
        names, sources = tuple(map(str, range(20))), (np.arange(len(chosen)) % 20).astype(np.int32)
        groups = {"source": Grouping(names, sources)} if cluster == "source" else {}
        nats = [1.0 * sizes, sizes * (1 + differences)]
        made = [made_up(loss[chosen] * weights, sizes[chosen] * weights, groups) for loss in nats]
        return [dataclasses.replace(run, document_hashes=chosen.astype(np.uint64)) for run in made]

    compared = compare(*runs(index[order], np.ones(len(index), int)))
    assert compared.n_documents == n + copies
    assert compared.effective_clusters <= (n if cluster == "document" else 20)
    if cluster == "document":
        weights = np.bincount(index)
        alone = compare(*runs(np.arange(n), weights))
        assert (compared.percent, compared.n_clusters) == (pytest.approx(alone.percent), n)
        assert compared.interval == pytest.approx(alone.interval)
    else:  # a copy in another source counts for the source of the first one
        hashes, source = np.array([5, 5, 6], np.uint64), np.array([1, 0, 0], np.int32)
        assert sampling_units(hashes, source).tolist() == [1, 1, 0]


def test_few_or_unequal_sources_are_not_replaced_by_documents():
    index = np.repeat(np.arange(4), 10).astype(np.int32)
    a, b = runs(np.random.default_rng(3), 3, index=index, shift=0.3)
    found = compare(a, b)
    assert (found.cluster, found.n_clusters, found.n_documents) == ("source", 4, 40)
    assert found.effective_clusters == pytest.approx(4)
    assert found.interval is None
    assert found.withheld == "4.0 effective sources, at least 5 are required"
    assert found.decision == "undecided"
    # Nine sources, of which one has half of the text: 1 / (1/4 + 8/256).
    unequal = np.minimum(np.arange(80) // 5, 8).astype(np.int32)
    assert compare(*runs(np.random.default_rng(3), 1, n=80, index=unequal)).effective_clusters == pytest.approx(32 / 9)
    (a,), (b,) = runs(np.random.default_rng(3), 1, index=index)
    assert compare(*(with_config(e, cluster="document") for e in (a, b))).cluster == "document"
    assert with_config(a, cluster="source").only(index == 0).cluster()[0] == "document"  # of a single source
    nowhere = dataclasses.replace(with_config(a, cluster="source"), groups={})
    with pytest.raises(UserError, match="source_field"):
        nowhere.summary()
    with pytest.raises(UserError, match="different sources"):
        compare(a, dataclasses.replace(b, groups={"source": Grouping(tuple("abcd"), index[::-1].copy())}))


def test_comparisons_with_the_reference_are_corrected_and_the_others_decide_nothing():
    rng = np.random.default_rng(4)
    sizes = np.full(50, 100)
    a = made_up(100 + rng.normal(0, 1, 50), sizes)
    b, c = (made_up(a.text_nats + rng.normal(mean, 3, 50), sizes) for mean in (-1.5, 1.5))
    found = compare_all([a, b, c])
    assert list(found) == [(0, 1), (0, 2), (1, 2)]
    (alone,) = compare_all([a, b]).values()
    assert (alone.level, found[0, 1].level, found[1, 2].level) == (0.95, 0.975, 0.95)
    assert found[0, 1].p_value == pytest.approx(2 * alone.p_value)
    # An interval excludes 0 exactly if the corrected p-value is below 5 %.
    for pair in ((0, 1), (0, 2)):
        assert (found[pair].p_value < 0.05) == (found[pair].decision != "undecided")
    other = found[1, 2]
    assert other.interval[0] > 0
    assert (other.tested, other.decision, other.decided) == (False, "undecided", False)
    assert compare_all([[a] * 3, [b] * 3, [c] * 3])[1, 2].verdict == "not tested"


def test_seeds_are_pooled_over_arms_of_one_recipe():
    """Mean square of the residuals of arm x seed, by hand; the documents have no part in it."""
    sizes, percent = np.full(50, 100), np.array([[0.0, 0.0, 0.0], [1.0, 1.2, 0.8], [2.0, 2.3, 2.3], [0.0, 3.0, 6.0]])
    runs = [[made_up(100 * (1 + each / 100) * np.ones(50), sizes) for each in row] for row in percent]
    eligibility = eligible(runs, list("abcd"), [True, True, True, False])
    assert eligibility.pooled == ("a", "b", "c")
    found = compare_all(runs, eligibility)
    rows = percent[:3]
    residuals = rows - rows.mean(1, keepdims=True) - rows.mean(0) + rows.mean()
    pooled = math.sqrt(2 * (residuals**2).sum() / 4 / 3)
    own = {j: percent[j].std(ddof=1) / math.sqrt(3) for j in (1, 2, 3)}
    assert found[0, 1].seed_error == pytest.approx(max(pooled, own[1]), rel=1e-6)
    assert found[0, 2].seed_error == pytest.approx(max(pooled, own[2]), rel=1e-6)
    assert found[0, 3].seed_error == pytest.approx(own[3], rel=1e-6)  # of another recipe
    assert [found[pair].pooled for pair in ((0, 1), (0, 2), (0, 3))] == [("a", "b", "c")] * 2 + [()]
    alone = compare_all(runs)
    assert {each.pooled for each in alone.values()} == {()}
    for each, degrees in ((found[0, 2], 4), (alone[0, 2], 2)):
        assert each.interval[1] - each.percent == pytest.approx(t_quantile(each.level, degrees) * each.seed_error)
    assert eligible(runs[:2], list("ab"), [True, True]).pooled == ()
    assert eligible(runs, list("abcd"), [False, True, True, True]).pooled == ()


def three_arms(changed, *, scale=1.0):
    """Two equal tokenizers, and one that changes these documents and needs fewer bits; three seeds each."""
    rng = np.random.default_rng(7)
    sizes = np.full(200, 100)
    base = 100 * (1 + rng.normal(0, 0.1, 200))

    def seeds(shift, lost=None):
        return [made_up(base + shift + rng.normal(0, 0.5, 200), sizes, changed=lost) for _ in range(3)]

    lossy = seeds(-7.0, changed)
    return [seeds(0.0), seeds(0.0), [dataclasses.replace(each, text_nats=scale * each.text_nats) for each in lossy]]


def test_a_tokenizer_that_changes_text_takes_part_in_no_verdict():
    arms = three_arms(np.arange(200) < 190)
    found = compare_all(arms)
    reason = "tokenizer 3 changes or loses text in 190 of 200 documents, 95 % of the bytes"
    assert eligible(arms).reasons == ["", "", reason]
    for pair in ((0, 2), (1, 2)):
        assert (found[pair].verdict, found[pair].withheld, found[pair].decision) == ("withheld", reason, "undecided")
        assert not found[pair].tested
        assert found[pair].summary()["withheld"] == reason
    # The others are compared as if it were not there.
    assert found[0, 1] == compare(*arms[:2])
    assert found[0, 1].level == 0.95


def test_few_changed_documents_are_left_out_for_all_tokenizers():
    changed = np.arange(200) == 3
    arms = three_arms(changed)
    eligibility = eligible(arms)
    assert eligibility.reasons == ["", "", ""]
    assert eligibility.documents.tolist() == (~changed).tolist()
    assert eligibility.note.startswith("1 of 200 held-out documents (0.5 % of the bytes) are left out for all")
    found = compare_all(arms)
    assert {each.n_documents for each in found.values()} == {199}
    assert found[0, 2].verdict == "better"
    assert found == compare_all([[each.only(~changed) for each in arm] for arm in arms])
    assert eligible(three_arms(np.arange(200) < 3)).reasons[2]  # 1.5 % of the bytes


def test_a_model_no_better_than_a_uniform_guess_decides_nothing():
    arms = three_arms(None, scale=17_500 / 1.34)
    assert eligible(arms).reasons[:2] == ["", ""]
    assert eligible(arms).reasons[2].startswith("a model of tokenizer 3 needs 17,")
    assert compare_all(arms)[0, 2].verdict == "withheld"
    assert compare_all(arms)[0, 1].verdict == "undecided"


def in_kinds(numbers, shifts, n_arms=2, kinds=True):
    """Evaluations of three seeds, on ten documents of each source; arm i differs by `i` times the shift of the kind."""
    rng = np.random.default_rng(5)
    of_source = np.repeat(np.arange(len(numbers)), numbers)
    source = np.repeat(np.arange(len(of_source)), 10).astype(np.int32)
    groups = {"source": Grouping(tuple(map(str, range(len(of_source)))), source)}
    if kinds:
        groups["kind"] = Grouping(("english", "code", "rare")[: len(numbers)], of_source[source].astype(np.int32))
    sizes = np.full(len(source), 100)
    base = 100 * (1 + rng.normal(0, 0.1, len(source)))
    arms = []
    for i in range(n_arms):
        of_sources = rng.normal(0, 0.005, len(of_source))[source]
        shift = i * np.array(shifts)[of_source[source]]
        noise = rng.normal(0, 0.005, (3, len(source)))
        arms.append([made_up(base * (1 + shift + of_sources + each), sizes, groups) for each in noise])
    return arms


def test_every_kind_has_an_interval_and_a_verdict_and_the_total_does_not_vary_between_them():
    numbers, shifts = (20, 8, 1), (0.03, -0.04, -0.04)
    found = compare(*in_kinds(numbers, shifts))
    without = compare(*in_kinds(numbers, shifts, kinds=False))
    assert (found.percent, found.level, without.kinds) == (pytest.approx(without.percent), 0.95, {})
    widths = [each.interval[1] - each.interval[0] for each in (found, without)]
    assert widths[0] < widths[1] / 2
    assert (found.verdict, without.verdict) == ("worse", "undecided")
    english, code, rare = found.kinds.values()
    assert list(found.kinds) == ["english", "code", "rare"]
    assert [(each.n_clusters, each.n_documents) for each in (english, code, rare)] == [(20, 200), (8, 80), (1, 10)]
    assert [each.verdict for each in (english, code, rare)] == ["worse", "better", "withheld"]
    assert rare.withheld == "1.0 effective sources, at least 5 are required"
    assert (rare.interval, rare.p_value) == (None, None)
    # The kind of one source has no verdict, so the family has two members.
    assert {each.level for each in (english, code, rare)} == {0.975}
    shares = np.array(numbers) / sum(numbers)
    a, b = (shares @ [getattr(each, f"bits_per_byte_{x}") for each in (english, code, rare)] for x in "ab")
    assert found.percent == pytest.approx(100 * (b / a - 1), rel=1e-3)
    content = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert content["kinds"]["code"]["verdict"] == "better"


def test_kinds_are_a_second_family_of_arms_times_kinds():
    pairs = compare_all(in_kinds((20, 8), (0.05, -0.04), n_arms=3))
    assert [pairs[pair].level for pair in ((0, 1), (0, 2), (1, 2))] == [0.975, 0.975, 0.95]
    levels = [pairs[pair].kinds["code"].level for pair in ((0, 1), (0, 2), (1, 2))]
    assert levels == [pytest.approx(0.9875), pytest.approx(0.9875), 0.95]
    assert pairs[1, 2].kinds["code"].verdict == "not tested"
    alone = compare_all(in_kinds((20, 8), (0.05, -0.04), n_arms=3), tested=False)
    assert {len(each.kinds) for each in alone.values()} == {0}


@pytest.mark.parametrize("n_sources", [3, 4])
def test_few_sources_of_a_kind_give_an_interval_and_no_verdict(n_sources):
    kind = compare(*in_kinds((20, n_sources), (0.0, 0.1))).kinds["code"]
    assert kind.interval[0] > 0
    assert (kind.verdict, kind.decision) == ("withheld", "undecided")
    assert compare(*in_kinds((20, 2), (0.0, 0.1))).kinds["code"].interval is None


def test_a_source_belongs_to_the_kind_with_most_of_its_bytes():
    arms = in_kinds((6, 6), (0.0, 0.1))
    index = arms[0][0].groups["kind"].index.copy()
    index[:4] = 1  # four of the ten documents of the first source
    mixed = {"kind": Grouping(("english", "code"), index)}
    changed = [[dataclasses.replace(run, groups={**run.groups, **mixed}) for run in arm] for arm in arms]
    assert compare(*changed) == compare(*arms)


def test_weights_of_kinds_set_the_total():
    weights = {"english": 3.0, "code": 1.0}
    arms = in_kinds((20, 8, 6), (0.03, -0.04, 0.2))
    mixed = [[with_config(run, weights=weights) for run in arm] for arm in arms]
    found, without = compare(*mixed), compare(*arms)
    assert found.weights == {"english": pytest.approx(0.75), "code": pytest.approx(0.25)}
    a, b = (
        [0.75, 0.25] @ np.array([getattr(found.kinds[kind], f"bits_per_byte_{x}") for kind in ("english", "code")])
        for x in "ab"
    )
    assert (found.bits_per_byte_a, found.bits_per_byte_b) == (pytest.approx(a), pytest.approx(b))
    assert np.mean([run.bits_per_byte for run in mixed[0]]) == pytest.approx(a)
    assert aggregate(mixed[0])["bits_per_byte"] == pytest.approx(a)
    assert found.percent == pytest.approx(100 * (b / a - 1), rel=1e-3)
    assert found.interval[0] < found.percent < found.interval[1]
    # The kind without a weight has a line of its own, and no sources in the total.
    assert (found.n_clusters, found.n_documents, without.n_clusters) == (28, 280, 34)
    assert found.kinds == without.kinds


def test_a_single_kind_with_a_weight_is_the_comparison_on_it():
    arms = in_kinds((20, 8), (0.03, -0.04))
    english = arms[0][0].groups["kind"].index == 0
    alone = compare(*([run.only(english) for run in arm] for arm in arms))
    found = compare(*([with_config(run, weights={"english": 2.0}) for run in arm] for arm in arms))
    assert found.percent == pytest.approx(alone.percent)
    assert found.interval == pytest.approx(alone.interval)
    # Of text without these kinds, each byte has the same weight.
    code = [[with_config(run, weights={"english": 2.0}).only(~english) for run in arm] for arm in arms]
    assert compare(*code).percent == pytest.approx(
        compare(*([run.only(~english) for run in arm] for arm in arms)).percent
    )


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_weights_must_be_positive(weight):
    with pytest.raises(UserError, match=r"weights=\{'code': .*\} must be positive numbers, for instance"):
        EvalConfig(weights={"code": weight})


def test_an_arm_that_is_there_twice_is_no_further_comparison():
    rng, sizes = np.random.default_rng(5), np.full(60, 1000)
    losses = [sizes * rng.normal(mean, 0.05, 60) for mean in (1.0, 1.01, 1.02)]
    arms = [dataclasses.replace(made_up(nats, sizes), tokenizer_sha256=str(i)) for i, nats in enumerate(losses)]
    alone, twice = compare_all(arms), compare_all([*arms, arms[1]])
    assert twice[0, 3].verdict == "withheld"
    assert "the same tokenizer" in twice[0, 3].withheld
    assert twice[0, 1].interval == alone[0, 1].interval


def test_what_other_learning_rates_and_other_text_for_the_tokenizer_could_change_widens_the_interval():
    rng, sizes = np.random.default_rng(6), np.full(60, 1000)
    base = sizes * rng.normal(1.0, 0.05, 60)
    arms = [[made_up(base * (1 + shift) + rng.normal(0, 5, 60), sizes) for _ in range(3)] for shift in (0.0, -0.01)]
    plain = compare_all(arms)[0, 1]
    rates = compare_all(arms, further=Further(rates={(0, 1): 0.8}))[0, 1]
    luck = compare_all(arms, further=Further(luck={(0, 1): 0.25}, luck_degrees=5))[0, 1]
    half = {name: np.ptp(found.interval) / 2 for name, found in (("plain", plain), ("rates", rates), ("luck", luck))}
    assert half["rates"] == pytest.approx(np.hypot(half["plain"], 0.8), rel=0.02)
    assert half["luck"] == pytest.approx(np.hypot(half["plain"], 2.571 * 0.5), rel=0.02)
    assert (rates.rates_change, luck.luck_error) == (0.8, 0.5)
    assert plain.decision == "better"
    # A sign that a learning rate turns is undecided, however certain everything else is.
    turned = compare_all(arms, further=Further(rates={(0, 1): abs(plain.percent)}))[0, 1]
    assert (turned.decision, turned.p_value) == ("undecided", 1.0)
