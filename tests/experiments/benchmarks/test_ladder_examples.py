"""The worked examples of the source documents on every rung that can show them.

Where a document contradicts itself or the facts, a comment says so, and the test holds to what its example shows.
"""

from collections import Counter

import pytest

from experiments.benchmarks.ladder import TRAINERS, IndexedWords, SeamWords, merge_in_place
from tokenizer import Tokenizer, patterns
from tokenizer.reference import (
    as_bytes,
    as_words,
    byte_alphabet,
    count_pretokens,
    merge_by_rank,
    ranks_of,
    replace_pair,
)

SMALLEST, GREATEST = "lexicographic-smallest", "lexicographic-greatest"


def by_rank(merges):
    """The encoder of the reference."""
    return lambda piece: merge_by_rank(as_bytes(piece), ranks_of(merges))


def native(merges):
    """The encoder of the Rust core."""
    places = {token: place for place, token in enumerate(byte_alphabet())}
    ranks = []
    for left, right in merges:
        ranks.append((places[left], places[right]))
        places[left + right] = len(places)
    tokenizer = Tokenizer.from_ranks(ranks, pattern=patterns.resolve("none"))
    return lambda piece: [tokenizer.vocab[token] for token in tokenizer.encode_ordinary(piece)]


def word(written):
    """`"n e wer"` as a word of byte strings, with `_` for the space, as the documents write it."""
    return tuple(token.replace("_", " ").encode() for token in written.split(" "))


def table(written):
    """Counts of pairs or words; `"l o 7, o w 7"`."""
    rows = (row.strip().rpartition(" ") for row in written.split(",") if row.strip())
    return {word(key): int(count) for key, _, count in rows}


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


# The CS336 trainer on TinyStories: low, lower. Its corpus is in a figure; these counts give all that its text says.

LOW_LOWER = {b"low": 3, b"lower": 2}


# The BPE Algorithm, fully worked: work, worked, works. Its prose and its examples take the smaller pair; its code
# sketch, `max(..., key=(count, pair))`, the greater.

AS_WRITTEN = {b"I work": 2, b"I worked": 1, b"he works": 1, b"he worked": 1}
# The document's tables give (_, w) 3. Its corpus holds it five times, also after "he"; then (_, w), which is
# smaller than (o, r), would win the first tie. Its figures are those of this corpus, with "he " apart.
AS_COUNTED = {b"I work": 2, b"I worked": 1, b"he ": 2, b"works": 1, b"worked": 1}


HE_EATS = count_pretokens(["he eats", "he eats", "I eat", "you eat"], None)


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
# Processes take long to start; that rung has tests of its own.
@pytest.mark.parametrize("name", [name for name in TRAINERS if name not in ("approximate", "parallel")])
def test_merges_of_the_examples(name, counts, n, tie_break, expected):
    merges = TRAINERS[name](counts, n, tie_break=tie_break)
    assert merges == [(*pair, count) for pair, count in table(expected).items()]


@pytest.mark.parametrize("encoder", [by_rank, native])
def test_the_earliest_learned_merge_applies_not_the_leftmost(encoder):
    merges = [word("o w"), word("l ow"), word("low e"), word("lowe r")]
    states = [tuple(encoder(merges[:n])("lower")) for n in range(5)]
    assert states == [word("l o w e r"), word("l ow e r"), word("low e r"), word("lowe r"), word("lower")]
    merges = [word("b c"), word("a b")]
    assert encoder(merges)("abc") == [b"a", b"bc"]
    assert encoder(merges[::-1])("abc") == [b"ab", b"c"]
    merges = [(b"\xc3", b"\xb1"), (b"a", b"\xc3\xb1"), (b"n", b"a")]
    assert encoder(merges)("mañana") == [b"m", "añ".encode(), b"a", b"na"]
