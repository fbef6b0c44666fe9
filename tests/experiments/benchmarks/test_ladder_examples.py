"""The worked examples and drills of the source documents, step by step, on every rung that can show them.

Where a document contradicts itself or the facts, a comment says so, and the test holds to what its example shows.
"""

import functools
from collections import Counter
from itertools import pairwise

import pytest

from experiments.benchmarks.ladder import EXACT, TRAINERS, IndexedWords, SeamWords, merge_in_place
from tokenizer import Tokenizer, patterns
from tokenizer.reference import (
    as_bytes,
    as_words,
    break_tie,
    byte_alphabet,
    count_pairs,
    count_pretokens,
    cut_at_special,
    merge_by_rank,
    ranks_of,
    replace_pair,
    split,
)
from tokenizer.train.bpe import merges_that_fit

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SMALLEST, GREATEST = "lexicographic-smallest", "lexicographic-greatest"
# Processes take long to start; that rung has tests of its own.
QUICK = [name for name in EXACT if name != "parallel"]
every_trainer = pytest.mark.parametrize("name", QUICK)


def by_rank(merges):
    """The encoder of the reference."""
    return lambda piece: merge_by_rank(as_bytes(piece), ranks_of(merges))


def replayed(merges):
    """The encoder of *The BPE Algorithm*: each merge of the list in turn, everywhere, from left to right."""
    return lambda piece: list(functools.reduce(replace_pair, merges, tuple(as_bytes(piece))))


def native(merges):
    """The encoder of the Rust core."""
    places = {token: place for place, token in enumerate(byte_alphabet())}
    ranks = []
    for left, right in merges:
        ranks.append((places[left], places[right]))
        places[left + right] = len(places)
    tokenizer = Tokenizer.from_ranks(ranks, pattern=patterns.resolve("none"))
    return lambda piece: [tokenizer.vocab[token] for token in tokenizer.encode_ordinary(piece)]


every_encoder = pytest.mark.parametrize("encoder", [by_rank, replayed, native])


def pair(written):
    """`"o r"` as a pair of byte strings, with `_` for the space, as the documents write it."""
    left, right = written.split()
    return left.replace("_", " ").encode(), right.replace("_", " ").encode()


def table(written):
    return {pair(key): count for key, count in written.items()}


def word(written):
    return tuple(token.replace("_", " ").encode() for token in written.split(" "))


def steps(counts, n, tie_break):
    """For each merge: the table of counts before it, the pairs tied at the top, the merge, the words after it."""
    words = as_words(counts)
    order = {token: place for place, token in enumerate(byte_alphabet())}
    for _ in range(n):
        counted = count_pairs(words)
        most = max(counted.values())
        tied = {key for key, count in counted.items() if count == most}
        merged = break_tie(tied, order, tie_break)
        order[merged[0] + merged[1]] = len(order)
        words = {replace_pair(key, merged): count for key, count in words.items()}
        yield dict(counted), tied, merged, words


def merge_and_track(tokens, merged, weight, changes):
    """The word after `merge_in_place`."""
    tokens = list(tokens)
    merge_in_place(tokens, merged, weight, changes)
    return tuple(tokens)


# --- Production BPE: low, lower, newer ---

LOW_NEWER = {b"low": 5, b"lower": 2, b"newer": 6}


def test_production_bpe_first_step():
    counted, tied, merged, words = next(steps(LOW_NEWER, 1, SMALLEST))
    # The document's table leaves out (e, w), which "newer" holds six times.
    assert counted == table({"l o": 7, "o w": 7, "w e": 8, "e r": 8, "n e": 6, "e w": 6})
    assert tied == {pair("w e"), pair("e r")}
    assert merged == pair("e r")
    assert words == {word("l o w"): 5, word("l o w er"): 2, word("n e w er"): 6}


@pytest.mark.parametrize("held", [SeamWords, IndexedWords])
def test_production_bpe_seam_rule(held):
    """X = w and no Y: (w, e) and (e, r) lose the words' counts, (w, er) gains them."""
    words = held(as_words(LOW_NEWER).items())
    before = words.pair_counts()
    changes = {key: delta for key, delta in words.merge(pair("e r")).items() if delta}
    assert changes == table({"e r": -8, "w e": -8, "w er": 8})
    after = words.pair_counts()
    # The document says that the words with (l, o), (o, w) or (n, e) are never visited. "lower" and "newer" are:
    # they hold (e, r). The *counts* of those pairs stay as they were.
    for untouched in ("l o", "o w", "n e"):
        assert after[pair(untouched)] == before[pair(untouched)]
    assert +after == +Counter({key: before[key] + changes.get(key, 0) for key in before | changes})


def test_production_bpe_visits_only_words_that_hold_the_pair():
    words = IndexedWords(as_words(LOW_NEWER).items())
    low = words.words[0][0]
    words.merge(pair("e r"))
    assert words.words == [([b"l", b"o", b"w"], 5), ([b"l", b"o", b"w", b"er"], 2), ([b"n", b"e", b"w", b"er"], 6)]
    assert words.words[0][0] is low


@every_trainer
def test_production_bpe_merges(name):
    merges = TRAINERS[name](LOW_NEWER, 4, tie_break=SMALLEST)
    # After (e, r), the pair (w, er) has all eight occurrences that (w, e) was tied with.
    assert merges == [(b"e", b"r", 8), (b"w", b"er", 8), (b"l", b"o", 7), (b"e", b"wer", 6)]
    # The other reading of "lexicographic order": the greater pair first.
    assert TRAINERS[name](LOW_NEWER, 1, tie_break=GREATEST) == [(b"w", b"e", 8)]


def test_production_bpe_three_pairs_go_down_two_come_back():
    changes = Counter()
    assert merge_and_track(word("X A B Y"), pair("A B"), 3, changes) == word("X AB Y")
    assert changes == Counter(table({"X A": -3, "A B": -3, "B Y": -3, "X AB": 3, "AB Y": 3}))


def test_production_bpe_has_the_pattern_of_the_other_document():
    textbook = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    text = "They'll say it's 1999, we've  no\n\n idea; 'tis so.  I'd re'd, I'm ' done'"
    assert split(text, textbook) == split(text, GPT2)
    assert split("world world", GPT2) == ["world", " world"]


@every_encoder
def test_production_bpe_an_emoji_without_merges_is_four_tokens(encoder):
    assert encoder([(b"a", b"b")])("\U0001f98a") == [b"\xf0", b"\x9f", b"\xa6", b"\x8a"]


# --- The CS336 trainer on TinyStories: low, lower ---

# The document shows its corpus in a figure; these counts give all that its text says of it.
LOW_LOWER = {b"low": 3, b"lower": 2}


def test_low_lower_step_by_step():
    (one, tied1, m1, s1), (two, tied2, m2, s2), (three, tied3, m3, s3), (four, tied4, m4, s4) = steps(
        LOW_LOWER, 4, GREATEST
    )
    assert one == table({"l o": 5, "o w": 5, "w e": 2, "e r": 2})
    assert two == table({"l ow": 5, "ow e": 2, "e r": 2})
    assert three == table({"low e": 2, "e r": 2})
    assert four == table({"lowe r": 2})
    # "The deterministic tiebreak fires at iterations 1 and 3."
    assert [len(tied) > 1 for tied in (tied1, tied2, tied3, tied4)] == [True, False, True, False]
    assert [m1, m2, m3, m4] == [pair("o w"), pair("l ow"), pair("low e"), pair("lowe r")]
    assert s1 == {word("l ow"): 3, word("l ow e r"): 2}
    assert s2 == {word("low"): 3, word("low e r"): 2}
    assert s3 == {word("low"): 3, word("lowe r"): 2}
    assert s4 == {word("low"): 3, word("lower"): 2}


@every_trainer
def test_low_lower_vocabulary(name):
    merges = TRAINERS[name](LOW_LOWER, 9, tie_break=GREATEST)
    assert merges == [(b"o", b"w", 5), (b"l", b"ow", 5), (b"low", b"e", 2), (b"lowe", b"r", 2)]
    assert [left + right for left, right, _ in merges] == [b"ow", b"low", b"lowe", b"lower"]


@every_encoder
def test_low_lower_is_replayed_in_four_steps(encoder):
    merges = [pair("o w"), pair("l ow"), pair("low e"), pair("lowe r")]
    states = [encoder(merges[:n])("lower") for n in range(5)]
    assert [tuple(state) for state in states] == [
        word("l o w e r"),
        word("l ow e r"),
        word("low e r"),
        word("lowe r"),
        word("lower"),
    ]


def test_the_greater_pair_is_not_the_convention_of_hf():
    """The document takes the greater pair for everyone's rule; HF takes the lower ids, so (l, o) before (o, w)."""
    tokenizers = pytest.importorskip("tokenizers")
    hf = tokenizers.Tokenizer(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=100, show_progress=False)
    hf.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    hf.train_from_iterator(["low low low lower lower"], trainer)
    merged = [token for token, _ in sorted(hf.get_vocab().items(), key=lambda entry: entry[1]) if len(token) > 1]
    assert merged[0] == "lo"
    ours = TRAINERS["deduplicated"](LOW_LOWER, 9)
    assert [(left + right).decode() for left, right, _ in ours] == merged


def test_both_occurrences_are_merged_in_one_pass():
    assert replace_pair(word("a b a b"), pair("a b")) == word("ab ab")
    assert merge_and_track(word("a b a b"), pair("a b"), 1, Counter()) == word("ab ab")


@pytest.mark.parametrize("held", [SeamWords, IndexedWords])
def test_withdraw_and_register_are_not_symmetric(held):
    changes = held([(word("x a b y z"), 7)]).merge(pair("a b"))
    assert changes.get(pair("y z"), 0) == 0  # survives: withdrawn and registered
    assert {key: delta for key, delta in changes.items() if delta < 0} == table({"x a": -7, "a b": -7, "b y": -7})
    assert {key: delta for key, delta in changes.items() if delta > 0} == table({"x ab": 7, "ab y": 7})


def test_words_are_bytes_not_characters():
    assert as_bytes("€") == [b"\xe2", b"\x82", b"\xac"]
    assert list(as_words({"a€".encode(): 1})) == [(b"a", b"\xe2", b"\x82", b"\xac")]


def test_the_space_goes_with_the_word():
    assert count_pretokens(["the cat the dog the"], GPT2) == Counter({b" the": 2, b"the": 1, b" cat": 1, b" dog": 1})


def test_the_tinystories_vocabulary_adds_up():
    assert merges_that_fit(10_000, ["<|endoftext|>"]) == 9_743
    assert len(b" accomplishment") == 15


def test_longer_special_tokens_are_found_first():
    specials = ["<|endoftext|>", "<|endoftext|><|endoftext|>"]
    assert cut_at_special("a<|endoftext|><|endoftext|>b<|endoftext|>c", specials) == ["a", "b", "c"]
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"), special_tokens=specials)
    ids = tokenizer.encode("<|endoftext|><|endoftext|><|endoftext|>", allowed_special="all")
    assert ids == [257, 256]


@every_encoder
def test_the_earliest_learned_merge_applies_not_the_leftmost(encoder):
    merges = [pair("b c"), pair("a b")]
    assert encoder(merges)("abc") == [b"a", b"bc"]
    # With the ranks exchanged, greedy reading from the left would be right.
    assert encoder(merges[::-1])("abc") == [b"ab", b"c"]


def test_ids_that_spell_no_text_decode_to_the_replacement_character():
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"))
    assert tokenizer.decode([0xE2, 0x82, 0x61]) == "\ufffda"
    assert tokenizer.decode(tokenizer.encode("a€")) == "a€"


# --- The BPE Algorithm, fully worked: work, worked, works ---

# The prose and the examples take the smaller pair; the code sketch, `max(..., key=(count, pair))`, the greater.

AS_WRITTEN = {b"I work": 2, b"I worked": 1, b"he works": 1, b"he worked": 1}
# The document's tables give (_, w) 3. Its corpus holds it five times, also after "he"; then (_, w), which is
# smaller than (o, r), would win the first tie. Its figures are those of this corpus, with "he " apart.
AS_COUNTED = {b"I work": 2, b"I worked": 1, b"he ": 2, b"works": 1, b"worked": 1}


def test_work_worked_works_step_by_step():
    (one, tied1, m1, s1), (two, tied2, m2, s2), (three, tied3, m3, s3) = steps(AS_COUNTED, 3, SMALLEST)
    others = {"I _": 3, "h e": 2, "e _": 2, "e d": 2}
    assert one == table(others | {"w o": 5, "o r": 5, "r k": 5, "_ w": 3, "k e": 2, "k s": 1})
    assert tied1 == {pair("w o"), pair("o r"), pair("r k")}
    assert m1 == pair("o r")
    assert s1 == {
        word("I _ w or k"): 2,
        word("I _ w or k e d"): 1,
        word("h e _"): 2,
        word("w or k s"): 1,
        word("w or k e d"): 1,
    }
    assert two == table(others | {"w or": 5, "or k": 5, "_ w": 3, "k e": 2, "k s": 1})
    assert tied2 == {pair("w or"), pair("or k")}
    assert m2 == pair("or k")
    assert word("I _ w ork e d") in s2
    assert three == table(others | {"w ork": 5, "_ w": 3, "ork e": 2, "ork s": 1})
    assert tied3 == {pair("w ork")}
    assert m3 == pair("w ork")
    assert s3 == {
        word("I _ work"): 2,
        word("I _ work e d"): 1,
        word("h e _"): 2,
        word("work s"): 1,
        word("work e d"): 1,
    }


@every_trainer
def test_work_worked_works_merges(name):
    merges = TRAINERS[name](AS_COUNTED, 4, tie_break=SMALLEST)
    assert merges == [(b"o", b"r", 5), (b"or", b"k", 5), (b"w", b"ork", 5), (b" ", b"work", 3)]
    learned = [left + right for left, right, _ in TRAINERS[name](AS_COUNTED, 20, tie_break=SMALLEST)]
    # "After a few more iterations": work with its space, then worked, then works.
    assert learned.index(b"work") < learned.index(b" work") < learned.index(b"worked") < learned.index(b"works")


@every_trainer
def test_work_worked_works_as_written(name):
    counted, tied, merged, _ = next(steps(AS_WRITTEN, 1, SMALLEST))
    assert counted == table(
        {"w o": 5, "o r": 5, "r k": 5, "_ w": 5, "I _": 3, "h e": 2, "e _": 2, "k e": 2, "e d": 2, "k s": 1}
    )
    assert tied == {pair("_ w"), pair("w o"), pair("o r"), pair("r k")}
    assert merged == pair("_ w")
    smaller = TRAINERS[name](AS_WRITTEN, 4, tie_break=SMALLEST)
    assert smaller == [(b" ", b"w", 5), (b" w", b"o", 5), (b" wo", b"r", 5), (b" wor", b"k", 5)]
    # By the code sketch, the greater pair.
    greater = TRAINERS[name](AS_WRITTEN, 4, tie_break=GREATEST)
    assert greater == [(b"w", b"o", 5), (b"wo", b"r", 5), (b"wor", b"k", 5), (b" ", b"work", 5)]


def test_the_documents_two_tie_breaks_differ():
    tied = [pair("w o"), pair("o r"), pair("r k")]
    assert break_tie(tied, {}, SMALLEST) == min((-5, key) for key in tied)[1] == pair("o r")
    assert break_tie(tied, {}, GREATEST) == max((5, key) for key in tied)[1] == pair("w o")


HE_EATS = ["he eats", "he eats", "I eat", "you eat"]


def test_drill_1_four_iterations_by_hand():
    counts = count_pretokens(HE_EATS, None)
    (one, tied1, m1, s1), (two, tied2, m2, s2), (three, tied3, m3, s3), (four, tied4, m4, s4) = steps(
        counts, 4, SMALLEST
    )
    rest = {"h e": 2, "y o": 1, "o u": 1}
    assert one == table(rest | {"_ e": 4, "e a": 4, "a t": 4, "e _": 2, "t s": 2, "I _": 1, "u _": 1})
    assert (tied1, m1) == ({pair("_ e"), pair("e a"), pair("a t")}, pair("_ e"))
    assert s1 == {word("h e _e a t s"): 2, word("I _e a t"): 1, word("y o u _e a t"): 1}
    assert two == table(rest | {"_e a": 4, "a t": 4, "e _e": 2, "t s": 2, "I _e": 1, "u _e": 1})
    assert (tied2, m2) == ({pair("_e a"), pair("a t")}, pair("_e a"))
    assert s2 == {word("h e _ea t s"): 2, word("I _ea t"): 1, word("y o u _ea t"): 1}
    assert three == table(rest | {"_ea t": 4, "e _ea": 2, "t s": 2, "I _ea": 1, "u _ea": 1})
    assert (tied3, m3) == ({pair("_ea t")}, pair("_ea t"))
    assert s3 == {word("h e _eat s"): 2, word("I _eat"): 1, word("y o u _eat"): 1}
    assert four == table(rest | {"e _eat": 2, "_eat s": 2, "I _eat": 1, "u _eat": 1})
    assert (tied4, m4) == ({pair("h e"), pair("e _eat"), pair("_eat s")}, pair("_eat s"))
    assert s4 == {word("h e _eats"): 2, word("I _eat"): 1, word("y o u _eat"): 1}


@every_trainer
def test_drill_1_eat_becomes_a_token_only_with_its_space(name):
    counts = count_pretokens(HE_EATS, None)
    learned = [left + right for left, right, _ in TRAINERS[name](counts, 4, tie_break=SMALLEST)]
    assert learned == [b" e", b" ea", b" eat", b" eats"]
    # By the code sketch it becomes one at the second merge.
    learned = [left + right for left, right, _ in TRAINERS[name](counts, 4, tie_break=GREATEST)]
    assert learned == [b"ea", b"eat", b" eat", b"he"]


def test_drill_2_the_order_of_merges_decides():
    merges = [pair("o r"), pair("or k"), pair("w ork")]
    assert replayed(merges)("works") == [b"work", b"s"]
    # "Applying (w, ork) before (o, r) would never trigger."
    assert replayed(merges[::-1])("works") == [b"w", b"or", b"k", b"s"]
    alphabetical = sorted(merges)
    assert replayed([pair("w ork"), *alphabetical[:2]])("works") == [b"w", b"ork", b"s"]
    text = "he works, I worked"
    for encoder in (by_rank, replayed, native):
        tokens = encoder(merges)(text)
        assert encoder(merges)(b"".join(tokens).decode()) == tokens


@every_trainer
def test_drill_3_incremental_updates_change_nothing(name):
    expected = TRAINERS["naive"](count_pretokens(HE_EATS, None), 9, tie_break=SMALLEST)
    assert TRAINERS[name](count_pretokens(HE_EATS, None), 9, tie_break=SMALLEST) == expected


@pytest.mark.parametrize(
    ("single", "expected"),
    [
        # A byte below w, as o is: the same merges without the first.
        (b"R", [(b"R", b"k", 5), (b"w", b"Rk", 5)]),
        # A byte above w: (w, or) is the smaller pair now.
        (b"\xf0", [(b"w", b"\xf0", 5), (b"w\xf0", b"k", 5)]),
    ],
)
@every_trainer
def test_drill_4_treats_or_as_one_byte(name, single, expected):
    counts = {pretoken.replace(b"or", single): count for pretoken, count in AS_COUNTED.items()}
    assert TRAINERS[name](counts, 2, tie_break=SMALLEST) == expected


@every_encoder
def test_edge_cases_of_encoding(encoder):
    merges = [(b"\xc3", b"\xb1"), (b"a", b"\xc3\xb1"), (b"n", b"a")]
    assert encoder(merges)("") == []
    assert encoder(merges)("a") == [b"a"]
    assert len(as_bytes("mañana")) == 7
    assert encoder(merges[:1])("mañana") == [b"m", b"a", "ñ".encode(), b"a", b"n", b"a"]
    assert encoder(merges)("mañana") == [b"m", "añ".encode(), b"a", b"na"]


def test_special_tokens_can_take_the_first_ids():
    tokenizer = Tokenizer.from_ranks(
        [], pattern=patterns.resolve("none"), special_tokens=["<|pad|>", "<|sep|>"], special_layout="first"
    )
    assert tokenizer.special_tokens == {"<|pad|>": 0, "<|sep|>": 1}
    assert tokenizer.encode("a") == [2 + 97]
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


# --- From Hours to Seconds ---


def test_a_vocabulary_of_1000_has_744_new_tokens():
    # The document says 774 once.
    assert merges_that_fit(1000, []) == 744


def test_changes_of_one_merge_inside_a_sequence():
    changes = Counter()
    merge_and_track(word("a b c d"), pair("b c"), 2, changes)
    assert changes == Counter(table({"a b": -2, "b c": -2, "c d": -2, "a bc": 2, "bc d": 2}))


def test_an_index_forgets_a_pair_only_with_its_last_occurrence():
    words = IndexedWords([(word("a b c b c x b"), 1)])
    words.merge(pair("a b"))
    # (b, c) is still there once, at another place.
    assert words.merge(pair("b c"))[pair("b c")] == -1
    assert words.words == [([b"ab", b"c", b"bc", b"x", b"b"], 1)]


# --- The source experiment ---


def test_the_counts_that_a_merge_changes():
    """(1, 2, 3, 4) with (2, 3) -> 99: (1, 2) becomes (1, 99) and (3, 4) becomes (99, 4)."""
    before = Counter(pairwise(word("1 2 3 4")))
    after = Counter(pairwise(replace_pair(word("1 2 3 4"), pair("2 3"))))
    assert after == table({"1 23": 1, "23 4": 1})
    changes = Counter()
    merge_and_track(word("1 2 3 4"), pair("2 3"), 1, changes)
    assert changes == Counter({key: after[key] - before[key] for key in before | after})


def test_pattern_example():
    words = ["Let", "'s", " consider", " tokenization", " word", "-", "by", "-", "word"]
    assert split("Let's consider tokenization word-by-word", GPT2) == words
    assert patterns.split("Let's consider tokenization word-by-word", "gpt2") == words


def test_ranks_and_replay_agree_on_the_examples():
    for counts in (LOW_NEWER, LOW_LOWER, AS_WRITTEN, AS_COUNTED):
        merges = [(left, right) for left, right, _ in TRAINERS["naive"](counts, 30)]
        for pretoken in counts:
            assert replayed(merges)(pretoken.decode()) == by_rank(merges)(pretoken.decode())
