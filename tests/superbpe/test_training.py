from dataclasses import replace

import pytest
from hypothesis import strategies as st

from superbpe import PRESETS, Rules, train_superbpe
from superbpe.inspection.tokens import describe
from tests.properties import examples, quick_first
from tests.superbpe.oracle import CORPORA, RULES, SMALL_RULES, SPECIALS, batches, expected_lists, pairs, small, train
from tokenizer import UserError, definition, patterns, train_bpe
from tokenizer.reference import TIE_BREAKS


@pytest.mark.parametrize("name", quick_first(RULES, 5))
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_merges_equal_the_reference(name, documents, phase1):
    rules = RULES[name]
    tokenizer = train(phase1, documents, name)
    kept, merges = expected_lists(documents, phase1, rules, 100, 160)
    assert len(kept) + len(merges) == 160 or rules.atoms == "pretokens"
    assert merges
    assert tokenizer.merges == kept + pairs(merges)
    assert tokenizer.n_phase1_merges == len(kept)
    about = tokenizer.provenance["phase2"]
    assert about["last_count"] == merges[-1][2]
    assert about["transition"] == 256 + (len(kept) if rules.interleave else 100)
    assert tokenizer.mode == ("two-pass" if rules.phase1_fence == "kept" else "one-pass")
    assert tokenizer.eligible == (rules.eligible if rules.atoms == "pretokens" else None)
    assert tokenizer.fence == patterns.resolve(rules.fence)
    assert tokenizer.pattern == phase1.pattern
    assert list(tokenizer.special_tokens) == list(SPECIALS)


@pytest.mark.parametrize(("tie_break", "n_kept"), [(tie_break, 160 * i) for i, tie_break in enumerate(TIE_BREAKS[:2])])
def test_ties_and_extreme_transitions(tie_break, n_kept, documents, phase1):
    rules = RULES["uw-2025"]
    options = {"vocab_size": 257 + n_kept + 50, "transition": 256 + n_kept, "tie_break": tie_break}
    tokenizer = train_superbpe(phase1, batches(documents), rules=rules, **options)
    _, merges = expected_lists(documents, phase1, rules, n_kept, n_kept + 50, tie_break)
    assert tokenizer.merges == phase1.merges[:n_kept] + pairs(merges)


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@examples(
    quick=15,
    full=100,
    documents=CORPORA,
    rules=SMALL_RULES | st.sampled_from([replace(rules, sample=1.0) for rules in PRESETS.values()]),
    n_kept=st.integers(0, 12),
    threshold=st.sampled_from([None, 1, 2, 3, 7]),
    threads=st.sampled_from([1, 2]),
    tie_break=st.sampled_from(TIE_BREAKS),
)
def test_merges_of_small_corpora_equal_the_reference(documents, rules, n_kept, threshold, threads, tie_break):
    tokenizer, (phase1, merges) = small(documents, rules, n_kept, tie_break, threshold=threshold, threads=threads)
    assert tokenizer.merges == phase1 + pairs(merges)
    assert tokenizer.n_phase1_merges == len(phase1)
    full = len(phase1) + len(merges) == tokenizer.provenance["phase2"]["transition"] - 256 + 20
    if not rules.interleave:
        assert tokenizer.provenance["phase2"]["ran_out_of_pairs"] == (not full)


def test_spans_of_any_length_are_measured(phase1):
    """Quantile 1 truncates nothing: the longest span keeps its length."""
    document = "a" * 70_000 + "bc" * 2000
    rules = Rules(truncate_quantile=1.0)
    tokenizer = train_superbpe(phase1, batches([document]), vocab_size=257 + 8, transition=256, rules=rules)
    assert tokenizer.provenance["phase2"]["longest_span"] == 74_000
    assert tokenizer.merges == pairs(expected_lists([document], phase1, rules, 0, 8)[1])


def test_patterns_are_compiled_once_for_all_tokens(phase1, documents, monkeypatch):
    compiled = []
    for name in ("split", "count_pieces"):
        native = getattr(patterns._native, name)
        monkeypatch.setattr(patterns._native, name, lambda *a, native=native: compiled.append(a[1]) or native(*a))
    found = train(phase1, documents, "uw-2025")
    assert found.provenance["phase2"]["unreachable_phase1_tokens"] > 0
    found.crossing_ids()
    describe(found)
    assert len(compiled) == 3  # once more to see whether the pattern separates words


def test_running_out_of_pairs_warns_and_is_recorded(phase1):
    with pytest.warns(UserWarning, match=r"ran out of pairs after \d+ of 544 superword merges"):
        tokenizer = train_superbpe(phase1, batches(["a b c"]), vocab_size=901, transition=356, rules=Rules())
    assert tokenizer.provenance["phase2"]["ran_out_of_pairs"] is True
    assert tokenizer.vocab_size < 901
    with pytest.warns(UserWarning, match="ran out of pairs"):
        short = train_bpe(["a b c"], 400)
    with pytest.raises(UserError, match=r"too small.* 2 phase-1 merges"):
        train_superbpe(short, ["a b c"], vocab_size=400, transition=300, rules=Rules())


def test_no_superword_exceeds_the_longest_token():
    start = train_bpe(["= "], 257, pattern="none")
    with pytest.warns(UserWarning, match="pair") as warned:
        tokenizer = train_superbpe(start, ["=" * 131_074], vocab_size=296, rules="none", transition=256)
    messages = sorted(str(warning.message) for warning in warned)
    assert messages[0].startswith("2 pair(s) were not merged, since a token has at most 65,536 bytes")
    assert "ran out of pairs after 16 of 39" in messages[1]
    assert max(map(len, tokenizer.vocab)) == definition.LONGEST_TOKEN
    assert tokenizer.provenance["phase2"]["too_long"] == 2


@pytest.mark.parametrize("name", quick_first(["uw-2025", "nothing", "kept"]))
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs", "ignore:.*were not merged")
def test_the_longest_token_equals_the_reference(name, documents, phase1, monkeypatch):
    longest = max(len(left + right) for left, right in phase1.merges[:100])
    monkeypatch.setattr(definition, "LONGEST_TOKEN", longest)
    tokenizer = train(phase1, documents, name)
    assert tokenizer.provenance["phase2"]["too_long"] > 0
    _, merges = expected_lists(documents, phase1, RULES[name], 100, 160)
    assert tokenizer.merges[100:] == pairs(merges)
    assert max(len(left + right) for left, right, _ in merges) <= longest
