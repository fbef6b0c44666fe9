"""Settings of phase 2: those that change merges, those that do not, and mistakes."""

from math import inf

import pytest

from superbpe import Rules, train_superbpe
from superbpe.search import MergeSearch
from tests.properties import quick_first
from tests.superbpe.oracle import RULES, batches
from tokenizer import UserError, patterns


def trained(larger, rules, size=None, **options):
    documents, phase1 = larger
    transition = "auto" if rules.interleave else 800
    return train_superbpe(
        phase1, batches(documents, size), vocab_size=1200, transition=transition, rules=rules, **options
    )


@pytest.mark.parametrize("name", quick_first(["uw-2025", "kept, uw fence", "boundless", "spans", "nothing", "runs"], 3))
def test_thresholds_threads_and_batches_change_nothing(name, larger):
    expected = trained(larger, RULES[name], threshold=1, threads=2)
    for options in (
        {"threshold": 1, "threads": 1},
        {"threshold": 2, "threads": 3, "size": 1},
        {"threshold": 60},  # too high: more passes
        {"threshold": 10_000},
    ):
        found = trained(larger, RULES[name], **options)
        assert found.sha256 == expected.sha256
        about = found.provenance["phase2"]
        assert about["threshold"] <= about["last_count"]
        assert options["threshold"] < 10_000 or about["stages"] > 1


@pytest.mark.parametrize("name", ["uw-2025", "short spans", "kept, uw fence", "runs", "boundless"])
def test_memory_changes_only_the_number_of_passes(name, larger):
    unlimited = trained(larger, RULES[name], threshold=2)
    with pytest.warns(UserWarning, match=r"0 MB.*a smaller vocabulary"):
        tight = trained(larger, RULES[name], threshold=2, memory_bytes=1)
    assert tight.sha256 == unlimited.sha256
    assert tight.provenance["phase2"]["last_count"] == unlimited.provenance["phase2"]["last_count"]
    some = [unlimited, *(trained(larger, RULES[name], threshold=2, memory_bytes=n) for n in (1_000_000, 300_000))]
    assert len({tokenizer.sha256 for tokenizer in some}) == 1
    if name == "uw-2025":
        about = [tokenizer.provenance["phase2"] for tokenizer in some]
        assert [facts["stages"] for facts in about] == sorted(facts["stages"] for facts in about)
        assert about[0]["stages"] == 1
        assert about[2]["stages"] > 1
        assert about[2]["fragment_tokens"] < about[0]["fragment_tokens"]
        assert about[2]["phase1_tokens"] == about[0]["phase1_tokens"]


def test_without_a_threshold_between_two_more_memory_is_used(larger, monkeypatch):
    """There is no threshold between 1 and 2. A search that retried 1 would not end."""
    fits, tried = MergeSearch._fits, []

    def not_at_one(self, sources, threshold):
        tried.append(threshold)
        assert len(tried) < 20
        return (threshold > 1 or self.memory_bytes == inf) and fits(self, sources, threshold)

    documents, phase1 = larger
    options = {"vocab_size": 3000, "transition": 800, "rules": RULES["words"], "threshold": 1}
    few = documents[:3]
    unlimited = train_superbpe(phase1, batches(few), **options)
    monkeypatch.setattr(MergeSearch, "_fits", not_at_one)
    with pytest.warns(UserWarning, match="phase 2 needs more memory"):
        tight = train_superbpe(phase1, batches(few), **options)
    assert tight.sha256 == unlimited.sha256
    assert tried == [1, 4, 1, 2, 1, 1]


def test_smaller_vocabularies_have_the_first_merges_and_rules_change_them(larger):
    documents, phase1 = larger
    small = train_superbpe(phase1, batches(documents), vocab_size=1000, transition=800, rules=RULES["uw-2025"])
    names = ["uw-2025", "spans", "kept, uw fence", "nothing", "words", "bytes", "short spans", "truncated"]
    found = {name: trained(larger, RULES[name]) for name in names}
    assert len({tokenizer.sha256 for tokenizer in found.values()}) == len(names)
    assert found["uw-2025"].cut(1000).sha256 == small.sha256
    before = found["uw-2025"].cut(700)  # the transition
    assert (before.sha256, before.fence) == (phase1.cut(700).sha256, None)


def test_transitions_are_sizes_shares_or_merges(larger):
    documents, phase1 = larger

    def at(**transition):
        return train_superbpe(phase1, batches(documents), vocab_size=1000, rules=RULES["uw-2025"], **transition)

    by_size = at(transition=800)
    assert by_size.n_phase1_merges == 544
    assert at(transition=0.8).sha256 == by_size.sha256
    assert at(transition_merges=544).sha256 == by_size.sha256
    assert at(transition=800.0).provenance["phase2"]["transition"] == 800
    assert by_size.vocab_size == 1000
    assert at(transition=256).n_phase1_merges == 0
    plain = at(transition=999)  # no phase 2 is left
    assert plain.merges == phase1.merges[:743]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"transition": 1001},
            "the transition 1001 is outside the vocabulary: with vocab_size=1000 it must be from 25",
        ),
        ({"transition": 255}, "transition=255 is neither a fraction between 0 and 1 nor a size of at least 256"),
        ({"transition": 0.1}, "the transition 100 is outside"),
        ({"transition": 0}, "transition=0 is neither"),
        ({"transition": -3}, "transition=-3 is neither"),
        ({"transition": 500.5}, "transition=500.5 is neither"),
        ({"transition": 1.0}, "transition=1.0 is neither"),
        ({"transition": float("nan")}, "transition=nan is neither"),
        ({"transition": float("inf")}, "transition=inf is neither"),
        ({"transition_merges": 744}, "the transition 1000 is outside the vocabulary"),
        ({"transition_merges": -1}, "transition_merges=-1 must be from 0 to"),
        ({}, "pass the transition either as transition or as transition_merges"),
        ({"transition": 500, "transition_merges": 244}, "pass the transition either as"),
        ({"transition": 1300, "vocab_size": 2000}, "needs 1044 phase-1 merges, but the tokenizer has 943; use at most"),
        ({"transition": 256, "vocab_size": 200}, "vocab_size=200 is below"),
        ({"transition": 800, "tie_break": "random"}, "lowest-ids"),
        ({"transition": 800, "rules": Rules(max_words=0)}, "max_words=0"),
    ],
)
def test_impossible_settings_are_errors(options, message, larger):
    documents, phase1 = larger
    with pytest.raises(UserError) as error:
        train_superbpe(phase1, batches(documents), **{"vocab_size": 1000, "rules": Rules(), **options})
    assert message in str(error.value)


def test_superwords_are_the_phase_2_tokens_of_two_words(larger):
    tokenizer = trained(larger, RULES["nothing"])
    superwords, crossing = tokenizer.superword_ids(), tokenizer.crossing_ids()
    phase2 = tokenizer.merge_ids[tokenizer.n_phase1_merges :, 2].tolist()
    assert 0 < len(superwords) < len(crossing) <= len(phase2)
    for i in phase2:
        text = tokenizer.vocab[i].decode(errors="replace")
        assert (len(patterns.split(text, tokenizer.pattern)) > 1) == (i in crossing)
        assert (len(text.split()) > 1) == (i in superwords)
    assert set(superwords) <= set(crossing)
    assert all(len(tokenizer.vocab[i].split()) < 2 for i in set(crossing) - set(superwords))
    assert any(b" of the" in tokenizer.vocab[i] for i in superwords)
    assert len(larger[1].superword_ids()) == 0
