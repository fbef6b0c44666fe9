"""The rungs of the ladder equal the reference. Some have features of their own: processes, caches, approximation."""

import itertools
import random
from pydoc_data.topics import topics

import pytest
from hypothesis import strategies as st

from experiments.benchmarks.ladder.parallel import ParallelWords, Workers
from experiments.benchmarks.ladder.selection import CachedTopPairs, SortedPairs, Ties
from experiments.benchmarks.ladder.trainers import EXACT, TRAINERS, divergence, learn
from experiments.benchmarks.ladder.words import InPlaceWords
from tests import texts
from tests.experiments.benchmarks.ladder.encoders import ENCODERS, merge_linked, replay
from tests.properties import examples
from tokenizer.reference import (
    TIE_BREAKS,
    as_bytes,
    as_words,
    byte_alphabet,
    count_pretokens,
    encode,
    merge_by_rank,
    ranks_of,
    split,
    train_fast,
    train_naive,
)

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXT = topics["class"] + topics["execmodel"] + "日本語 日本 äöü ääää aaaaaaaa \U0001f98a\U0001f98a"


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counts():
    return count_pretokens([TEXT], GPT2)


# --- All rungs on real text ---


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_all_rungs_learn_the_same_merges_from_real_text(counts, tie_break):
    expected = train_naive(counts, 150, tie_break=tie_break)
    assert train_fast(counts, 150, tie_break=tie_break) == expected
    assert len(expected) == 150
    for name in EXACT:
        if name not in ("naive", "parallel"):
            assert TRAINERS[name](counts, 150, tie_break=tie_break) == expected, name


def test_options_reach_every_rung(counts):
    options = {"min_count": 40, "max_token_bytes": 3, "special_tokens": ["th"]}
    expected = train_naive(counts, 500, **options)
    assert 0 < len(expected) < 500
    assert expected[-1][2] >= 40
    for name in EXACT:
        if name != "naive":
            assert TRAINERS[name](counts, 500, **options) == expected, name


def test_the_naive_rung_rejects_more_pieces_than_it_can_hold():
    with pytest.raises(ValueError, match=r"8,589,934,592 pieces are too many .* use 'deduplicated'"):
        TRAINERS["naive"]({b"ab": 2**33}, 1)
    assert TRAINERS["deduplicated"]({b"ab": 2**33}, 1) == [(b"a", b"b", 2**33)]


# --- Parallel ---


@pytest.fixture(scope="module")
def workers():
    crew = Workers(3)
    yield crew
    crew.close()


def in_parallel(counts, n, workers, tie_break="lowest-ids", **options):
    words = ParallelWords(as_words(counts).items(), workers, **options)
    pairs = SortedPairs(words, Ties(byte_alphabet(), tie_break))
    return list(itertools.islice(learn(words, pairs), n)), words


def test_parallel_merges_are_the_same_wherever_it_turns_serial(counts, workers):
    expected = TRAINERS["fast-max"](counts, 120)
    for window, serial_below in [(1, 1e9), (40, 1e9), (1, 0)]:
        merges, words = in_parallel(counts, 120, workers, window=window, serial_below=serial_below)
        assert merges == expected
        assert (words.local is None) == (serial_below == 0)


def test_parallel_turns_serial_when_the_mean_of_the_window_falls(counts, workers):
    # Two readings of the clock for each merge: the merges take 9, 1, 1, 1... seconds.
    readings = itertools.accumulate(itertools.chain([0, 9], itertools.cycle([0, 1])))
    words = ParallelWords(as_words(counts).items(), workers, window=3, serial_below=3, clock=lambda: next(readings))
    pairs = SortedPairs(words, Ties(byte_alphabet(), "lowest-ids"))
    merges = learn(words, pairs)
    serial = []
    for _ in range(5):
        next(merges)
        serial.append(words.local is not None)
    assert serial == [False, False, False, True, True]


def test_parallel_learns_the_same_merges_from_generated_corpora(workers):
    generator = random.Random(7)
    for case in range(200):
        letters = generator.choice(["ab", "abc ", "a"])
        corpus = {
            "".join(generator.choices(letters, k=generator.randint(1, 9))).encode(): generator.randint(1, 4)
            for _ in range(generator.randint(1, 9))
        }
        tie_break = TIE_BREAKS[case % 3]
        expected = train_naive(corpus, 20, tie_break=tie_break)
        assert in_parallel(corpus, 20, workers, tie_break, window=3, serial_below=5e-4)[0] == expected


def test_the_parallel_trainer_ends_its_processes(counts):
    import multiprocessing

    before = set(multiprocessing.active_children())
    assert TRAINERS["parallel"](counts, 60) == TRAINERS["fast-max"](counts, 60)
    assert TRAINERS["parallel"](counts, 0) == []
    assert set(multiprocessing.active_children()) <= before


def test_a_dead_worker_is_an_error():
    crew = Workers(1)
    crew.load([((b"a", b"b"), 1)])
    crew._processes[0].terminate()
    crew._processes[0].join()
    with pytest.raises(RuntimeError, match=r"a worker died; exit codes: \[-15\]"):
        crew.merge((b"a", b"b"))
    crew.close()
    with pytest.raises(ValueError, match="workers=0 must be at least 1"):
        Workers(0)


# --- The approximate selection ---


def cached(counts, n, refresh):
    words = InPlaceWords(as_words(counts).items())
    pairs = CachedTopPairs(words, Ties(byte_alphabet(), "lowest-ids"), refresh)
    return list(itertools.islice(learn(words, pairs), n))


def test_the_cached_selection_is_exact_when_it_ranks_everything_each_time(counts):
    exact = TRAINERS["fast-max"](counts, 300)
    assert cached(counts, 300, refresh=1) == exact
    assert divergence(exact, exact) == {"merges": 300, "first_difference": None, "in_place": 1.0, "shared": 1.0}


def test_the_cached_selection_differs_once_its_top_tenth_is_used_up(counts):
    exact = TRAINERS["fast-max"](counts, 300)
    approximate = cached(counts, 300, refresh=10**6)
    found = divergence(exact, approximate)
    assert 10 < found["first_difference"] < 300
    assert approximate[: found["first_difference"]] == exact[: found["first_difference"]]
    # It misses the most frequent pair, or the one that a tie belongs to; never does it find a more frequent one.
    assert approximate[found["first_difference"]][2] <= exact[found["first_difference"]][2]
    assert sum(count for *_, count in approximate) < sum(count for *_, count in exact)
    assert 0 < found["in_place"] <= found["shared"] < 1
    # The rung refreshes its cache, and comes closer.
    assert divergence(exact, TRAINERS["approximate"](counts, 300))["shared"] >= found["shared"]


def test_the_cached_selection_merges_every_pair():
    # A tenth of so few pairs is one, so the order is another from the second merge on.
    merges = cached({b"abcd": 2, b"xy": 1}, 9, refresh=10**6)
    assert merges == [(b"a", b"b", 2), (b"ab", b"c", 2), (b"abc", b"d", 2), (b"x", b"y", 1)]
    assert cached({}, 9, refresh=5) == []


def test_divergence_of_lists():
    ab, cd, ef = (b"a", b"b", 9), (b"c", b"d", 8), (b"e", b"f", 7)
    assert divergence([ab, cd], [cd, ab]) == {"merges": 2, "first_difference": 0, "in_place": 0.0, "shared": 1.0}
    assert divergence([ab, cd, ef], [ab]) == {"merges": 3, "first_difference": 1, "in_place": 1 / 3, "shared": 1 / 3}
    assert divergence([], [])["first_difference"] is None


# --- Encoders ---


@pytest.fixture(scope="module")
def merges(counts):
    return [(left, right) for left, right, _ in TRAINERS["fast-max"](counts, 400)]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_all_encoders_give_the_same_tokens(merges, encoder):
    encode_piece = ENCODERS[encoder](merges)
    other = "".join(texts.sample(3_000))[:6_000] + texts.generated(5, 60) + "thethethe   the\n\n aaaaaaaaa"
    for text in (TEXT[:5_000] + TEXT[-60:], other):
        for pattern in (GPT2, r"\s+"):
            assert [token for piece in split(text, pattern) for token in encode_piece(piece)] == encode(
                text, merges, pattern
            )


@examples(
    quick=100,
    full=200,
    counts=st.dictionaries(
        st.text(alphabet="ab ", min_size=1, max_size=9).map(str.encode), st.integers(1, 4), min_size=1
    ),
    text=st.text(alphabet="ab ", max_size=30),
)
def test_all_encoders_agree_on_trained_lists(counts, text):
    trained = [(left, right) for left, right, _ in TRAINERS["fast-max"](counts, 30)]
    expected = merge_by_rank(as_bytes(text), ranks_of(trained))
    for name, encoder in ENCODERS.items():
        assert encoder(trained)(text) == expected, name


# Lists in any order, some tokens made twice, some pairs of tokens that nothing makes.
PARTS = st.sampled_from([b"a", b"b", b"ab", b"ba", b"aa", b"aab", b"bab"])


@examples(
    quick=200,
    full=400,
    listed=st.lists(st.tuples(PARTS, PARTS), max_size=8),
    text=st.text(alphabet="ab", max_size=14),
)
def test_the_heap_follows_ranks_for_any_list(listed, text):
    ranks = ranks_of(listed)
    assert merge_linked(as_bytes(text), ranks) == merge_by_rank(as_bytes(text), ranks)
    assert b"".join(replay(as_bytes(text), listed)).decode() == text


def test_replaying_differs_where_a_merge_makes_an_earlier_one_possible():
    # A merge that is listed before the one that makes its part: no training gives that, an edited file can.
    unordered = [(b"ab", b"c"), (b"a", b"b")]
    assert replay(as_bytes("abc"), unordered) == [b"ab", b"c"]
    assert merge_by_rank(as_bytes("abc"), ranks_of(unordered)) == [b"abc"]
    # A token that two merges make, as in lists that were extended or read off a table of tokens: "abcd" comes
    # about by the last merge, which makes possible one that was listed before it.
    twice = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"c"), (b"abc", b"d"), (b"abcd", b"e"), (b"ab", b"cd")]
    assert replay(as_bytes("abcde"), twice) == [b"abcd", b"e"]
    assert merge_by_rank(as_bytes("abcde"), ranks_of(twice)) == [b"abcde"]
    assert merge_linked(as_bytes("abcde"), ranks_of(twice)) == [b"abcde"]


def test_the_last_rank_of_a_pair_listed_twice_counts_for_every_encoder():
    listed = [(b"a", b"b"), (b"b", b"c"), (b"a", b"b")]
    for name in ("replay", "minimum-scan", "linked-heap", "cached", "lru"):
        assert ENCODERS[name](listed)("abc") == [b"a", b"bc"], name


@pytest.mark.parametrize("name", ["cached", "lru"])
def test_a_caller_may_change_the_tokens_it_gets(name):
    encode_piece = ENCODERS[name]([(b"a", b"b")])
    encode_piece("abc").clear()
    assert encode_piece("abc") == [b"ab", b"c"]


def test_a_long_piece_does_not_take_quadratic_time():
    ranks = ranks_of([(b"a", b"a"), (b"aa", b"aa"), (b"aaaa", b"aaaa")])
    assert merge_linked([b"a"] * 100_001, ranks) == [b"a" * 8] * 12_500 + [b"a"]
