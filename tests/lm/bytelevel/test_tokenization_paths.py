"""TokenizationPaths against their definition: what the encoder makes of every text that begins with the string."""

import itertools
import random
from bisect import bisect_left as bisect
from dataclasses import replace
from functools import cache
from unicodedata import normalize

import numpy as np
import pytest

from lm.bytelevel.tokenization_paths import TokenizationPaths, split_utf8
from superbpe import PRESETS, Rules, train_superbpe
from tests.lm import tiny
from tokenizer import Batch, Tokenizer, count_pretokens, patterns, train_bpe
from tokenizer.definition import Definition
from tokenizer.errors import UserError
from tokenizer.special import Preparation

# Few characters, so that they can be tried in all orders; the first of each kind is in the merges, ꙛ and ᠑ are not.
LETTERS = "abs 1\n'.ꙛ"
NUMBERS = "a12,. %᠑e"
NAMED = [name for name in patterns.NAMES if "fence" not in name and name != "spans"]
FENCES = [name for name in patterns.NAMES if "fence" in name]


def made_up(alphabet, n=400, length=24, seed=0):
    rng = random.Random(seed)
    weights = [1 + 8 * (i < 3) for i in range(len(alphabet))]
    return ["".join(rng.choices(alphabet, weights, k=length)) for _ in range(n)]


def bpe(pattern, alphabet, vocab_size=295):
    texts = made_up(alphabet[:-1].replace("᠑", ""))
    return train_bpe(count_pretokens([Batch.from_texts(texts)], pattern), vocab_size)


def superwords(rules, alphabet, pattern="llama3", vocab_size=330):
    batches = [Batch.from_texts(made_up(alphabet[:-1].replace("᠑", "")))]
    start = train_bpe(count_pretokens(batches, pattern), 290)
    return train_superbpe(start, lambda: batches, vocab_size=vocab_size, transition=285, rules=rules)


def brute(tokenizer, data, alphabet, n):
    """TokenizationPaths of data by all continuations of at most n characters, and by completions of a cut character."""
    text, partial = split_utf8(data)
    characters = [c for c in alphabet if c.encode().startswith(partial) and len(c.encode()) > len(partial)]
    found, following = set(), set()
    continuations = ["".join(w) for k in range(n + 1) for w in itertools.product(alphabet, repeat=k)]
    if partial:
        continuations = [c + w for c in characters for w in continuations]
    ids, offsets = tokenizer.encode_batch([text + w for w in continuations])
    lengths = tokenizer.token_byte_lengths()
    for start, stop in itertools.pairwise(offsets.tolist()):
        if tokenizer.changes_text and not tokenizer.decode_bytes(ids[start:stop]).startswith(data):
            continue
        ends = np.cumsum(lengths[ids[start:stop]])
        last = int(np.searchsorted(ends, len(data)))
        if data:
            found.add(tuple(ids[start : start + last + 1].tolist()))
        after = last + 1 if data and ends[last] == len(data) else 0 if not data else None
        if after is not None and start + after < stop:
            following.add(tuple(ids[start : start + after + 1].tolist()))
    return found, following


def flat(groups):
    return {(*group.prefix, last) for group in groups for last in group.last.tolist()}


def check(tokenizer, alphabet, strings, n=3):
    paths = TokenizationPaths(tokenizer)
    several = 0
    for string in strings:
        found, following = brute(tokenizer, string, alphabet, n)
        ours, ours_following = flat(paths.find(string)), flat(paths.extend(string))
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


UNICODE = [chr(point).encode() for point in range(0x80, 0x110000) if not 0xD800 <= point < 0xE000]
EXTRA = "abs 1\n\t'’.ꙛꙚꀀ᠑½中é⁂%,eé\u0300🦀\ufe0f\u2005"


@cache
def completions(partial, most):
    """Up to N characters from all of Unicode that begin with these bytes."""
    found = UNICODE[bisect(UNICODE, partial) : bisect(UNICODE, partial[:-1] + bytes([partial[-1] + 1]))]
    return [c.decode() for c in found[:: 1 + len(found) // most]]


def is_canonical(tokenizer, sequence):
    """Whether any of many texts begins so; of the encoder nothing but its results is used."""
    text, partial = split_utf8(tokenizer.decode_bytes(sequence))
    if partial:
        some, all_ = completions(partial, 50), completions(partial, 1 << 20)
        return any(
            begins(tokenizer, sequence, text, [c + more for c in characters for more in ends])
            for characters, ends in ((some, [""]), (all_, ["", "\n", "1", "11"]))
        )
    pairs = [*map("".join, itertools.product(EXTRA, repeat=2)), "111", "᠑᠑᠑", "᠑᠑᠑᠑", "᠑᠑᠑᠑᠑"]
    return any(begins(tokenizer, sequence, text, more) for more in ([""], EXTRA, pairs))


def begins(tokenizer, sequence, text, continuations):
    ids, offsets = tokenizer.encode_batch([text + more for more in continuations], threads=1)
    return any(ids[start : start + len(sequence)].tolist() == list(sequence) for start in offsets[:-1].tolist())


def prefixes(alphabet, count, seed, length=9):
    texts = made_up(alphabet, count, length, seed)
    return sorted({text.encode()[: 1 + (5 * i) % len(text.encode())] for i, text in enumerate(texts)})


@pytest.mark.parametrize("pattern", NAMED)
def test_pretokens_of_every_pattern(pattern):
    for alphabet in (LETTERS, NUMBERS):
        check(bpe(pattern, alphabet), alphabet, prefixes(alphabet, 3, 1), 2)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", NAMED)
def test_pretokens_of_every_pattern_at_length(pattern):
    for alphabet in (LETTERS, NUMBERS, "a \n\t\u2005.ꙛ", "1a🦀\u200d\ufe0f🇩#ꙛ"):
        check(bpe(pattern, alphabet), alphabet, prefixes(alphabet, 12, 2, 12))


@pytest.mark.parametrize("fence", FENCES)
def test_fences_with_one_pass_and_with_two(fence):
    for alphabet, kept in ((LETTERS, "kept"), (NUMBERS, "lifted")):
        tokenizer = superwords(Rules(fence=fence, phase1_fence=kept), alphabet)
        check(tokenizer, alphabet, prefixes(alphabet, 3, 3), 2)


@pytest.mark.slow
@pytest.mark.parametrize("fence", FENCES)
def test_fences_at_length(fence):
    for alphabet in (LETTERS, NUMBERS):
        for kept in ("lifted", "kept"):
            tokenizer = superwords(Rules(fence=fence, phase1_fence=kept), alphabet)
            assert check(tokenizer, alphabet, prefixes(alphabet, 10, 3, 12))


@pytest.mark.parametrize("preset", ["runs", "none", "uw-2025", "spans"])
def test_presets(preset):
    assert check(superwords(PRESETS[preset], LETTERS), LETTERS, [b"ab", b"s a", *prefixes(LETTERS, 3, 4)], 2)


def test_whole_pieces_without_merges():
    base = bpe("llama3", LETTERS)
    new = [token for token in (b"sabs", b" abbb", b"bass") if token not in base.vocab]
    assert b"sabs" in new
    unmerged = {token: base.vocab_size + i for i, token in enumerate(new)}
    parts = {"byte_ids": base.byte_ids, "merge_ids": base.merge_ids, "n_phase1_merges": len(base.merge_ids)}
    tokenizer = Tokenizer(Definition(**parts, pattern=base.pattern, ignore_merges=True, unmerged=unmerged))
    strings = [b"sabs", b"sab", b" sabs", b"bass", b"ba", b"s", b"1bas", b"abba"]
    check(tokenizer, LETTERS, strings)
    ours = flat(TokenizationPaths(tokenizer).find(b"sabs"))
    assert (unmerged[b"sabs"],) in ours
    assert any(len(path) > 1 for path in ours)  # as in "sabsꙛ"


def test_cut_characters():
    texts = ["日本語、日本。 naïve café 🦀 🦀🦀"] * 20 + ["日曜日 中国 中日 éé ïé"] * 10
    tokenizer = train_bpe(count_pretokens([Batch.from_texts(texts)], "llama3"), 290)
    alphabet = "日本中、曜é ïꀀ🦀ꙛ語"
    whole = "日本é🦀ï、中".encode()
    check(tokenizer, alphabet, [whole[:n] for n in range(1, len(whole) + 1, 2)], 1)


ACCENTS = [
    (b"\xcc", b"\x81"),
    (b"e", b"\xcc"),
    (b"e", b"\xcc\x81"),
    (b"\xcc", b"\x85"),
    (b"\xc3", b"\xa9"),
    (b" ", b"e"),
    (b"\xe1", b"\x85"),  # with the next one, a vowel of Hangul
    (b"\xe1\x85", b"\xa1"),
]


def normalizing(form, pattern="gpt2"):
    return Tokenizer(replace(tiny.merged(ACCENTS, pattern).definition, preparation=Preparation(forms=(form,))))


@pytest.mark.parametrize(
    ("form", "pattern"),
    [("NFC", "none"), ("NFD", "llama3"), *(pytest.param(f, "llama3", marks=pytest.mark.slow) for f in ("NFC", "NFKC"))],
)
def test_paths_of_normalized_text(form, pattern):
    tokenizer = normalizing(form, pattern)
    paths = TokenizationPaths(tokenizer)
    texts = ["\u00e9e\u0305", " a\u0323\u0301\u0345e", "\ufb01½e\u0301", "\u1161\u1100"]
    assert [paths.normalized(text.encode()).decode() for text in texts] == [normalize(form, text) for text in texts]
    strings = {normalize(form, text).encode()[:n] for text in texts for n in range(2, 8)}
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


def test_a_regex_of_ones_own():
    tokenizer = bpe(r"[ab]+(?=1)|s+|\s", LETTERS)
    check(tokenizer, LETTERS, [b"b'"], 2)


def test_white_space_has_several_beginnings():
    """The token of the last space of a row is open until the next character comes."""
    tokenizer = tiny.merged([(b" ", b" "), (b"  ", b" "), (b" ", b"a")], "llama3")
    space, spaces, three, word = (tokenizer.vocab.index(token) for token in (b" ", b"  ", b"   ", b" a"))
    paths = flat(TokenizationPaths(tokenizer).find(b"   "))
    # The third space alone stands in front of a letter that it does not merge with.
    assert paths == {(three,), (spaces, word), (spaces, space), (spaces, spaces), (spaces, three)}


def test_the_text_before_a_long_run_matters():
    """Texts that end the same way: results for the first must not be reused for the second."""
    tokenizer = tiny.merged([(b"\n", b" "), (b" ", b" "), (b"a", b"b")], "llama3")
    indented = [f"{start}{' ' * n}".encode() for n in (10, 60) for start in ("a", "x\n", ".\n", "1 ")]
    check(tokenizer, "ab 1\n'.ꙛ", indented, 2)
    base = tiny.merged([(b"1", b"1")], "llama3")
    parts = {"byte_ids": base.byte_ids, "merge_ids": base.merge_ids, "n_phase1_merges": len(base.merge_ids)}
    unmerged = {b"12": base.vocab_size, b"121": base.vocab_size + 1}
    tokenizer = Tokenizer(Definition(**parts, pattern=base.pattern, ignore_merges=True, unmerged=unmerged))
    check(tokenizer, "12᠑a", [b"121" * n + end for n in (3, 20) for end in (b"", b"1", b"12")], 2)


def test_a_string_that_no_text_begins_with():
    paths = TokenizationPaths(tiny.bytes_only())
    for data in (b"\xff", b"a\x80", b"\xc3a", b"\xed\xa0"):
        with pytest.raises(UserError, match="no text begins"):
            paths.find(data)
    assert flat(paths.find(b"")) == set()
    assert paths.encoding("né".encode()[:2]) is None
    assert paths.stable_prefix(b"") == ([], b"")
