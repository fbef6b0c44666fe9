from collections import Counter

import pytest

from superbpe import Rules
from superbpe.reference import cut_span, is_allowed, length_quantile, train, training_pieces

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def pieces(text, merges=(), pattern=GPT2, **rules):
    return training_pieces([text], list(merges), pattern, Rules(**rules))


# Pieces.


DIGITS, LINE, KEPT = r"\p{N}{1,3}", {"unit": "line"}, {"phase1_fence": "kept"}
SPACES = [(b" ", b" "), (b" ", b"b")]
NUMBERS = [(b"1", b"2"), (b"12", b"3"), (b"123", b"4")]
FEEDS = [(b"\n", b"\n"), (b"\n\n", b"\n")]
WORDS = r"\p{L}+|\s+"
FENCED = [(b"a", b"b"), (b"1", b"2", b"3"), (b"4", b"5"), (b"c", b" ")]


@pytest.mark.parametrize(
    ("text", "merges", "pattern", "rules", "expected"),
    [
        # The lifted fence lets merges of phase 1 cross old pretokens.
        ("a  b", SPACES, GPT2, {}, [(b"a", b"  ", b"b")]),
        ("a  b", SPACES, GPT2, KEPT, [(b"a", b" ", b" b")]),
        # Lines keep their ending.
        ("ab\ncd\r\nab\n", [], GPT2, LINE, [(b"a", b"b", b"\n")] * 2 + [(b"c", b"d", b"\r", b"\n")]),
        # Matches of the fence and the gaps between them are pieces.
        *(("ab12345c ", [], GPT2, {"fence": DIGITS, **kept}, FENCED) for kept in ({}, KEPT)),
        # The pretoken 1234 is one token, so the kept fence after three digits lies inside it, and closes it.
        ("x1234y", NUMBERS, GPT2, {"fence": DIGITS, **KEPT}, [(b"x",), (b"1234",), (b"y",)]),
        # So does the end of a line inside a token of white space.
        ("ab\n\n\ncd", FEEDS, WORDS, LINE | KEPT, [(b"a", b"b"), (b"\n\n\n",), (b"c", b"d")]),
        ("ab\n\n\ncd", FEEDS, WORDS, KEPT, [(b"a", b"b", b"\n\n\n", b"c", b"d")]),
        # A kept fence counts positions in bytes.
        (
            *("äö1ü", [(b"\xc3", b"\xa4")], GPT2, {"fence": r"\p{N}", **KEPT}),
            [(b"\xc3\xa4", b"\xc3", b"\xb6"), (b"1",), (b"\xc3", b"\xbc")],
        ),
    ],
)
def test_pieces(text, merges, pattern, rules, expected):
    assert pieces(text, merges, pattern, **rules) == Counter(expected)


def test_special_strings_cut_first_and_are_not_trained_on():
    for phase1_fence in ("lifted", "kept"):
        cut = training_pieces(["ab<s>ab", "<s>"], [], GPT2, Rules(phase1_fence=phase1_fence), special_tokens=["<s>"])
        assert cut == Counter({(b"a", b"b"): 2})


def test_only_spans_over_the_trigger_are_cut():
    assert cut_span((b"a",) * 4, 4, 2) == [(b"a",) * 4]
    assert cut_span((b"a",) * 5, 4, 2) == [(b"a", b"a"), (b"a", b"a"), (b"a",)]
    assert cut_span((b"a",) * 5, None, 2) == [(b"a",) * 5]
    assert pieces("abcde abc", fence=" ", span_trigger=4, span_cap=3) == Counter(
        [(b"a", b"b", b"c"), (b"d", b"e"), (b" ",), (b"a", b"b", b"c")]
    )


def test_spans_are_truncated_to_a_quantile_of_their_lengths_before_they_are_cut():
    text = "a bc bc defghi"
    whole = pieces(text, fence=" ")
    spaces = {(b" ",): 3, (b"a",): 1}
    assert [length_quantile(whole, quantile) for quantile in (0.1, 4 / 7, 0.6, 0.9, 1)] == [1, 1, 2, 6, 6]
    assert pieces(text, fence=" ", truncate_quantile=0.6) == Counter({**spaces, (b"b", b"c"): 2, (b"d", b"e"): 1})
    assert pieces(text, fence=" ", truncate_quantile=1.0, span_trigger=4, span_cap=4) == Counter(
        {**spaces, (b"b", b"c"): 2, (b"d", b"e", b"f", b"g"): 1, (b"h", b"i"): 1}
    )
    assert pieces("", truncate_quantile=0.5) == Counter()


@pytest.mark.parametrize("phase1_fence", ["lifted", "kept"])
def test_the_fence_sees_one_unit_at_a_time(phase1_fence):
    # Only in its line does the line feed end the text.
    cut = pieces("a  \nb", unit="line", fence=r"  \n$", phase1_fence=phase1_fence)
    assert cut == Counter([(b"a",), (b" ", b" ", b"\n"), (b"b",)])
    assert len(pieces("a  \nb", fence=r"  \n$", phase1_fence=phase1_fence)) == 1


# Tokens.


def test_vetoes():
    assert is_allowed(b" of the  cat s", Rules(max_words=4))
    assert not is_allowed(b" of the cat s", Rules(max_words=3))
    assert is_allowed(b"one\ntwo", Rules(max_words=1))  # only 0x20 separates words
    assert is_allowed(b"abcd", Rules(max_bytes=4))
    assert not is_allowed(b"abcde", Rules(max_bytes=4))
    assert not is_allowed(b"a: b", Rules(forbid=(r"\?", ": ")))
    assert is_allowed(b"a:b", Rules(forbid=(r"\?", ": ")))
    # Parts of characters at the ends are left out.
    assert not is_allowed(b"\xa9: \xc3", Rules(forbid=("^: $",)))
    assert is_allowed("éa".encode()[1:], Rules(forbid=("é", "\ufffd")))


def test_a_worked_example():
    documents = ["of the cat of the cat of the dog"]
    merges = [(b"o", b"f"), (b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b" ", b"of"), (b" ", b"c")]
    merges += [(b"a", b"t"), (b" c", b"at")]
    existing = [left + right for left, right in merges]
    cut = training_pieces(documents, merges, GPT2, Rules())
    assert cut == Counter(
        [(b"of", b" the", b" cat", b" of", b" the", b" cat", b" of", b" the", b" ", b"d", b"o", b"g")]
    )
    # (" the", " cat"), (" cat", " of") and (" of", " the") are tied at 2; lowest ids: " the" came first.
    learned = train(cut, 3, Rules(), "lowest-ids", existing)
    assert learned == [(b" the", b" cat", 2), (b" the cat", b" of", 2), (b"d", b"o", 1)]
    # A veto on three words leaves shorter ones.
    learned = train(cut, 3, Rules(max_words=2, min_count=2), "lowest-ids", existing)
    assert learned == [(b" the", b" cat", 2)]


def test_vetoed_pairs_stay_out_and_existing_tokens_are_not_made_again():
    cut = {(b"a", b"b"): 9, (b"a", b":", b" "): 5, (b"x", b"y"): 2, (b"y", b"z"): 1}
    rules = Rules(forbid=(": ",), min_count=2)
    assert train(cut, 9, rules, existing_tokens=[b"ab"]) == [(b"a", b":", 5), (b"x", b"y", 2)]
    assert train(cut, 9, rules, existing_tokens=[b"ab"], special_tokens=["xy"]) == [(b"a", b":", 5)]
