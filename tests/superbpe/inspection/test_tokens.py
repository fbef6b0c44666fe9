from dataclasses import replace

import numpy as np
import pytest

from superbpe.inspection import tokens
from superbpe.inspection.tokens import KINDS, kind
from tests import texts
from tests.generated import merged
from tokenizer import Tokenizer, patterns
from tokenizer.reference import merge_by_rank, ranks_of
from tokenizer.tokenizer import AROUND, n_words

PHASE1 = [(b" ", b"a"), (b"A", b" "), (b"b", b"c")]
PHASE2 = [(b"bc", b" a"), (b"\xf0", b"\x9f"), (b" a", b"\xf0")]
"""Merges of phase 2: a superword, half of a character of four bytes, and a token with a quarter of one."""


def _tokenizer(phase1=PHASE1, phase2=PHASE2, fence=r"\p{N}{1,3}"):
    return merged([*phase1, *phase2], fence=fence, n_phase1=len(phase1), special_tokens=["<|end|>"])


def test_columns():
    about = tokens.describe(_tokenizer())
    assert about.text[256:] == [" a", "A ", "bc", "bc a", "\\xf0\\x9f", " a\\xf0", "<|end|>"]
    assert about.n_bytes[256:].tolist() == [2, 2, 2, 4, 2, 3, 7]
    assert about.n_words[256:].tolist() == [1, 1, 1, 2, 1, 1, 1]
    assert about.rank[255:].tolist() == [-1, 0, 1, 2, 3, 4, 5, -1]
    assert about.phase[255:].tolist() == [0, 1, 1, 1, 2, 2, 2, 0]
    assert about.superword[256:].tolist() == [False, False, False, True, False, False, False]
    assert [about.text[i] for i in np.flatnonzero(about.crossing)] == [" a\\xf0"]
    assert about.partial.sum() == 128 + 2
    assert about.special.tolist() == [False] * 262 + [True]
    assert about.ordinary.sum() == 262
    assert about.pretokens.name == "gpt2"


def test_superwords_by_other_pretokens():
    about = tokens.describe(_tokenizer(), patterns.resolve("superbpe"))
    # A partial character at an end does not force a cut.
    assert [about.text[i] for i in np.flatnonzero(about.superword)] == ["bc a"]
    assert [about.text[i] for i in np.flatnonzero(about.crossing)] == ["A "]


def test_a_pattern_that_joins_words_cannot_count_words(trained):
    both = trained["superwords"]
    one_phase = {"n_phase1_merges": len(both.merge_ids), "pattern": both.fence, "fence": None}
    imported = Tokenizer(replace(both.definition, **one_phase))
    about = tokens.describe(imported)
    assert about.pretokens.name == patterns.YARDSTICK
    assert (about.superword | about.partial)[both.superword_ids()].all()
    assert (about.superword | about.crossing | about.partial)[both.crossing_ids()].all()
    more = Tokenizer(replace(both.definition, pattern=both.fence))  # phase 2 on top of such a copy keeps its superwords
    assert sorted(more.superword_ids().tolist()) == np.flatnonzero(about.superword).tolist() != []
    assert np.array_equal(more.superword_ids(), imported.superword_ids())
    assert not tokens.describe(trained["gpt2"]).superword.any()


def test_unreachable_tokens_occur_in_no_context(trained):
    for name in ("gpt2", "superwords", "two_pass"):
        tokenizer = trained[name]
        about = tokens.describe(tokenizer)
        ranks = ranks_of(tokenizer.merges)
        for i in np.flatnonzero(about.ordinary).tolist():
            token = tokenizer.vocab[i]
            if about.partial[i]:
                merged = merge_by_rank([bytes([byte]) for byte in token], ranks) == [token]
                expected = not merged or not {0xC0, 0xC1, *range(0xF5, 256)}.isdisjoint(token)
            else:
                around = [before + token.decode() + after for before, after in AROUND]
                expected = not any(i in tokenizer.encode_ordinary(text) for text in around)
            assert about.unreachable[i] == expected, (name, token)
    for name, tokenizer in trained.items():
        ids, _ = tokenizer.encode_batch(texts.various())
        assert not tokens.describe(tokenizer).unreachable[np.unique(ids)].any(), name
    about = tokens.describe(_tokenizer(fence="[b]"))  # the fence cuts in front of a phase-1 token
    assert [about.text[i] for i in np.flatnonzero(about.unreachable) if len(about.text[i]) < 4] == ["bc"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" of the", "function words only"),
        (" Don’t you", "function words only"),
        (" in the world", "function and content words"),
        (" young man", "content words only"),
        (".\n", "line breaks and wide spaces"),
        ("  x", "line breaks and wide spaces"),
        (" in 1999", "digits"),
        (" self._x", "code"),
        ("camelCase", "code"),
        (", and", "punctuation"),
        (' "the', "punctuation"),
    ],
)
def test_kinds(text, expected):
    assert KINDS[kind(text)] == expected


def test_superwords_and_their_counts():
    tokenizer = _tokenizer(PHASE1[::2], [(b"bc", b" a"), (b" a", b" a")])
    ids, _ = tokenizer.encode_batch(["bc a bc a", "x a a a a"])
    words = tokens.superwords(tokenizer, np.bincount(ids, minlength=tokenizer.vocab_size))
    found = [(word.text, word.n_bytes, word.n_words, word.count) for word in words]
    assert found == [("bc a", 4, 2, 2), (" a a", 4, 2, 2)]
    assert {word.count for word in tokens.superwords(tokenizer)} == {0}
    assert tokens.superwords(tokenizer.cut(259)) == []
    assert [n_words(token) for token in (b"", b" ", b" a", b"bc a", b" a  a ", b"a\nb")] == [0, 0, 1, 2, 2, 2]


def test_segments_spell_the_text_and_partial_characters_are_hex():
    pieces = tokens.segment(_tokenizer(), "bc a\U0001f600")
    assert [piece.text for piece in pieces] == ["bc a", r"\xf0\x9f", r"\x98", r"\x80"]
    assert [piece.superword for piece in pieces] == [True, False, False, False]
    assert [piece.partial for piece in pieces] == [False, True, True, True]


def test_near_duplicates_differ_by_case_or_a_leading_space():
    pairs = [(a.encode(), b.encode()) for a, b in (" a", " A", "bc", "Bc", "BC", "12", " 1")]
    about = tokens.describe(merged(pairs, "none"))
    groups = [[about.text[i] for i in group] for group in tokens.near_duplicates(about)]
    assert groups[0] == ["A", "a", " a", " A"]
    assert ["bc", "Bc", "BC"] in groups
    assert not any("1" in text for group in groups for text in group)


def test_tokens_missing_from_the_other_tokenizer(trained):
    one, other = trained["superwords"], trained["gpt2"]
    about = tokens.describe(one)
    lacking = {one.vocab[i] for i in np.flatnonzero(tokens.missing(one, about, other)).tolist()}
    assert lacking == {one.vocab[i] for i in one.ordinary_ids().tolist()} - set(other.vocab)
    assert not tokens.missing(one, about, one).any()
