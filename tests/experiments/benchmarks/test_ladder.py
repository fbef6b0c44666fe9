"""The rungs of the ladder equal the reference. Some have features of their own: processes, approximation."""

import itertools
import multiprocessing
from pydoc_data.topics import topics

import pytest

from experiments.benchmarks import ladder
from experiments.benchmarks.ladder import (
    TRAINERS,
    CachedTopPairs,
    IndexedWords,
    ParallelWords,
    SortedPairs,
    learn,
)
from tokenizer.reference import TIE_BREAKS, as_words, byte_alphabet, count_pretokens, train_naive

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXT = topics["class"] + topics["execmodel"] + "日本語 日本 äöü ääää aaaaaaaa \U0001f98a\U0001f98a"

pytestmark = pytest.mark.slow


# The worked examples of three documents: Production BPE, the CS336 trainer, and The BPE Algorithm, fully worked.
LOW_NEWER, LOW_LOWER = {b"low": 5, b"lower": 2, b"newer": 6}, {b"low": 3, b"lower": 2}
WORKED = {b"I work": 2, b"I worked": 1, b"he ": 2, b"works": 1, b"worked": 1}


@pytest.mark.parametrize(
    ("corpus", "tie_break", "expected"),
    [
        (LOW_NEWER, "lexicographic-smallest", "e r 8, w er 8, l o 7, e wer 6"),
        (LOW_LOWER, "lexicographic-greatest", "o w 5, l ow 5, low e 2, lowe r 2"),
        (WORKED, "lexicographic-smallest", "o r 5, or k 5, w ork 5, _ work 3"),
    ],
)
def test_all_rungs_learn_the_merges_of_worked_examples(corpus, tie_break, expected):
    for name in TRAINERS.keys() - {"approximate", "parallel"}:
        merges = TRAINERS[name](corpus, 4, tie_break=tie_break)
        shown = [f"{left.decode()}|{right.decode()}|{count}" for left, right, count in merges]
        assert ", ".join(shown).replace(" ", "_").replace("|", " ").replace(",_", ", ") == expected, name


@pytest.fixture(scope="module")
def counts():
    return count_pretokens([TEXT], GPT2)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_all_rungs_learn_the_same_merges_from_real_text(counts, tie_break):
    expected = train_naive(counts, 150, tie_break=tie_break)
    options = {"min_count": 40, "max_token_bytes": 3, "special_tokens": ["th"], "tie_break": tie_break}
    chosen = train_naive(counts, 500, **options)
    assert (len(expected), 0 < len(chosen) < 500, chosen[-1][2] >= 40) == (150, True, True)
    for name in TRAINERS.keys() - {"approximate", "naive"}:
        assert name == "parallel" or TRAINERS[name](counts, 150, tie_break=tie_break) == expected, name
        assert TRAINERS[name](counts, 500, **options) == chosen, name


def learned(counts, n, words=ParallelWords, pairs=SortedPairs, tie_break="lowest-ids"):
    words = words(as_words(counts).items())
    merges = list(itertools.islice(learn(words, pairs(words.pair_counts(), byte_alphabet(), tie_break)), n))
    words.close()
    return merges, words


def parallel(**options):
    return type("Parallel", (ParallelWords,), {"n_workers": 3, **options})


def test_parallel_merges_are_the_same_wherever_it_turns_serial(counts):
    for (window, serial_below), tie_break in zip([(1, 1e9), (40, 1e9), (1, 0)], TIE_BREAKS, strict=True):
        merges, words = learned(counts, 120, parallel(window=window, serial_below=serial_below), tie_break=tie_break)
        assert merges == TRAINERS["fast-max"](counts, 120, tie_break=tie_break)
        assert (words.local is None) == (serial_below == 0)


def test_parallel_turns_serial_when_the_mean_of_the_window_falls(counts, monkeypatch):
    words = parallel(window=3, serial_below=3)(as_words(counts).items())
    # Two readings of the clock for each merge: the merges take 9, 1, 1, 1... seconds.
    readings = itertools.accumulate(itertools.chain([0, 9], itertools.cycle([0, 1])))
    monkeypatch.setattr(ladder.time, "perf_counter", lambda: next(readings))
    serial = []
    for pair in list(words.pair_counts())[:5]:
        words.merge(pair)
        serial.append(words.local is not None)
    assert serial == [False, False, False, True, True]


def test_the_parallel_trainer_ends_its_processes(counts):
    before = set(multiprocessing.active_children())
    assert TRAINERS["parallel"](counts, 60) == TRAINERS["fast-max"](counts, 60)
    assert TRAINERS["parallel"](counts, 0) == []
    assert set(multiprocessing.active_children()) <= before


def test_a_dead_worker_is_an_error():
    before = set(multiprocessing.active_children())
    words = parallel(n_workers=1)([((b"a", b"b"), 1)])
    assert words.pair_counts() == {(b"a", b"b"): 1}
    (worker,) = set(multiprocessing.active_children()) - before
    worker.kill()
    with pytest.raises(RuntimeError, match="terminated abruptly"):
        words.merge((b"a", b"b"))
    words.close()


def cached(counts, n, refresh):
    return learned(counts, n, IndexedWords, type("Cached", (CachedTopPairs,), {"refresh": refresh}))[0]


def test_the_cached_selection_is_exact_until_its_top_tenth_is_used_up(counts):
    exact = TRAINERS["fast-max"](counts, 300)
    assert cached(counts, 300, refresh=1) == exact
    approximate = cached(counts, 300, refresh=10**6)
    first = next(i for i, (a, b) in enumerate(zip(exact, approximate, strict=True)) if a != b)
    assert 10 < first < 300
    # It misses the most frequent pair, or the one that a tie belongs to; never does it find a more frequent one.
    assert approximate[first][2] <= exact[first][2]
    assert sum(count for *_, count in approximate) < sum(count for *_, count in exact)
    # The rung refreshes its cache, and comes closer.
    shared = [len(set(exact) & set(merges)) for merges in (approximate, TRAINERS["approximate"](counts, 300))]
    assert 0 < shared[0] <= shared[1]
    # It merges every pair. A tenth of so few pairs is one, so the order is another from the second merge on.
    merges = cached({b"abcd": 2, b"xy": 1}, 9, refresh=10**6)
    assert merges == [(b"a", b"b", 2), (b"ab", b"c", 2), (b"abc", b"d", 2), (b"x", b"y", 1)]
    assert cached({}, 9, refresh=5) == []
