"""The worked examples and drills of the source documents, step by step, on every rung that can show them.

Where a document contradicts itself or the facts, a comment says so, and the test holds to what its example shows.
"""

import functools
from collections import Counter

import pytest

from experiments.benchmarks.ladder import TRAINERS, IndexedWords, SeamWords, merge_in_place
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
every_trainer = pytest.mark.parametrize("name", [name for name in TRAINERS if name not in ("approximate", "parallel")])


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


def word(written):
    """`"n e wer"` as a word of byte strings, with `_` for the space, as the documents write it."""
    return tuple(token.replace("_", " ").encode() for token in written.split(" "))


def table(written):
    """Counts of pairs or words; `"l o 7, o w 7"`."""
    rows = (row.strip().rpartition(" ") for row in written.split(",") if row.strip())
    return {word(key): int(count) for key, _, count in rows}


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


def changes_of(written, merged, weight):
    """Changes of counts by a merge in one word, and the word after it."""
    tokens, changes = list(word(written)), Counter()
    merge_in_place(tokens, word(merged), weight, changes)
    return {key: delta for key, delta in changes.items() if delta}, tuple(tokens)


# Production BPE: low, lower, newer.

LOW_NEWER = {b"low": 5, b"lower": 2, b"newer": 6}


@pytest.mark.parametrize("held", [SeamWords, IndexedWords])
def test_production_bpe_seam_rule(held):
    """X = w and no Y: (w, e) and (e, r) lose the words' counts, (w, er) gains them."""
    words = held(as_words(LOW_NEWER).items())
    before = words.pair_counts()
    changes = {key: delta for key, delta in words.merge(word("e r")).items() if delta}
    assert changes == table("e r -8, w e -8, w er 8")
    after = words.pair_counts()
    # The document says that the words with (l, o), (o, w) or (n, e) are never visited. "lower" and "newer" are:
    # they hold (e, r). The *counts* of those pairs stay as they were.
    assert all(after[word(pair)] == before[word(pair)] for pair in ("l o", "o w", "n e"))
    assert +after == +Counter({key: before[key] + changes.get(key, 0) for key in before | changes})
    assert {tuple(tokens): count for tokens, count in words.words} == table("l o w 5, l o w er 2, n e w er 6")


def test_changes_of_merges_inside_a_word():
    around = table("X A -3, A B -3, B Y -3, X AB 3, AB Y 3")
    assert changes_of("X A B Y", "A B", 3) == (around, word("X AB Y"))
    assert changes_of("a b c d", "b c", 2) == (table("a b -2, b c -2, c d -2, a bc 2, bc d 2"), word("a bc d"))
    # Withdraw and register are not symmetric: (y, z) survives, withdrawn and registered.
    assert changes_of("x a b y z", "a b", 7)[0] == table("x a -7, a b -7, b y -7, x ab 7, ab y 7")
    # (1, 2, 3, 4) with (2, 3) -> 99: (1, 2) becomes (1, 99) and (3, 4) becomes (99, 4).
    assert changes_of("1 2 3 4", "2 3", 1)[0] == table("1 2 -1, 2 3 -1, 3 4 -1, 1 23 1, 23 4 1")
    assert changes_of("a b a b", "a b", 1)[1] == replace_pair(word("a b a b"), word("a b")) == word("ab ab")


def test_an_index_forgets_a_pair_only_with_its_last_occurrence():
    words = IndexedWords([(word("a b c b c x b"), 1)])
    words.merge(word("a b"))
    # (b, c) is still there once, at another place.
    assert words.merge(word("b c"))[word("b c")] == -1
    assert words.words == [([b"ab", b"c", b"bc", b"x", b"b"], 1)]


def test_patterns():
    textbook = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    text = "They'll say it's 1999, we've  no\n\n idea; 'tis so.  I'd re'd, I'm ' done'"
    assert split(text, textbook) == split(text, GPT2)
    words = ["Let", "'s", " consider", " tokenization", " word", "-", "by", "-", "word"]
    text = "Let's consider tokenization word-by-word"
    assert split(text, GPT2) == patterns.split(text, "gpt2") == words
    assert count_pretokens(["the cat the dog the"], GPT2) == Counter({b" the": 2, b"the": 1, b" cat": 1, b" dog": 1})


# The CS336 trainer on TinyStories: low, lower. Its corpus is in a figure; these counts give all that its text says.

LOW_LOWER = {b"low": 3, b"lower": 2}


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


def test_sizes_of_vocabularies():
    assert merges_that_fit(10_000, ["<|endoftext|>"]) == 9_743
    assert merges_that_fit(1000, []) == 744  # the document says 774 once


# The BPE Algorithm, fully worked: work, worked, works. Its prose and its examples take the smaller pair; its code
# sketch, `max(..., key=(count, pair))`, the greater.

AS_WRITTEN = {b"I work": 2, b"I worked": 1, b"he works": 1, b"he worked": 1}
# The document's tables give (_, w) 3. Its corpus holds it five times, also after "he"; then (_, w), which is
# smaller than (o, r), would win the first tie. Its figures are those of this corpus, with "he " apart.
AS_COUNTED = {b"I work": 2, b"I worked": 1, b"he ": 2, b"works": 1, b"worked": 1}


HE_EATS = count_pretokens(["he eats", "he eats", "I eat", "you eat"], None)

# For each merge: the table of counts before it, the pairs tied at the top, the merge, the words after it.
STEPS = [
    # The document's table leaves out (e, w), which "newer" holds six times.
    (LOW_NEWER, SMALLEST, [
        ("l o 7, o w 7, w e 8, e r 8, n e 6, e w 6", "w e, e r", "e r", "l o w 5, l o w er 2, n e w er 6"),
    ]),
    # "The deterministic tiebreak fires at iterations 1 and 3."
    (LOW_LOWER, GREATEST, [
        ("l o 5, o w 5, w e 2, e r 2", "l o, o w", "o w", "l ow 3, l ow e r 2"),
        ("l ow 5, ow e 2, e r 2", "l ow", "l ow", "low 3, low e r 2"),
        ("low e 2, e r 2", "low e, e r", "low e", "low 3, lowe r 2"),
        ("lowe r 2", "lowe r", "lowe r", "low 3, lower 2"),
    ]),
    (AS_COUNTED, SMALLEST, [
        ("I _ 3, h e 2, e _ 2, e d 2, w o 5, o r 5, r k 5, _ w 3, k e 2, k s 1", "w o, o r, r k", "o r",
         "I _ w or k 2, I _ w or k e d 1, h e _ 2, w or k s 1, w or k e d 1"),
        ("I _ 3, h e 2, e _ 2, e d 2, w or 5, or k 5, _ w 3, k e 2, k s 1", "w or, or k", "or k",
         "I _ w ork 2, I _ w ork e d 1, h e _ 2, w ork s 1, w ork e d 1"),
        ("I _ 3, h e 2, e _ 2, e d 2, w ork 5, _ w 3, ork e 2, ork s 1", "w ork", "w ork",
         "I _ work 2, I _ work e d 1, h e _ 2, work s 1, work e d 1"),
    ]),
    (AS_WRITTEN, SMALLEST, [
        ("w o 5, o r 5, r k 5, _ w 5, I _ 3, h e 2, e _ 2, k e 2, e d 2, k s 1", "_ w, w o, o r, r k", "_ w",
         "I _w o r k 2, I _w o r k e d 1, h e _w o r k s 1, h e _w o r k e d 1"),
    ]),
    # Drill 1.
    (HE_EATS, SMALLEST, [
        ("h e 2, y o 1, o u 1, _ e 4, e a 4, a t 4, e _ 2, t s 2, I _ 1, u _ 1", "_ e, e a, a t", "_ e",
         "h e _e a t s 2, I _e a t 1, y o u _e a t 1"),
        ("h e 2, y o 1, o u 1, _e a 4, a t 4, e _e 2, t s 2, I _e 1, u _e 1", "_e a, a t", "_e a",
         "h e _ea t s 2, I _ea t 1, y o u _ea t 1"),
        ("h e 2, y o 1, o u 1, _ea t 4, e _ea 2, t s 2, I _ea 1, u _ea 1", "_ea t", "_ea t",
         "h e _eat s 2, I _eat 1, y o u _eat 1"),
        ("h e 2, y o 1, o u 1, e _eat 2, _eat s 2, I _eat 1, u _eat 1", "h e, e _eat, _eat s", "_eat s",
         "h e _eats 2, I _eat 1, y o u _eat 1"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "tie_break", "expected"), STEPS)
def test_examples_step_by_step(counts, tie_break, expected):
    for found, (counted, tied, merged, words) in zip(steps(counts, len(expected), tie_break), expected, strict=True):
        pairs = {word(pair) for pair in tied.split(", ")}
        assert found == (table(counted), pairs, word(merged), table(words))


@pytest.mark.parametrize(
    ("counts", "n", "tie_break", "expected"),
    [
        # After (e, r), the pair (w, er) has all eight occurrences that (w, e) was tied with.
        (LOW_NEWER, 4, SMALLEST, "e r 8, w er 8, l o 7, e wer 6"),
        # The other reading of "lexicographic order": the greater pair first.
        (LOW_NEWER, 1, GREATEST, "w e 8"),
        (LOW_LOWER, 9, GREATEST, "o w 5, l ow 5, low e 2, lowe r 2"),
        (AS_COUNTED, 4, SMALLEST, "o r 5, or k 5, w ork 5, _ work 3"),
        (AS_WRITTEN, 4, SMALLEST, "_ w 5, _w o 5, _wo r 5, _wor k 5"),
        # By the code sketch, the greater pair.
        (AS_WRITTEN, 4, GREATEST, "w o 5, wo r 5, wor k 5, _ work 5"),
        # `eat` becomes a token only with its space, but by the code sketch at the second merge.
        (HE_EATS, 4, SMALLEST, "_ e 4, _e a 4, _ea t 4, _eat s 2"),
        (HE_EATS, 4, GREATEST, "e a 4, ea t 4, _ eat 4, h e 2"),
    ],
)
@every_trainer
def test_merges_of_the_examples(name, counts, n, tie_break, expected):
    merges = TRAINERS[name](counts, n, tie_break=tie_break)
    assert merges == [(*pair, count) for pair, count in table(expected).items()]


@every_trainer
def test_later_merges_and_drill_3(name):
    learned = [left + right for left, right, _ in TRAINERS[name](AS_COUNTED, 20, tie_break=SMALLEST)]
    # "After a few more iterations": work with its space, then worked, then works.
    assert learned.index(b"work") < learned.index(b" work") < learned.index(b"worked") < learned.index(b"works")
    # Incremental updates change nothing.
    expected = TRAINERS["naive"](HE_EATS, 9, tie_break=SMALLEST)
    assert TRAINERS[name](HE_EATS, 9, tie_break=SMALLEST) == expected


def test_drill_2_the_order_of_merges_decides():
    merges = [word("o r"), word("or k"), word("w ork")]
    assert replayed(merges)("works") == [b"work", b"s"]
    # "Applying (w, ork) before (o, r) would never trigger."
    assert replayed(merges[::-1])("works") == [b"w", b"or", b"k", b"s"]
    assert replayed([word("w ork"), *sorted(merges)[:2]])("works") == [b"w", b"ork", b"s"]


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


# Encoding.


@every_encoder
def test_encoders_on_the_examples(encoder):
    merges = [word("o w"), word("l ow"), word("low e"), word("lowe r")]
    states = [tuple(encoder(merges[:n])("lower")) for n in range(5)]
    assert states == [word("l o w e r"), word("l ow e r"), word("low e r"), word("lowe r"), word("lower")]
    # The earliest learned merge applies, not the leftmost. With the ranks exchanged, greedy reading would be right.
    merges = [word("b c"), word("a b")]
    assert encoder(merges)("abc") == [b"a", b"bc"]
    assert encoder(merges[::-1])("abc") == [b"ab", b"c"]
    assert encoder([(b"a", b"b")])("\U0001f98a") == [b"\xf0", b"\x9f", b"\xa6", b"\x8a"]
    merges = [(b"\xc3", b"\xb1"), (b"a", b"\xc3\xb1"), (b"n", b"a")]
    assert encoder(merges)("") == []
    assert encoder(merges)("a") == [b"a"]
    assert len(as_bytes("mañana")) == 7
    assert encoder(merges[:1])("mañana") == [b"m", b"a", "ñ".encode(), b"a", b"n", b"a"]
    assert encoder(merges)("mañana") == [b"m", "añ".encode(), b"a", b"na"]
    for counts in (LOW_NEWER, LOW_LOWER, AS_WRITTEN, AS_COUNTED):
        merges = [(left, right) for left, right, _ in TRAINERS["naive"](counts, 30)]
        for pretoken in counts:
            assert encoder(merges)(pretoken.decode()) == by_rank(merges)(pretoken.decode())


def test_special_tokens():
    specials = ["<|endoftext|>", "<|endoftext|><|endoftext|>"]
    assert cut_at_special("a<|endoftext|><|endoftext|>b<|endoftext|>c", specials) == ["a", "b", "c"]
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"), special_tokens=specials)
    ids = tokenizer.encode("<|endoftext|><|endoftext|><|endoftext|>", allowed_special="all")
    assert ids == [257, 256]
    tokenizer = Tokenizer.from_ranks(
        [], pattern=patterns.resolve("none"), special_tokens=["<|pad|>", "<|sep|>"], special_layout="first"
    )
    assert tokenizer.special_tokens == {"<|pad|>": 0, "<|sep|>": 1}
    assert tokenizer.encode("a") == [2 + 97]


def test_ids_that_spell_no_text_decode_to_the_replacement_character():
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"))
    assert tokenizer.decode([0xE2, 0x82, 0x61]) == "\ufffda"
    assert tokenizer.decode(tokenizer.encode("a€")) == "a€"
