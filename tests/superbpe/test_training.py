from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superbpe import PRESETS, Rules, train_superbpe
from superbpe.rules import script_aware
from tests.properties import examples
from tests.superbpe.oracle import batches, expected, expected_lists, pairs
from tokenizer import Batch, count_pretokens, definition, patterns, train_bpe
from tokenizer.reference import TIE_BREAKS

RULES = {
    **PRESETS,
    "spans": replace(PRESETS["spans"], sample=1.0),
    "nothing": Rules(),
    "kept": Rules(phase1_fence="kept"),
    "kept, uw fence": Rules(phase1_fence="kept", fence="uw-2025-fence", unit="line"),
    "kept, punctuation": Rules(phase1_fence="kept", fence="punctuation-fence", max_words=2),
    "words": Rules(fence="uw-2025-fence", max_words=2),
    "one word": Rules(max_words=1),
    "bytes": Rules(unit="line", max_bytes=7),
    "veto": Rules(forbid=("e ", ".", "é")),
    "rare": Rules(min_count=3, fence="punctuation-fence"),
    "short spans": Rules(span_trigger=7, span_cap=3),
    "wide spans": Rules(span_trigger=2, span_cap=9, unit="line"),
    "truncated": Rules(fence="punctuation-fence", truncate_quantile=0.6, unit="line"),
    "truncated, kept": Rules(
        fence="punctuation-fence", truncate_quantile=0.4, phase1_fence="kept", span_trigger=4, span_cap=2
    ),
    "odd fence": Rules(fence=r"(?=[aeiou])|\n"),
    "odd fence, kept": Rules(fence=r"(?<=[aeiou])|th", phase1_fence="kept"),
    "tokens": Rules(max_tokens=3, counting="non-overlapping", tie_break="lexicographic-greatest"),
    "runs, fenced": replace(PRESETS["runs"], fence="[aeiou] ", unit="line", max_words=3, max_tokens=2),
    "runs of words": replace(PRESETS["runs"], eligible="^ [a-z]+$", counting="overlapping", span_trigger=4, span_cap=3),
    "runs of characters": replace(PRESETS["runs"], script_atoms=True),
    "boundless, few eligible": replace(PRESETS["boundless"], eligible="e|t"),
}
COMPETING = [name for name, rules in RULES.items() if rules.interleave]
NOT_COMPETING = [name for name in RULES if name not in COMPETING]
SPECIALS = ("<|endoftext|>",)


def train(phase1, documents, name, **options):
    """Train 160 merges. The first 100 are of phase 1, unless the rules find the transition."""
    transition = "auto" if name in COMPETING else 356
    return train_superbpe(
        phase1, batches(documents), vocab_size=256 + 160 + 1, transition=transition, rules=RULES[name], **options
    )


@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_merges_equal_the_reference(name, documents, longer):
    rules = RULES[name]
    tokenizer = train(longer, documents, name)
    phase1, merges = expected_lists(documents, longer, rules, 100, 160)
    assert len(phase1) + len(merges) == 160 or rules.atoms == "pretokens"
    assert merges
    assert tokenizer.merges == phase1 + pairs(merges)
    assert tokenizer.n_phase1_merges == len(phase1)
    about = tokenizer.provenance["phase2"]
    assert about["last_count"] == merges[-1][2]
    assert about["transition"] == 256 + (len(phase1) if rules.interleave else 100)
    assert tokenizer.mode == ("two-pass" if rules.phase1_fence == "kept" else "one-pass")
    assert tokenizer.eligible == (rules.eligible if rules.atoms == "pretokens" else None)
    assert tokenizer.fence == patterns.resolve(rules.fence)
    assert tokenizer.pattern == (script_aware(longer.pattern) if rules.script_atoms else longer.pattern)
    assert list(tokenizer.special_tokens) == list(SPECIALS)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("n_kept", [0, 1, 150])
def test_ties_and_extreme_transitions(tie_break, n_kept, documents, phase1):
    rules = RULES["uw-2025"]
    tokenizer = train_superbpe(
        phase1,
        batches(documents),
        vocab_size=257 + n_kept + 50,
        transition=256 + n_kept,
        rules=rules,
        tie_break=tie_break,
    )
    _, merges = expected(documents, phase1, rules, n_kept, 50, tie_break)
    assert tokenizer.merges == phase1.merges[:n_kept] + pairs(merges)


LETTERS = st.sampled_from(["ab ", "a ", "ab: .", "a1 \n", "é a", "東京 a"])
TEXTS = LETTERS.flatmap(lambda letters: st.text(alphabet=letters, max_size=24))
PRETOKENS = st.fixed_dictionaries(
    {
        "phase1_fence": st.just("kept"),
        "atoms": st.just("pretokens"),
        "eligible": st.sampled_from([r"\p{L}", ".", "^ ?a+$"]),
        "interleave": st.booleans(),
        "script_atoms": st.booleans(),
    }
)
TOKENS = st.fixed_dictionaries({"phase1_fence": st.sampled_from(["lifted", "kept"])})
SMALL_RULES = st.builds(
    lambda atoms, **rules: Rules(**atoms, **rules),
    atoms=TOKENS | PRETOKENS,
    unit=st.sampled_from(["document", "line"]),
    fence=st.sampled_from(
        ["none", "uw-2025-fence", "punctuation-fence", "uw-paper-fence", "[b]", "(?=a)", "sentence-fence"]
    ),
    max_words=st.sampled_from([None, None, 1, 2]),
    max_bytes=st.sampled_from([None, None, 2, 5]),
    max_tokens=st.sampled_from([None, None, 2, 3]),
    counting=st.sampled_from(["overlapping", "non-overlapping"]),
    tie_break=st.sampled_from([None, *TIE_BREAKS]),
    forbid=st.sampled_from([(), (), (": ",), ("a ", "1")]),
    min_count=st.sampled_from([1, 1, 2]),
    span_trigger=st.sampled_from([None, None, 2, 5]),
    span_cap=st.sampled_from([2, 3, 10]),
    truncate_quantile=st.sampled_from([None, None, 0.3, 0.9, 1.0]),
)


CORPORA = st.lists(TEXTS, min_size=1, max_size=6).filter(any)


def small(documents, rules, n_kept, tie_break="lowest-ids", **options):
    """A training on a tiny corpus, and the two lists of merges that the reference gives for it."""
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2", unit=rules.unit)
    phase1 = train_bpe(counts, 256 + n_kept + 25, special_tokens=["b a"][: n_kept % 2])
    n_kept = min(n_kept, len(phase1.merges))
    specials = len(phase1.special_tokens)
    tokenizer = train_superbpe(
        phase1,
        batches(documents, 2),
        vocab_size=256 + specials + n_kept + 20,
        transition_merges=None if rules.interleave else n_kept,
        rules=rules,
        tie_break=tie_break,
        **options,
    )
    return tokenizer, expected_lists(documents, phase1, rules, n_kept, n_kept + 20, tie_break)


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@examples(
    quick=100,
    full=300,
    documents=CORPORA,
    rules=SMALL_RULES,
    n_kept=st.integers(0, 6),
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


@pytest.mark.parametrize("name", PRESETS)
@given(documents=CORPORA, n_kept=st.integers(0, 12), threshold=st.sampled_from([None, 1, 2, 5]))
@settings(max_examples=25, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_merges_of_every_preset_equal_the_reference(name, documents, n_kept, threshold):
    tokenizer, (phase1, merges) = small(documents, replace(PRESETS[name], sample=1.0), n_kept, threshold=threshold)
    assert tokenizer.merges == phase1 + pairs(merges)


def test_spans_of_any_length_are_measured(phase1):
    """Quantile 1 truncates nothing: the longest span keeps its length."""
    document = "a" * 70_000 + "bc" * 2000
    rules = Rules(truncate_quantile=1.0)
    tokenizer = train_superbpe(phase1, batches([document]), vocab_size=257 + 8, transition=256, rules=rules)
    assert tokenizer.provenance["phase2"]["longest_span"] == 74_000
    assert tokenizer.merges == pairs(expected([document], phase1, rules, 0, 8)[1])


def test_running_out_of_pairs_warns_and_is_recorded(phase1):
    with pytest.warns(UserWarning, match=r"ran out of pairs after \d+ of 544 superword merges"):
        tokenizer = train_superbpe(phase1, batches(["a b c"]), vocab_size=901, transition=356, rules=Rules())
    assert tokenizer.provenance["phase2"]["ran_out_of_pairs"] is True
    assert tokenizer.vocab_size < 901


def test_no_superword_exceeds_the_longest_token():
    start = train_bpe(count_pretokens([Batch.from_texts(["= "])], "none"), 257)
    with pytest.warns(UserWarning, match="pair") as warned:
        tokenizer = train_superbpe(
            start, lambda: iter([Batch.from_texts(["=" * 131_074])]), vocab_size=296, rules="none", transition=256
        )
    messages = sorted(str(warning.message) for warning in warned)
    assert messages[0].startswith("2 pair(s) were not merged, since a token has at most 65,536 bytes")
    assert "ran out of pairs after 16 of 39" in messages[1]
    assert max(map(len, tokenizer.vocab)) == definition.LONGEST_TOKEN
    assert tokenizer.provenance["phase2"]["too_long"] == 2


@pytest.mark.parametrize("name", ["nothing", "uw-2025", "kept"])
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs", "ignore:.*were not merged")
def test_the_longest_token_equals_the_reference(name, documents, phase1, monkeypatch):
    longest = max(len(left + right) for left, right in phase1.merges[:100])
    monkeypatch.setattr(definition, "LONGEST_TOKEN", longest)
    tokenizer = train(phase1, documents, name)
    assert tokenizer.provenance["phase2"]["too_long"] > 0
    _, merges = expected(documents, phase1, RULES[name], 100, 60)
    assert tokenizer.merges[100:] == pairs(merges)
    assert max(len(left + right) for left, right, _ in merges) <= longest
