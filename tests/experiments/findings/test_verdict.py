import itertools

from experiments.findings.compared import Findings
from experiments.findings.verdict import at_scale, decision, decisions, detail, statements, verdict, worth_headline
from lm.data.shards import TextLoss
from lm.evaluate.deployment import Deployment
from lm.scaling.equivalent import Equivalent
from lm.scaling.pricing import Study
from tests.experiments.arms import compared, scored
from tests.lm.scaling.ladders import compared as compared_over_compute
from tests.lm.scaling.ladders import gap, heldout, points

_REQUIRES = " A verdict about the tokenizers requires 3 seeds."


def result(difference, **settings):
    n = settings.get("n_seeds", 3)
    both = [scored("BPE", 2.0, n_seeds=n), scored("SuperBPE", 2.0 + difference, n_seeds=n)]
    return Findings(both, {(0, 1): compared(difference, **settings)})


def test_the_verdict_is_a_sentence():
    for difference, apart, sentence in (
        (-0.2, True, "SuperBPE predicts held-out text better than BPE: 10.00 % fewer bits per byte (3 seeds each)."),
        (0.5, True, "BPE predicts held-out text better than SuperBPE: SuperBPE needs 25.00 % more bits per byte (3"),
        (0.1, False, "No significant difference between BPE and SuperBPE in how well they predict held-out text (3"),
    ):
        assert verdict(result(difference, apart=apart)).startswith(sentence)
    cheaper = Findings([scored("BPE", 2.0), scored("SuperBPE", 1.8, flops=740)], {(0, 1): compared(-0.2)})
    assert "10.00 % fewer bits per byte, for 26 % fewer training FLOPs (one" in verdict(cheaper)
    arms = [scored("BPE", 2.0), scored("A", 1.8, flops=740), scored("B", 1.8, flops=2000)]
    both = verdict(Findings(arms, {(0, 1): compared(-0.2), (0, 2): compared(-0.2)}))
    assert ", with −26 to +100 % training FLOPs" in both
    equal = result(0.1, apart=False)
    for each in equal.arms:
        each.settings["budget.mode"] = "equal_flops"
    assert verdict(equal).startswith("At equal training compute, no significant difference between BPE and SuperBPE")


def test_fewer_than_three_seeds_name_no_better_tokenizer():
    one = result(-0.2, n_seeds=1)
    assert one.winner is None
    assert verdict(one) == (
        "The SuperBPE model predicts held-out text better than the BPE model: 10.00 % fewer bits per byte (one "
        f"training run each).{_REQUIRES}"
    )
    assert (decision(one.shown, one.labels), one.withheld) == ("withheld", "1 seed, at least 3 are required")
    assert verdict(result(0.1, n_seeds=2, apart=False)) == (
        "No significant difference between these 4 models in how well they predict held-out text "
        f"(2 seeds each).{_REQUIRES}"
    )
    three = result(-0.2)
    assert three.winner is three.arms[1]
    assert decision(three.shown, three.labels) == "SuperBPE"
    assert decision(compared(0.1, apart=False), ("BPE", "SuperBPE")) == "undecided"


def test_few_effective_documents_allow_no_conclusion():
    for unit, n, effective, fewest in (("document", 12, 8.04, 10), ("source", 21, 4.25, 5), ("document", 1, 1.0, 10)):
        few = result(-0.2, cluster=unit, n_clusters=n, effective_clusters=effective)
        assert few.leader is few.winner is None
        assert verdict(few) == (
            f"Too few held-out {unit}s to compare BPE and SuperBPE: there are {n}, which count as {effective:.1f} of "
            f"equal size, and at least {fewest} are required."
        )
        assert few.withheld.startswith(f"{effective:.1f} effective {unit}s")


def test_the_detail_says_what_the_interval_holds():
    assert "so it does not include the spread between seeds" in detail(result(-0.2, n_seeds=1))
    assert "3 paired seeds; standard error from seeds 0.21, from documents 0.13" in detail(result(-0.2))
    clustered = detail(result(-0.2, n_documents=1000, cluster="source", n_clusters=40, effective_clusters=17.24))
    assert "the 40 sources of 1,000 held-out documents, which count as 17.2 of equal size" in clustered
    alone = compared(-0.2, interval=None, n_documents=1)
    assert "no interval, because there are too few documents" in detail(Findings(result(-0.2).arms, {(0, 1): alone}))


def test_the_detail_says_what_else_differs():
    both = [scored("BPE", 2.0), scored("SuperBPE", 1.8, vocab_size=9000, parameters=1200)]
    told = detail(Findings(both, {(0, 1): compared(-0.2)}))
    assert " The vocabularies have 8,192 to 9,000 tokens, which" in verdict(Findings(both, {(0, 1): compared(-0.2)}))
    assert "The models differ in parameters (in the embeddings only): BPE 1,000 and SuperBPE 1,200." in told
    both[1] = scored("SuperBPE", 1.8, parameters=1300, layers=700)
    assert "BPE 1,000 (600) and SuperBPE 1,300 (700)." in detail(Findings(both, {(0, 1): compared(-0.2)}))
    assert "longer" not in detail(result(-0.2, interval=(-11.0, -9.0)))
    longer = "The interval is longer below the measured value, because a few documents"
    assert longer in detail(result(-0.2, interval=(-14.0, -9.0)))
    found = result(-0.2)
    loss = TextLoss(changed_documents=3, unknown_tokens=5, unaccounted_bytes=7)
    found.arms[1].heldout.contents.text_loss = loss
    assert "SuperBPE loses text (3 documents changed, 5 unknown tokens, 7 bytes covered by no token)" in detail(found)


def result_of_many(*bits, undecided=(), n_seeds=3, **settings):
    """Arms of which the first is the reference; the other pairs are not tested."""
    arms = [scored(f"t={i}", each, n_seeds=n_seeds) for i, each in enumerate(bits)]
    settings["n_seeds"] = n_seeds
    pairs = {
        (i, j): compared(2 * (bits[j] / bits[i] - 1), apart=j not in undecided, tested=i == 0, **settings)
        for i, j in itertools.combinations(range(len(bits)), 2)
    }
    return Findings(arms, pairs)


def test_several_arms_are_each_compared_with_the_reference():
    one = result_of_many(2.0, 1.8, 1.9, 2.2, 1.99, undecided=[4])
    assert verdict(one) == (
        "t=1 and t=2 predict held-out text better than t=0: 5.00 to 10.00 % fewer bits per byte; "
        "t=0 predicts held-out text better than t=3: t=3 needs 10.00 % more bits per byte; "
        "no significant difference between t=0 and t=4 (3 seeds each)."
    )
    assert (one.winner, one.pair) == (None, (0, 1))  # nothing is said about t=1 and t=2
    expected = {(0, 1): "t=1", (0, 3): "t=0", (0, 4): "undecided", (1, 2): "not tested"}
    assert {pair: decision(one.comparisons[pair], [one.labels[i] for i in pair]) for pair in expected} == expected
    assert "corrected for 4 comparisons with t=0" in detail(one)
    _, *others = detail(one).splitlines()
    assert (len(others), others[1]) == (3, "t=3 against t=0: +10.00 % bits per byte, 95 % interval +10.00 to +10.00.")
    single = result_of_many(2.0, 1.8, 2.2)
    assert single.winner is single.arms[1]
    best = result_of_many(2.0, 2.1, 2.2)
    assert best.winner is best.arms[0]
    assert "t=0 predicts held-out text better than t=1 and t=2: t=1 and t=2 need 5.00 to 10.00 % more" in verdict(best)
    pooled = result_of_many(2.0, 1.8, 2.2, pooled=("t=0", "t=1", "t=2"))
    assert "standard error from seeds 0.21 (pooled over t=0, t=1 and t=2)" in detail(pooled)


def test_of_many_the_verdict_stays_a_sentence():
    many = [2 + i / 100 for i in range(13)]
    assert verdict(result_of_many(*many, undecided=range(13))).startswith(
        "No significant difference between t=0 and t=1, t=2, t=3 and 9 more (3"
    )


def test_the_phase_1_of_superwords_alone_divides_the_difference():
    settings = [{"recipe": recipe, "pattern": pattern} for recipe, pattern in (("bpe", "o200k"), ("superbpe", "old"))]
    arms = [scored(f"arm {i}", 2.0, settings=each, n_seeds=3) for i, each in enumerate([*settings, {**settings[1]}])]
    arms[2].settings["recipe"] = "bpe"
    percent = {(0, 1): 0.2, (0, 2): -0.02, (1, 2): 0.0}
    said = detail(Findings(arms, {pair: compared(difference) for pair, difference in percent.items()}))
    assert "Of the +10.00 % of arm 1, pattern and unit account for −1.00 % (arm 2 against arm 0)" in said
    assert "and superwords for +11.11 % (arm 1 against arm 2)." in said
    arms[2].settings["pattern"] = "o200k"
    assert "account for" not in detail(Findings(arms, {pair: compared(0.1) for pair in percent}))


def test_a_gap_names_the_range_and_the_trend():
    shrinking = gap([-1.4, -1.2, -1.0, -0.8], scatter=0.05)
    assert statements(shrinking)[:2] == [
        "between 2e15 and 6e16 FLOPs, arm needs fewer bits per byte than ref, by 0.8 to 1.4 %",
        "the gap shrinks with compute (slope +0.18 points per e-fold of FLOPs, 95 % interval +0.18 to +0.18)",
    ]
    assert decisions(shrinking) == ["better"] * 4
    # At the two smaller budgets, 0 is within the intervals of half width 0.5.
    mixed = gap([0.1, 0.3, 0.8, 0.9], scatter=0.2)
    assert statements(mixed)[0] == (
        "between 2e15 and 6.2e15 FLOPs, undecided: gaps from +0.1 to +0.3 %, with 95 % intervals from −0.4 to +0.8 %; "
        "between 1.9e16 and 6e16 FLOPs, arm needs more bits per byte than ref, by 0.8 to 0.9 %"
    )
    assert decisions(mixed) == ["undecided", "undecided", "worse", "worse"]


def test_few_runs_or_budgets_claim_neither_tokenizer_nor_trend():
    two = statements(gap([-1.4, -1.2, -1.0, -0.8], n_seeds=2, scatter=0.01))
    assert two[0].startswith("between 2e15 and 6e16 FLOPs, the models of arm need fewer bits per byte than the models")
    assert two[1].startswith("no trend with compute is claimed from so little data (slope +0.18 points")
    assert two[2] == "2 runs per arm: this is about these models, and names no better tokenizer"
    assert statements(gap([-1.4, -1.0], scatter=0.05))[1].startswith("no trend with compute is claimed from so little")
    assert statements(gap([0.7]))[1] == "one budget: no trend can be seen"
    assert statements(gap([0.0] * 4))[1].startswith("no trend with compute is shown")


def test_a_barred_arm_has_numbers_and_no_verdict_over_compute_and_worth_is_said_of_every_arm():
    arms = points("ref", [0.0] * 4), points("lower", [-7.0] * 4, barred="lower changes or loses text")
    (found,) = compared_over_compute(*arms)
    said = statements(found)
    assert said[0].startswith("the verdict is withheld: lower changes or loses text; between 2e15 and 6e16 FLOPs, ")
    assert len(said) == 1
    assert set(decisions(found)) == {"withheld"}
    (priced,) = Study(arms, heldout()).at(Deployment())[1:]
    assert worth_headline({"lower": priced.equivalents["decode"]}, "ref") == "No verdict: lower changes or loses text"
    answers = {name: Equivalent(name, "", percent=-3.25) for name in ("yes", "no", "undecided", "unknown")}
    equal = "at equal cost of training and serving"
    assert worth_headline(answers, "bpe") == (
        f"yes is worth it: 3.2 % fewer bits per byte than bpe {equal}; no is not worth it instead of bpe {equal}; "
        f"undecided whether undecided is worth it {equal}; no verdict about unknown"
    )


def test_results_at_scale_stand_beside_small_models_only():
    assert "FLOPs" in at_scale(1e15, superwords=True)
    assert at_scale(1e15, superwords=False) == at_scale(6e19, superwords=True) == at_scale(1e23, superwords=True) == ""


def test_the_detail_states_kinds_and_their_weights():
    arms = [scored("BPE", 2.0), scored("SuperBPE", 1.9)]
    kinds = {"english": compared(-0.1), "code": compared(0.1)}
    said = [
        detail(Findings(arms, {(0, 1): compared(-0.1, cluster="source", kinds=kinds, weights=weights)}))
        for weights in ({}, {"english": 0.6, "code": 0.4})
    ]
    assert "which count as 50.0 of equal size, within 2 kinds of text, and 3 paired seeds" in said[0]
    assert ", within 2 kinds of text weighted english 60 % and code 40 %, and 3 paired seeds" in said[1]
