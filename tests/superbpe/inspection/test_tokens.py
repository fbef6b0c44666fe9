from __future__ import annotations

import numpy as np
import pytest

from superbpe.inspection import tokens
from superbpe.inspection.tokens import KINDS, kind
from tests import texts
from tokenizer import Tokenizer, patterns
from tokenizer.definition import ALPHABET, Definition
from tokenizer.reference import merge_by_rank, ranks_of

_RANK = {byte: rank for rank, byte in enumerate(ALPHABET)}


def _tokenizer(**changes: object) -> Tokenizer:
    """Phase 1: " a", "A ", "bc"; phase 2: "bc a", two bytes of a four-byte character, " a" with one of them."""
    pairs = [(_RANK[ord(" ")], _RANK[ord("a")]), (_RANK[ord("A")], _RANK[ord(" ")]), (_RANK[ord("b")], _RANK[ord("c")])]
    pairs += [(258, 256), (_RANK[0xF0], _RANK[0x9F]), (256, _RANK[0xF0])]
    settings = {"n_phase1_merges": 3, "fence": patterns.resolve(r"\p{N}{1,3}")} | changes
    return Tokenizer.from_ranks(pairs, pattern=patterns.resolve("gpt2"), special_tokens=["<|end|>"], **settings)


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
    imported = Tokenizer(
        Definition(
            byte_ids=both.byte_ids,
            merge_ids=both.merge_ids,
            n_phase1_merges=len(both.merge_ids),
            pattern=both.fence or both.pattern,
        )
    )
    about = tokens.describe(imported)
    assert about.pretokens.name == tokens.YARDSTICK
    assert set(both.superword_ids().tolist()) <= set(np.flatnonzero(about.superword | about.partial).tolist())
    assert set(both.crossing_ids().tolist()) <= set(
        np.flatnonzero(about.superword | about.crossing | about.partial).tolist()
    )
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
                around = [before + token.decode() + after for before, after in tokens.AROUND]
                expected = not any(i in tokenizer.encode_ordinary(text) for text in around)
            assert about.unreachable[i] == expected, (name, token)


def test_tokens_that_occur_are_reachable(trained):
    for name, tokenizer in trained.items():
        about = tokens.describe(tokenizer)
        ids, _ = tokenizer.encode_batch(texts.various())
        assert not about.unreachable[np.unique(ids)].any(), name


def test_the_fence_makes_phase_1_tokens_unreachable():
    tokenizer = _tokenizer(fence=patterns.resolve("[b]"))
    about = tokens.describe(tokenizer)
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


def test_near_duplicates_differ_by_case_or_a_leading_space():
    pairs = [(_RANK[ord(a)], _RANK[ord(b)]) for a, b in (" a", " A", "bc", "Bc", "BC", "12", " 1")]
    tokenizer = Tokenizer.from_ranks(pairs, pattern=patterns.resolve("none"))
    about = tokens.describe(tokenizer)
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
