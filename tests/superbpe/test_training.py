from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superbpe import PRESETS, Rules, train_superbpe
from superbpe.passes import Passes
from superbpe.rules import script_aware
from tests import texts
from tests.superbpe.oracle import batches, expected, expected_lists, pairs
from tokenizer import Batch, Tokenizer, UserError, count_pretokens, patterns, spelling, train_bpe
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


@pytest.fixture(scope="module")
def documents(disputed):
    """A few kB of everything, since the reference is slow. Repetition makes superwords frequent."""
    found = [text[:900] for text in texts.english()[0][:9]] + [texts.code()[:1500], texts.SCRIPTS["Greek"]]
    found += ["it is a  test:  it is a  test, 1234 it is. " * 4, "a<|endoftext|>b of the<|endoftext|>", ""]
    found += [texts.generated(3, 60), "aaaa aaaaaa " * 6, "\n\n\n  x\n\n\n  x", "camelCase camelCase"]
    return ["".join(c for c in text if c not in disputed) for text in found]


@pytest.fixture(scope="module")
def phase1(documents):
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2", special_tokens=SPECIALS)
    return train_bpe(counts, 256 + 150 + 1)


def train(phase1, documents, name, **options):
    """Train 160 merges. The first 100 are of phase 1, unless the rules find the transition."""
    transition = "auto" if name in COMPETING else 356
    return train_superbpe(
        phase1, batches(documents), vocab_size=256 + 160 + 1, transition=transition, rules=RULES[name], **options
    )


@pytest.fixture(scope="module")
def longer(documents):
    """A phase 1 with as many merges as the competing superwords."""
    return train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2", special_tokens=SPECIALS), 256 + 160 + 1)


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


@given(
    documents=CORPORA,
    rules=SMALL_RULES,
    n_kept=st.integers(0, 6),
    threshold=st.sampled_from([None, 1, 2, 3, 7]),
    threads=st.sampled_from([1, 2]),
    tie_break=st.sampled_from(TIE_BREAKS),
)
@settings(max_examples=300, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
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


# ------------------------------------------------------------------------------- settings that do not change merges


@pytest.fixture(scope="module")
def larger():
    documents = texts.sample(150_000)
    return documents, train_bpe(count_pretokens([Batch.from_texts(documents)], "superbpe"), 1200)


def trained(larger, rules, size=None, **options) -> Tokenizer:
    documents, phase1 = larger
    transition = "auto" if rules.interleave else 800
    return train_superbpe(
        phase1, batches(documents, size), vocab_size=1200, transition=transition, rules=rules, **options
    )


@pytest.mark.parametrize("name", ["uw-2025", "spans", "kept, uw fence", "nothing", "runs", "boundless"])
@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 1, "threads": 1},
        {"threshold": 2, "threads": 3, "size": 1},
        {"threshold": 5, "size": 7},
        {"threshold": 60},  # too high: more passes
        {"threads": 1, "size": 13},
        {"threads": 7},
    ],
    ids=str,
)
def test_thresholds_threads_and_batches_change_nothing(name, options, larger):
    reference_ = trained(larger, RULES[name], threshold=1, threads=2)
    assert trained(larger, RULES[name], **options).sha256 == reference_.sha256


def test_a_threshold_that_is_too_high_is_lowered_and_counted(larger):
    tokenizer = trained(larger, RULES["uw-2025"], threshold=10_000)
    phase2 = tokenizer.provenance["phase2"]
    assert phase2["stages"] > 1
    assert phase2["threshold"] <= phase2["last_count"]
    assert tokenizer.sha256 == trained(larger, RULES["uw-2025"]).sha256


@pytest.mark.parametrize("name", ["uw-2025", "short spans", "kept, uw fence", "runs", "boundless"])
def test_memory_changes_only_the_number_of_passes(name, larger):
    unlimited = trained(larger, RULES[name], threshold=2)
    with pytest.warns(UserWarning, match="phase 2 needs more memory than 0 MB even for a few merges at a time"):
        tight = trained(larger, RULES[name], threshold=2, memory_bytes=1)
    assert tight.sha256 == unlimited.sha256
    assert tight.provenance["phase2"]["last_count"] == unlimited.provenance["phase2"]["last_count"]
    some = trained(larger, RULES[name], threshold=2, memory_bytes=400_000)
    assert some.sha256 == unlimited.sha256


def test_without_a_threshold_between_two_more_memory_is_used(larger, monkeypatch):
    """There is no threshold between 1 and 2. A search that retried 1 would not end."""
    fits, tried = Passes._fits, []

    def not_at_one(self, sources, threshold):
        tried.append(threshold)
        assert len(tried) < 20
        return (threshold > 1 or self.memory_bytes == inf) and fits(self, sources, threshold)

    documents, phase1 = larger
    options = {"vocab_size": 3000, "transition": 800, "rules": RULES["words"], "threshold": 1}
    few = documents[:3]
    unlimited = train_superbpe(phase1, batches(few), **options)
    monkeypatch.setattr(Passes, "_fits", not_at_one)
    with pytest.warns(UserWarning, match="phase 2 needs more memory"):
        tight = train_superbpe(phase1, batches(few), **options)
    assert tight.sha256 == unlimited.sha256
    assert tried == [1, 4, 1, 2, 1, 1]


def test_less_memory_means_more_stages_and_fewer_fragments(larger):
    about = [
        trained(larger, RULES["uw-2025"], threshold=2, memory_bytes=memory).provenance["phase2"]
        for memory in (None, 1_000_000, 300_000)
    ]
    assert [facts["stages"] for facts in about] == sorted(facts["stages"] for facts in about)
    assert about[0]["stages"] == 1
    assert about[2]["stages"] > 1
    assert about[2]["fragment_tokens"] < about[0]["fragment_tokens"]
    assert about[2]["phase1_tokens"] == about[0]["phase1_tokens"]


def test_rules_change_merges(larger):
    names = ["uw-2025", "spans", "kept, uw fence", "nothing", "words", "bytes", "short spans", "truncated"]
    assert len({trained(larger, RULES[name]).sha256 for name in names}) == len(names)


def test_caps_and_vetoes_hold(larger):
    tokenizer = trained(larger, Rules(max_words=3, max_bytes=12, forbid=(": ", "of t")))
    made = [tokenizer.vocab[i] for i in tokenizer.merge_ids[tokenizer.n_phase1_merges :, 2]]
    assert max(len([word for word in token.split(b" ") if word]) for token in made) == 3
    assert max(map(len, made)) == 12
    assert not any(b": " in token or b"of t" in token for token in made)
    unruled = trained(larger, Rules())
    assert any(b": " in token or b"of t" in token or len(token) > 12 for token in unruled.vocab)


def test_phase2_merges_nest(larger):
    documents, phase1 = larger
    small = train_superbpe(phase1, batches(documents), vocab_size=1000, transition=800, rules=RULES["uw-2025"])
    assert trained(larger, RULES["uw-2025"]).cut(1000).sha256 == small.sha256


def test_a_cut_before_the_transition_is_the_cut_of_phase_1(larger):
    tokenizer = trained(larger, RULES["uw-2025"])
    assert tokenizer.cut(700).sha256 == larger[1].cut(700).sha256
    assert tokenizer.cut(700).fence is None


# ------------------------------------------------------------------------------- vetoes in Python


def told(refuse):
    """A veto, and the candidates it was called with."""
    asked = []

    def veto(left, right, count):
        asked.append((left, right, count))
        return refuse(left, right, count)

    return veto, asked


REFUSALS = {
    "right parts": lambda left, right, count: right.startswith(b" t"),
    "counts": lambda left, right, count: count % 3 == 0,
    "nothing": lambda left, right, count: False,
    "everything": lambda left, right, count: True,
}


@pytest.mark.parametrize("refuse", REFUSALS)
@pytest.mark.parametrize("threshold", [None, 1, 4, 10_000])
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_a_veto_sees_every_candidate_once(refuse, threshold, documents, phase1):
    veto, asked = told(REFUSALS[refuse])
    expected_veto, expected_asked = told(REFUSALS[refuse])
    rules, options = RULES["words"], {"vocab_size": 256 + 140 + 1, "transition": 356}
    some = documents if refuse != "everything" else ["it is so. it is so"]
    tokenizer = train_superbpe(phase1, batches(some), rules=rules, veto=veto, threshold=threshold, **options)
    _, merges = expected(some, phase1, rules, 100, 40, veto=expected_veto)
    assert tokenizer.merges[100:] == pairs(merges)
    assert asked == expected_asked
    assert len(set(asked)) == len(asked)


def test_an_exception_in_a_veto_propagates(documents, phase1):
    def veto(left, right, count):
        raise ZeroDivisionError(f"{left!r} {right!r} {count}")

    with pytest.raises(ZeroDivisionError, match=r"b'\S* ?' b'.*' \d+"):
        train_superbpe(phase1, batches(documents), vocab_size=400, transition=300, rules=Rules(), veto=veto)


def test_vetoes_and_competition(documents, longer):
    veto, asked = told(lambda left, right, count: b"t" in right)
    tokenizer = train_superbpe(longer, batches(documents), vocab_size=417, rules="boundless", veto=veto)
    made = [right for _, right in tokenizer.merges[tokenizer.n_phase1_merges :]]
    assert made
    assert not any(b"t" in right for right in made)
    assert len({pair[:2] for pair in asked}) == len(asked)


# ------------------------------------------------------------------------------- transitions, errors


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
    ("transition", "message"),
    [
        (
            {"transition": 1001},
            "the transition 1001 is outside the vocabulary: with vocab_size=1000 it must be from 256 to 999",
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
        ({"transition_merges": -1}, "the transition 255 is outside the vocabulary"),
        ({}, "pass the transition either as transition or as transition_merges"),
        ({"transition": 500, "transition_merges": 244}, "pass the transition either as"),
    ],
)
def test_impossible_transitions_are_errors(transition, message, larger):
    documents, phase1 = larger
    with pytest.raises(UserError) as error:
        train_superbpe(phase1, batches(documents), vocab_size=1000, rules=Rules(), **transition)
    assert message in str(error.value)


def test_a_transition_beyond_the_tokenizer_is_an_error(larger):
    documents, phase1 = larger
    with pytest.raises(UserError, match="needs 1044 phase-1 merges, but the tokenizer has 943; use at most 1199"):
        train_superbpe(phase1, batches(documents), vocab_size=2000, transition=1300, rules=Rules())


def test_other_mistakes_are_errors(larger):
    documents, phase1 = larger
    with pytest.raises(UserError, match="vocab_size=200 is below"):
        train_superbpe(phase1, batches(documents), vocab_size=200, transition=256, rules=Rules())
    with pytest.raises(UserError, match="corpus is empty"):
        train_superbpe(phase1, batches(["", ""]), vocab_size=1000, transition=800, rules=Rules())
    with pytest.raises(UserError, match="lowest-ids"):
        train_superbpe(phase1, batches(documents), vocab_size=1000, transition=800, rules=Rules(), tie_break="random")
    with pytest.raises(UserError, match="max_words=0"):
        train_superbpe(phase1, batches(documents), vocab_size=1000, transition=800, rules=Rules(max_words=0))


def test_running_out_of_pairs_warns_and_is_recorded(phase1):
    with pytest.warns(UserWarning, match=r"ran out of pairs after \d+ of 544 superword merges"):
        tokenizer = train_superbpe(phase1, batches(["a b c"]), vocab_size=901, transition=356, rules=Rules())
    assert tokenizer.provenance["phase2"]["ran_out_of_pairs"] is True
    assert tokenizer.vocab_size < 901


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


def test_no_superword_exceeds_the_longest_token():
    start = train_bpe(count_pretokens([Batch.from_texts(["= "])], "none"), 257)
    with pytest.warns(UserWarning, match="pair") as warned:
        tokenizer = train_superbpe(
            start, lambda: iter([Batch.from_texts(["=" * 131_074])]), vocab_size=296, rules="none", transition=256
        )
    messages = sorted(str(warning.message) for warning in warned)
    assert messages[0].startswith("2 pair(s) were not merged, since a token has at most 65,536 bytes")
    assert "ran out of pairs after 16 of 39" in messages[1]
    assert max(map(len, tokenizer.vocab)) == spelling.LONGEST_TOKEN
    assert tokenizer.provenance["phase2"]["too_long"] == 2


@pytest.mark.parametrize("name", ["nothing", "uw-2025", "kept"])
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs", "ignore:.*were not merged")
def test_the_longest_token_equals_the_reference(name, documents, phase1, monkeypatch):
    longest = max(len(left + right) for left, right in phase1.merges[:100])
    monkeypatch.setattr(spelling, "LONGEST_TOKEN", longest)
    tokenizer = train(phase1, documents, name)
    assert tokenizer.provenance["phase2"]["too_long"] > 0
    _, merges = expected(documents, phase1, RULES[name], 100, 60)
    assert tokenizer.merges[100:] == pairs(merges)
    assert max(len(left + right) for left, right, _ in merges) <= longest
