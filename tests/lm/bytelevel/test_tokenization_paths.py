"""TokenizationPaths against their definition: what the encoder makes of every text that begins with the string."""

from dataclasses import replace
from unicodedata import normalize

import numpy as np
import pytest

from lm.bytelevel.tokenization_paths import TokenizationPaths
from superbpe import PRESETS, Rules
from tests.lm import tiny
from tests.lm.bytelevel.definition import (
    LETTERS,
    MIXED,
    NUMBERS,
    bpe,
    brute,
    flat,
    is_canonical,
    made_up,
    normalizing,
    superwords,
)
from tests.properties import quick_first
from tokenizer import Tokenizer, patterns, train_bpe
from tokenizer.errors import UserError

NAMED = [name for name in patterns.NAMES if "fence" not in name and name != "spans"]
FENCES = [name for name in patterns.NAMES if "fence" in name]


def check(tokenizer, alphabet, strings, n=3, every=8):
    """Compare with brute force: all next tokens that it finds, and one of every N others in turn."""
    paths = TokenizationPaths(tokenizer)
    several = 0
    for number, string in enumerate(strings):
        found, following = brute(tokenizer, string, alphabet, n)
        among = {path[-1] for path in following}.union(tokenizer.ordinary_ids()[number % every :: every].tolist())
        ours, ours_following = flat(paths.find(string)), flat(paths.extend(string, np.array(sorted(among))))
        assert found <= ours, (string, found - ours)
        assert following <= ours_following, (string, following - ours_following)
        assert all(tokenizer.decode_bytes(sequence).startswith(string) for sequence in ours | ours_following)
        # What is found beyond these continuations stands in some text all the same.
        for sequence in (ours - found) | (ours_following - following):
            assert is_canonical(tokenizer, sequence), (string, sequence)
        several += len({group.prefix for group in paths.find(string)}) > 1
        ids, tail = paths.stable_prefix(string)
        assert all(path[: len(ids)] == tuple(ids) for path in ours)
        assert {path[len(ids) :] for path in ours} == (flat(paths.find(tail)) if tail else {()})
    return several


def prefixes(alphabet, count, seed, length=9):
    texts = made_up(alphabet, count, length, seed)
    return sorted({text.encode()[: 1 + (5 * i) % len(text.encode())] for i, text in enumerate(texts)})


@pytest.mark.parametrize("pattern", quick_first(NAMED, 4))
def test_pretokens_of_every_pattern(pattern):
    check(bpe(pattern, MIXED), MIXED, [b"s 12", *prefixes(MIXED, 1, 1, 8)], 2)


@pytest.mark.parametrize("fence", FENCES)
def test_fences_with_two_passes(fence):
    check(superwords(Rules(fence=fence, phase1_fence="kept"), MIXED), MIXED, prefixes(MIXED, 1, 3, 8), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMED, *FENCES])
def test_longer_strings_of_every_pattern_and_fence(name):
    several = []
    for alphabet, kept in ((LETTERS, "kept"), (NUMBERS, "lifted"), ("a \n\t\u2005.ꙛ", ""), ("1a🦀\u200d\ufe0f🇩#ꙛ", "")):
        if name in NAMED:
            check(bpe(name, alphabet), alphabet, prefixes(alphabet, 2, 2, 12), every=4)
        elif kept:
            tokenizer = superwords(Rules(fence=name, phase1_fence=kept), alphabet)
            several.append(check(tokenizer, alphabet, prefixes(alphabet, 4, 3, 12), every=4))
    assert all(several)


@pytest.mark.parametrize("preset", quick_first(["uw-2025", "spans", "runs", "none"], 2))
def test_presets(preset):
    assert check(superwords(PRESETS[preset], LETTERS), LETTERS, [b"ab", b"s a", *prefixes(LETTERS, 2, 4)], 2)


def test_whole_pieces_without_merges():
    base = bpe("llama3", LETTERS)
    new = [token for token in (b"sabs", b" abbb", b"bass") if token not in base.vocab]
    assert b"sabs" in new
    unmerged = {token: base.vocab_size + i for i, token in enumerate(new)}
    tokenizer = Tokenizer(replace(base.definition, ignore_merges=True, unmerged=unmerged))
    check(tokenizer, LETTERS, [b"sabs", b"sab", b" sabs", b"bass", b"s", b"1bas"], 2)
    ours = flat(TokenizationPaths(tokenizer).find(b"sabs"))
    assert (unmerged[b"sabs"],) in ours
    assert any(len(path) > 1 for path in ours)  # as in "sabsꙛ"


def test_cut_characters_and_a_custom_regex():
    texts = ["日本語、日本。 naïve café 🦀 🦀🦀"] * 20 + ["日曜日 中国 中日 éé ïé"] * 10
    tokenizer = train_bpe(texts, 290, pattern="llama3")
    alphabet = "日本中、曜é ïꀀ🦀ꙛ語"
    whole = "日本é🦀ï、中".encode()
    check(tokenizer, alphabet, [whole[:n] for n in range(1, len(whole) + 1, 2)], 1, every=16)
    check(bpe(r"[ab]+(?=1)|s+|\s", LETTERS), LETTERS, [b"b'"], 2)  # a regex of one's own


@pytest.mark.parametrize(
    ("form", "pattern"),
    [("NFC", "none"), ("NFD", "llama3"), pytest.param("NFKC", "llama3", marks=pytest.mark.slow)],
)
def test_paths_of_normalized_text(form, pattern):
    tokenizer = normalizing(form, pattern)
    paths = TokenizationPaths(tokenizer)
    texts = ["\u00e9e\u0305", " a\u0323\u0301\u0345e", "\ufb01½e\u0301", "\u1161\u1100"]
    assert [paths.normalized(text.encode()).decode() for text in texts] == [normalize(form, text) for text in texts]
    strings = {normalize(form, text).encode()[:n] for text in texts for n in (2, 5)}
    check(tokenizer, "e\u0301\u0305\u0323\u00e9\u1eb9a \u1161", sorted(strings), 2)
    cut = b"\xcc"  # also of marks that do not compose
    assert paths.normalized(b"e" + cut) == b"e" + cut
    assert paths.find(b"e" + cut)


def test_bytes_that_no_normalized_text_has():
    composed, decomposed = (TokenizationPaths(normalizing(form)) for form in ("NFC", "NFD"))
    hangul = "각".encode()[:2]
    for paths, data, other in (
        (composed, "é".encode(), "e\u0301".encode()),
        (decomposed, "e\u0301".encode(), "é".encode()),
        (decomposed, "e\u0301".encode(), hangul),
    ):
        assert paths.find(data)
        with pytest.raises(UserError, match="no normalized text begins with"):
            paths.find(other)
    assert composed.find(hangul)


def test_the_text_before_a_long_run_matters():
    """Texts that end the same way: results for the first must not be reused for the second."""
    tokenizer = tiny.merged([(b"\n", b" "), (b" ", b" "), (b"a", b"b")], "llama3")
    indented = [f"{start}{' ' * n}".encode() for n in (10, 40) for start in ("a", "x\n")]
    check(tokenizer, "ab 1\n'.ꙛ", indented, 2)
    base = tiny.merged([(b"1", b"1")], "llama3")
    unmerged = {b"12": base.vocab_size, b"121": base.vocab_size + 1}
    tokenizer = Tokenizer(replace(base.definition, ignore_merges=True, unmerged=unmerged))
    check(tokenizer, "12᠑a", [b"121" * n + end for n in (3, 20) for end in (b"", b"1", b"12")], 2)


def test_a_string_that_no_text_begins_with():
    paths = TokenizationPaths(tiny.bytes_only())
    for data in (b"\xff", b"a\x80", b"\xc3a", b"\xed\xa0"):
        with pytest.raises(UserError, match="no text begins"):
            paths.find(data)
    assert flat(paths.find(b"")) == set()
    assert paths.encoding("né".encode()[:2]) is None
    assert paths.stable_prefix(b"") == ([], b"")
