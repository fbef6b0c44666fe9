from collections import Counter
from pydoc_data.topics import topics

import pytest
from hypothesis import strategies as st

from tests.properties import examples
from tests.tokenizer.train.small import train_native
from tokenizer import Batch, _native, reference
from tokenizer.reference import TIE_BREAKS, byte_alphabet, count_pretokens, encode, encode_two_pass, replace_pair, split

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TRAINERS = {
    "reference": reference.train_naive,
    "incremental": reference.train_incremental,
    "native": train_native,
}
WORD_TRAINERS = {"reference": reference.train_words, "incremental": reference.train_words_incremental}
every_trainer = pytest.mark.parametrize("train", TRAINERS.values(), ids=TRAINERS)


# Worked examples of three documents: Production BPE, the CS336 trainer, and The BPE Algorithm, fully worked.
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
@every_trainer
def test_worked_examples(train, corpus, tie_break, expected):
    shown = [f"{left.decode()}|{right.decode()}|{n}" for left, right, n in train(corpus, 4, tie_break=tie_break)]
    assert ", ".join(shown).replace(" ", "_").replace("|", " ").replace(",_", ", ") == expected


# Counting, ties, vetoes.


@every_trainer
def test_overlapping_pairs_count_and_merge_from_the_left(train):
    assert replace_pair((b"a",) * 5, (b"a", b"a")) == (b"aa", b"aa", b"a")
    assert replace_pair((b"a", b"a", b"aa"), (b"a", b"a")) == (b"aa", b"aa")
    assert train({b"aaaa": 2}, 9) == [(b"a", b"a", 6), (b"aa", b"aa", 2)]
    assert train({b"aaaaa": 1}, 9) == [(b"a", b"a", 4), (b"aa", b"a", 1), (b"aa", b"aaa", 1)]
    # The pair after the run loses its count, to the run's last token.
    assert train({b"aaab": 1, b"cc": 2}, 3)[:2] == [(b"a", b"a", 2), (b"c", b"c", 2)]


@pytest.mark.parametrize(
    ("tie_break", "winner"),
    [
        ("lowest-ids", (b"!", b"a")),
        ("lexicographic-smallest", (b" ", b"a")),
        ("lexicographic-greatest", (b"\xff", b"a")),
    ],
)
@every_trainer
def test_tie_break_rules(train, tie_break, winner):
    counts = {b" a": 2, b"!a": 2, b"\xffa": 2, b"zz": 1}
    assert train(counts, 1, tie_break=tie_break) == [(*winner, 2)]


def test_ties_compare_tuples_and_ranks_never_the_concatenation():
    pairs = [(b"ab", b"a"), (b"a", b"z")]
    assert reference.break_tie(pairs, {}, "lexicographic-greatest") == (b"ab", b"a")
    assert reference.break_tie([(b"a", b"bc"), (b"ab", b"a")], {}, "lexicographic-smallest") == (b"a", b"bc")
    # Merges follow the bytes by rank, whatever they spell.
    order = {token: place for place, token in enumerate([*byte_alphabet(), b"zz", b"aa"])}
    assert reference.break_tie([(b"aa", b"b"), (b"zz", b"b")], order, "lowest-ids") == (b"zz", b"b")
    assert reference.break_tie([(b" ", b"b"), (b"zz", b"b")], order, "lowest-ids") == (b" ", b"b")
    with pytest.raises(ValueError, match="use one of lowest-ids"):
        reference.break_tie(pairs, {}, "random")


@every_trainer
def test_vetoes_and_early_stop(train):
    assert train({b"ab": 1, b"cd": 3}, 9, min_count=2) == [(b"c", b"d", 3)]
    assert train({}, 9) == []
    assert train({b"abcd": 3}, 9, max_token_bytes=2) == [(b"a", b"b", 3), (b"c", b"d", 3)]
    assert [left + right for left, right, _ in train({b"<s>": 3}, 9, special_tokens=["<s>"])] == [b"<s"]


@pytest.mark.parametrize("train", WORD_TRAINERS.values(), ids=WORD_TRAINERS)
def test_a_pair_that_spells_a_token_is_not_merged(train):
    words = {(b"a", b"bc"): 5, (b"ab", b"c"): 3, (b"ab", b"c", b"d"): 2}
    merges = train(
        words,
        9,
        tokens=[*byte_alphabet(), b"ab", b"bc"],
        tie_break="lowest-ids",
        min_count=1,
        accept=lambda *_: True,
    )
    assert merges == [(b"a", b"bc", 5), (b"c", b"d", 2), (b"ab", b"cd", 2)]


# Cutting text.


def test_units_and_special_strings():
    assert reference.cut_into_units("a\nb\u2028c\r\n\nd", "line") == ["a\n", "b\u2028c\r\n", "\n", "d"]
    assert reference.cut_into_units("a\nb", "document") == ["a\nb"]
    with pytest.raises(ValueError, match="unit='lines' is unknown"):
        reference.cut_into_units("a", "lines")
    # The pattern sees the end of a unit and of ordinary text, so a space before it stays apart.
    assert count_pretokens(["a \n b"], GPT2) == Counter([b"a", b" \n", b" b"])
    assert count_pretokens(["a \n b"], GPT2, unit="line") == Counter([b"a", b" \n", b" b"])
    assert count_pretokens(["a\n\nb"], GPT2) == Counter([b"a", b"\n", b"\n", b"b"])
    assert count_pretokens(["a \n\n b"], GPT2, unit="line") == Counter([b"a", b" \n", b"\n", b" b"])
    counts = count_pretokens(["x <s>y<s><t>"], GPT2, special_tokens=["<s>", "<s><t>"])
    assert counts == Counter([b"x", b" ", b"y"])


def test_empty_matches_cut_and_the_search_continues():
    digits = r"(?=(\d{3})+(?!\d))"
    assert split("1234567 1000", digits) == ["1", "234", "567 1", "000"]
    assert split("ab", "") == ["a", "b"]
    assert reference.boundaries("", GPT2) == [0]
    assert split("", GPT2) == []


def test_a_seam_is_closed_by_a_cut_at_it_or_inside_either_token():
    tokens = [b"ab", b"cd", b"ef"]
    assert reference.open_runs(tokens, [0, 6]) == [(b"ab", b"cd", b"ef")]
    assert reference.open_runs(tokens, [2]) == [(b"ab",), (b"cd", b"ef")]
    assert reference.open_runs(tokens, [3]) == [(b"ab",), (b"cd",), (b"ef",)]
    assert reference.open_runs(tokens, [1]) == [(b"ab",), (b"cd", b"ef")]
    assert reference.open_runs([], [0]) == []


def test_two_pass_keeps_pretokens_and_opens_the_seams_between_them():
    phase1 = [(b" ", b" "), (b" ", b"b")]
    # One pass lets the two spaces merge first; two passes keep the pretoken " b".
    assert encode("a  b", phase1, None) == [b"a", b"  ", b"b"]
    assert encode_two_pass("a  b", phase1, [(b"a", b" ")], GPT2, None) == [b"a ", b" b"]
    assert encode_two_pass("a  b", phase1, [(b"a", b" ")], GPT2, " b") == [b"a ", b" b"]
    assert encode_two_pass("a  b", phase1, [(b"a", b" ")], GPT2, "a") == [b"a", b" ", b" b"]
    assert encode_two_pass("ä b", phase1, [(b"\xa4", b" b")], GPT2, "b") == [b"\xc3", b"\xa4", b" b"]


# Properties.

letters = st.text(alphabet="ab ", min_size=1, max_size=9).map(str.encode)
corpora = st.dictionaries(letters, st.integers(1, 4), min_size=1, max_size=8)
options = st.fixed_dictionaries(
    {
        "tie_break": st.sampled_from(TIE_BREAKS),
        "min_count": st.integers(0, 3),
        "max_token_bytes": st.sampled_from([None, 2, 3]),
        "special_tokens": st.sampled_from([(), ("ab",), ("aa", "ba")]),
    }
)


@examples(quick=40, full=200, counts=corpora, options=options)
def test_all_trainers_learn_the_same_merges(counts, options):
    expected = reference.train_naive(counts, 40, **options)
    for name, train in TRAINERS.items():
        assert train(counts, 40, **options) == expected, name


token_words = st.dictionaries(
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b" a"]), min_size=1, max_size=7).map(tuple),
    st.integers(1, 4),
    min_size=1,
    max_size=8,
)


@examples(
    quick=40,
    full=120,
    words=token_words,
    tie_break=st.sampled_from(TIE_BREAKS),
    forbidden=st.sampled_from([b"aa", b"b a", b"?"]),
)
def test_both_trainers_agree_on_words_of_longer_tokens(words, tie_break, forbidden):
    learned = [
        train(
            words,
            40,
            tokens=[*byte_alphabet(), b"ab", b"ba", b" a"],
            tie_break=tie_break,
            min_count=1,
            accept=lambda left, right, _: forbidden not in left + right,
        )
        for train in WORD_TRAINERS.values()
    ]
    assert all(merges == learned[0] for merges in learned), dict(zip(WORD_TRAINERS, learned, strict=True))


# HF tokenizers as a third opinion.


def test_documents_are_held_out_by_a_hash_of_their_text():
    documents = [f"{i} {topic}" for i, topic in enumerate(topics.values())]
    chosen = [text for text in documents if reference.is_chosen(text, 0.3, "salt")]
    keep = _native.DocumentFilter(split="heldout", heldout_fraction=0.3, heldout_salt="salt")
    batch, _ = keep.apply(Batch.from_texts(documents))
    assert [batch.text(i) for i in range(len(batch))] == chosen
    assert 0 < len(chosen) < len(documents)
