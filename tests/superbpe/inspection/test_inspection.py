from __future__ import annotations

import numpy as np

from superbpe.inspection import tokens as inspection
from tokenizer import patterns
from tokenizer.definition import ALPHABET
from tokenizer.tokenizer import Tokenizer, n_words

_RANK = {byte: rank for rank, byte in enumerate(ALPHABET)}


def _tokenizer() -> Tokenizer:
    """Phase 1: " a", "bc"; phase 2: "bc a", " a a", and the first two bytes of a four-byte character."""
    pairs = [(_RANK[ord(" ")], _RANK[ord("a")]), (_RANK[ord("b")], _RANK[ord("c")])]
    pairs += [(257, 256), (256, 256), (_RANK[0xF0], _RANK[0x9F])]
    return Tokenizer.from_ranks(
        pairs,
        pattern=patterns.resolve("gpt2"),
        special_tokens=["<|endoftext|>"],
        n_phase1_merges=2,
        fence=patterns.resolve(r"\p{N}{1,3}"),
    )


def test_words_are_the_parts_between_white_space():
    assert [n_words(token) for token in (b"", b" ", b" a", b"bc a", b" a  a ", b"a\nb")] == [
        0,
        0,
        1,
        2,
        2,
        2,
    ]


def test_superwords_are_the_phase_2_tokens_of_two_words():
    words = inspection.superwords(_tokenizer())
    assert [(word.text, word.n_bytes, word.n_words, word.count) for word in words] == [
        ("bc a", 4, 2, 0),
        (" a a", 4, 2, 0),
    ]


def test_counts():
    tokenizer = _tokenizer()
    ids, _ = tokenizer.encode_batch(["bc a bc a", "x a a a a"])
    words = inspection.superwords(tokenizer, np.bincount(ids, minlength=tokenizer.vocab_size))
    assert {word.text: word.count for word in words} == {"bc a": 2, " a a": 2}


def test_segments_spell_the_text_and_partial_characters_are_hex():
    pieces = inspection.segment(_tokenizer(), "bc a\U0001f600")
    assert [piece.text for piece in pieces] == ["bc a", r"\xf0\x9f", r"\x98", r"\x80"]
    assert [piece.superword for piece in pieces] == [True, False, False, False]
    assert [piece.partial for piece in pieces] == [False, True, True, True]


def test_plain_bpe_has_no_superwords():
    assert inspection.superwords(_tokenizer().cut(259)) == []
