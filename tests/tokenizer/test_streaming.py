"""Text and ids in parts, cut anywhere, give the same as at once."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superbpe import PRESETS, train_superbpe
from tests import texts
from tests.generated import ONE_PASS, TWO_PASS, arbitrary
from tests.properties import examples
from tokenizer import Tokenizer, UserError, patterns, train_bpe
from tokenizer.formats import tiktoken


def streamed(tokenizer, parts, **options):
    found = list(tokenizer.encode_iter(parts, **options))
    assert all(len(ids) and ids.dtype == np.uint32 for ids in found)
    return [i for ids in found for i in ids.tolist()]


def cut(text, places):
    return [text[a:b] for a, b in pairwise([0, *sorted(places), len(text)])]


def random_parts(text, choose, n):
    return cut(text, [choose.randint(0, len(text)) for _ in range(n)])


@pytest.mark.parametrize("name", ONE_PASS + TWO_PASS)
def test_streams_have_the_ids_of_the_whole(name, trained):
    tokenizer, choose = trained[name], random.Random(1)
    for text in [*texts.various(), *texts.english()[1][:8], texts.code()[:20_000], texts.generated(5)]:
        whole = tokenizer.encode_ordinary(text)
        for n in (0, 1, 7, 40):
            assert streamed(tokenizer, random_parts(text, choose, n)) == whole
    short = texts.generated(6)[:300]
    assert streamed(tokenizer, list(short)) == tokenizer.encode_ordinary(short)


@pytest.mark.filterwarnings("ignore")
def test_streams_of_every_preset():
    choose, documents = random.Random(2), texts.sample(30_000)
    phase1 = train_bpe(documents, 700, pattern="superbpe")
    for rules in (name for name in PRESETS if name != "boundless"):  # finds its own transition, and is otherwise "runs"
        tokenizer = train_superbpe(phase1, documents, vocab_size=900, transition=600, rules=rules)
        for text in [*texts.english()[1][:5], texts.code()[:5000], texts.generated(7)]:
            assert streamed(tokenizer, random_parts(text, choose, 30)) == tokenizer.encode_ordinary(text)


@pytest.mark.parametrize("pattern", [*patterns.NAMES, r"a+| b", "\\p{N}\n" + patterns.resolve("gpt2").regex])
def test_streams_of_every_pattern(pattern, trained):
    """The merges were trained without a pattern, so that they join anything."""
    tokenizer = Tokenizer.from_ranks(trained["none"].ranks(), pattern=patterns.resolve(pattern))
    choose = random.Random(3)
    for text in [*texts.various()[:20], texts.generated(8), texts.generated(9), texts.code()[:3000]]:
        assert streamed(tokenizer, random_parts(text, choose, 50)) == tokenizer.encode_ordinary(text)


@examples(
    60,
    400,
    tokenizer=st.randoms(use_true_random=False).map(arbitrary),
    text=st.text(alphabet="aab  .1\n'eè日", max_size=30),
    seed=st.integers(0, 99),
)
def test_streams_of_arbitrary_tokenizers(tokenizer, text, seed):
    whole = tokenizer.encode_ordinary(text)
    assert streamed(tokenizer, list(text)) == whole
    assert streamed(tokenizer, random_parts(text, random.Random(seed), 3)) == whole


@given(text=st.text(alphabet="ab .", max_size=20))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_streams_where_merges_are_ignored(text):
    """A whole piece may be a token that merges do not make: no cut inside a piece, though no merge joins there."""
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 256, b"ab.": 257, b"a b": 258, b" ab": 259, b"b.a": 260}
    for pattern in ("none", "gpt2", "punctuation-fence"):
        tokenizer = Tokenizer(*tiktoken.from_ranks(ranks, pattern=pattern))
        assert tokenizer.ignore_merges
        assert streamed(tokenizer, list(text)) == tokenizer.encode_ordinary(text)


@pytest.mark.parametrize("name", ["gpt2", "llama3", "superbpe", "superwords", "two_pass", "unfenced"])
def test_little_text_waits(name, trained):
    """Pending text stays short after each part, so that the limit is never reached."""
    found = [("".join(texts.english()[1])[:300_000], 100, 10_000)]
    if name in ("llama3", "superbpe", "gpt2"):
        repeated = "早上好，世界！你好吗？", "Доброе утро, мир! ", "สวัสดี ชาวโลก ", "deadbeef0deadbeef0"
        found += [(text * 500, 10, 200) for text in repeated]
    for text, size, limit in found:
        parts = [text[i : i + size] for i in range(0, len(text), size)]
        assert streamed(trained[name], parts, max_pending_bytes=limit) == trained[name].encode_ordinary(text)


@pytest.mark.parametrize(("name", "letter"), [("gpt2", "a"), ("none", "a"), ("superwords", " "), ("two_pass", "!")])
def test_the_error_names_the_limit(name, letter, trained):
    with pytest.raises(UserError, match=r"1100 bytes of the stream .* max_pending_bytes=1000; raise it, or encode"):
        list(trained[name].encode_iter((letter * 100 for _ in range(100)), max_pending_bytes=1000))
    assert streamed(trained[name], [letter * 100] * 10, max_pending_bytes=1000)
    with pytest.raises(UserError, match="max_pending_bytes=0 must be at least 1"):
        trained[name].encode_iter([letter], max_pending_bytes=0)


SPECIALS = ["<a>", "<a", "<a>b<", "é<", "<|endoftext|>"]


@pytest.fixture(scope="module")
def specials(trained):
    """Special strings with common beginnings and ends."""
    plain = trained["superbpe"]
    return Tokenizer.from_ranks(plain.ranks(), pattern=plain.pattern, special_tokens=SPECIALS)


@given(
    pieces=st.lists(st.sampled_from([*SPECIALS, *"<a>bé |", "the ", " of", "\n"]), max_size=12),
    seed=st.integers(0, 99),
    allowed=st.sampled_from(["all", frozenset(["<a>", "é<"]), frozenset(["<a"]), frozenset()]),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_special_strings_in_streams(specials, pieces, seed, allowed):
    text = "".join(pieces)
    whole = specials.encode(text, allowed_special=allowed, disallowed_special=())
    assert streamed(specials, list(text), allowed_special=allowed) == whole
    for n in (0, 1, 4):
        assert streamed(specials, random_parts(text, random.Random(seed), n), allowed_special=allowed) == whole


def test_streams_with_special_strings_stay_small(specials):
    """Pending text is at most the longest special string and the text after the last certain cut."""
    text = "".join(texts.english()[1])[:100_000].replace("\n\n", "<a>") + "<|endoftext|" * 1000
    parts = [text[i : i + 50] for i in range(0, len(text), 50)]
    options = {"allowed_special": "all", "max_pending_bytes": 5000}
    assert streamed(specials, parts, **options) == specials.encode(text, allowed_special="all", disallowed_special=())
    with pytest.raises(UserError, match="max_pending_bytes=1000"):
        streamed(specials, [" " * 100] * 20, allowed_special="all", max_pending_bytes=1000)
    with pytest.raises(UserError, match="'<b>' is not a special token"):
        specials.encode_iter([], allowed_special={"<b>"})


def test_empty_streams(trained):
    assert streamed(trained["gpt2"], []) == streamed(trained["gpt2"], ["", ""]) == []
    for parts, message in (
        ("text", "encode_iter takes parts of a text"),
        (["a", "a\ud800"], r"part 1 of the stream contains a lone surrogate, U\+D800, at character 1"),
        ([b"a"], r"part 0 of the stream is not a string but bytes: b'a'"),
    ):
        with pytest.raises(UserError, match=message):
            list(trained["gpt2"].encode_iter(parts))
