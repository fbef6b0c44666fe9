"""Every preset on cases worked out by hand."""

from dataclasses import replace

import pytest

from superbpe import PRESETS, Rules, train_superbpe
from tests.superbpe.oracle import batches
from tokenizer import Batch, Tokenizer, UserError, count_pretokens, patterns, train_bpe
from tokenizer.definition import ALPHABET

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")


def phase1_with(*words):
    """A phase 1 whose merges build these words from left to right."""
    ranks = {bytes([byte]): place for place, byte in enumerate(ALPHABET)}
    merges = []
    for word in (word.encode() for word in words):
        for end in range(2, len(word) + 1):
            if word[:end] not in ranks:
                merges.append((ranks[word[: end - 1]], ranks[word[end - 1 : end]]))
                ranks[word[:end]] = len(ranks)
    return Tokenizer.from_ranks(merges, pattern=patterns.resolve("gpt2"))


def learned(preset, documents, *words, n=20, **changes):
    """Superword merges as pairs of strings."""
    phase1 = phase1_with(*words)
    size = phase1.vocab_size
    rules = replace(PRESETS[preset], **changes)
    tokenizer = train_superbpe(phase1, batches(documents), vocab_size=size + n, transition=size, rules=rules)
    return [(left.decode(), right.decode()) for left, right in tokenizer.merges[tokenizer.n_phase1_merges :]]


UW = ("uw-2025", "uw-paper")
VWXYZ = [" v", " w", " x", " y", " z"]
FOUR = [(" v", " w"), (" x", " y"), (" v w", " x y")]
CAT, CATS = [" the", " cat", " sat", "the"], ["the cat sat on the mat. the cat sat on 99 mats"]
WHOLE = {"sample": 1.0}


@pytest.mark.parametrize(
    ("preset", "documents", "words", "changes", "expected"),
    [
        # A line ends with its line feed. All three pairs occur twice; letters come before white space in HF's
        # alphabet, and both before merges.
        *((uw, ["a b\na b\nc"], [], {}, [("a", " "), ("b", "\n"), ("a ", "b\n")]) for uw in UW),
        # No superword holds ": ". (":", " ") is first and vetoed; so are ("a:", " ") and at last ("a:", " b\n").
        *((uw, ["a: b\n"] * 3, [], {}, [("a", ":"), ("b", "\n"), (" ", "b\n")]) for uw in UW),
        *((uw, ["a:b"] * 3, [], {}, [(":", "b"), ("a", ":b")]) for uw in UW),
        # Four words at most.
        *((uw, [" v w x y z"] * 2, VWXYZ, {}, FOUR) for uw in UW),
        *((uw, [" v w x y z"] * 2, VWXYZ, {"max_words": None}, [*FOUR, (" v w x y", " z")]) for uw in UW),
        # Digits group from the left, 123|456|7, or from the right, 1|234|567.
        ("uw-2025", ["1234567"] * 2, [], {}, [("1", "2"), ("4", "5"), ("12", "3"), ("45", "6")]),
        ("uw-paper", ["1234567"] * 2, [], {}, [("2", "3"), ("5", "6"), ("23", "4"), ("56", "7")]),
        # uw-2025 isolates runs of punctuation, and spaces before white space: in `a  b` the first space is alone.
        ("uw-2025", ["a))"] * 2, [], {}, [(")", ")")]),
        ("uw-paper", ["a))"] * 2, [], {}, [(")", ")"), ("a", "))")]),
        ("uw-2025", ["a  b"] * 2, [], {}, [(" ", "b")]),
        ("uw-2025", ["a  "] * 2, [], {}, [(" ", " ")]),
        # Runs hold whole pretokens that are one token with a letter. They are `the cat sat` and ` the cat sat`: " the"
        # before " mat" is alone, " on" is no token, "." has no letter. With the merges in the other order, " the" is
        # never built: `th` is merged before ` t`.
        ("runs", CATS, CAT, {}, [(" cat", " sat"), (" the", " cat sat"), ("the", " cat sat")]),
        ("runs", CATS, ["the", " cat", " sat", " the"], {}, [(" cat", " sat"), ("the", " cat sat")]),
        # Ties go to the smaller bytes.
        ("runs", [" z a. b a"], [" z", " a", " b"], {}, [(" b", " a"), (" z", " a")]),
        ("runs", [" z a. b a"], [" z", " a", " b"], {"tie_break": "lowest-ids"}, [(" z", " a"), (" b", " a")]),
        # Punctuation and colons end spans: a|:| b|,| c.
        ("spans", ["a: b, c"] * 2, [], WHOLE, [(" ", "b"), (" ", "c")]),
        # Spans are truncated to the 99th percentile: of 101 spans the 100th by length has two tokens.
        ("spans", ["ab"] * 100 + ["vwxyz"], [], WHOLE, [("a", "b"), ("v", "w")]),
        (
            *("spans", ["ab"] * 100 + ["vwxyz"], [], WHOLE | {"truncate_quantile": 1.0}),
            [("a", "b"), ("v", "w"), ("x", "y"), ("vw", "xy"), ("vwxy", "z")],
        ),
        # Single spaces join words, and nothing else does: a| | b c|.\n|\n|d| |1.
        (
            *("phrases", ["a  b c.\n\nd 1"] * 2, [], {}),
            [(".", "\n"), ("b", " "), (" ", "b "), (" b ", "c")],
        ),
        # The number of phase-1 tokens in a superword is limited.
        ("none", [" v w x y z"] * 2, VWXYZ, {"max_tokens": 3}, [(" v", " w"), (" x", " y"), (" x y", " z")]),
    ],
)
def test_merges_worked_out_by_hand(preset, documents, words, changes, expected):
    assert learned(preset, documents, *words, **changes) == expected


def test_runs_count_what_one_merge_joins():
    documents = [" ha ha ha", " x y", " x y"]
    words = [" ha", " x", " y"]
    assert learned("runs", documents, *words)[0] == (" x", " y")
    # Overlapping, both occur twice, and " ha" is the smaller string.
    assert learned("runs", documents, *words, counting="overlapping")[0] == (" ha", " ha")


def test_boundless_superwords_compete_with_phase_1():
    documents = [" of the"] * 5 + [" ox"] * 3
    phase1 = train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2"), 263, special_tokens=())
    merges = [(b" ", b"o"), (b"h", b"e"), (b"t", b"he"), (b" ", b"the"), (b" o", b"f"), (b" o", b"x")]
    assert phase1.merges == merges  # 8 times, then 5 times, and the last 3 times

    def boundless(size, **options):
        tokenizer = train_superbpe(phase1, batches(documents), vocab_size=256 + size, rules="boundless", **options)
        assert tokenizer.provenance["phase2"]["transition"] == 256 + tokenizer.n_phase1_merges
        return tokenizer.merges[: tokenizer.n_phase1_merges], tokenizer.merges[tokenizer.n_phase1_merges :]

    superword = (b" of", b" the")
    assert boundless(5) == (merges[:5], [])  # five times is not more than five times
    assert boundless(6) == (merges[:5], [superword])
    assert boundless(7) == (merges, [superword])  # phase 1's are numbered first, so the sizes do not nest
    assert boundless(6, transition="auto") == boundless(6)
    by_setting = train_superbpe(phase1, batches(documents), vocab_size=262, transition="auto", rules="runs")
    assert by_setting.merges == [*merges[:5], superword]


def test_sentence_superwords_stay_inside_a_sentence():
    merges = learned("sentence", ["We won. We won."] * 2, "We", " We", " won")
    joined = [left + right for left, right in merges]
    assert " We won." in joined
    assert "We won." in joined
    assert not any(". " in token for token in joined)
    assert any(". " in left + right for left, right in learned("none", ["We won. We won."] * 2, "We", " We", " won"))


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        ("runs", {}, "pass the transition either as"),
        ("boundless", {"transition": 300}, "find the transition themselves"),
        ("boundless", {"transition_merges": 3}, "find the transition themselves"),
        ("uw-2025", {"transition": "auto"}, "transition='auto' needs whole pretokens, as in the presets runs"),
        (Rules(phase1_fence="kept"), {"transition": "auto"}, "needs whole pretokens"),
        ("runs", {"transition": "soon"}, "transition='soon' is neither a number nor 'auto'"),
        ("runs", {"transition": "auto", "transition_merges": 3}, "either as transition or as transition_merges"),
        ("boundless", {"vocab_size": 400}, "compete with 144 phase-1 merges, but the tokenizer has 2; train phase 1"),
        ("magic", {"transition": 256}, "rules='magic' is neither Rules nor the name of a preset: uw-2025, uw-paper"),
    ],
)
def test_impossible_transitions_of_presets_are_errors(rules, options, message):
    with pytest.raises(UserError) as error:
        train_superbpe(phase1_with("abc"), batches(["abc"]), **{"vocab_size": 258, "rules": rules, **options})
    assert message in str(error.value)


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_a_phase_1_that_ran_out_of_pairs_may_not_be_cut_before_superwords_compete():
    phase1 = train_bpe(["abc abc"] * 2, 400, pattern="gpt2", special_tokens=())
    train_superbpe(phase1, ["abc abc"], vocab_size=400, rules="boundless")
    with pytest.raises(UserError, match=r"compete .*the tokenizer has 1; train phase 1"):
        train_superbpe(phase1.cut(257), ["abc abc"], vocab_size=400, rules="boundless")


@pytest.mark.parametrize("fence", ["sentence-fence", r"(?<=[.;])(?=\s)"])
def test_long_text_without_an_end_trains_and_encodes(fence):
    """Regexes with look-behind once failed on 200 kB without a match."""
    text = "ab " * 330_000
    phase1 = phase1_with("ab")
    tokenizer = train_superbpe(phase1, batches([text]), vocab_size=261, transition=257, rules=Rules(fence=fence))
    assert b"ab " in tokenizer.vocab
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text
