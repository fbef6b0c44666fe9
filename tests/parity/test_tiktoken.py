"""Our encoder beside `tiktoken`, given the same vocabulary and regex."""

import random

import pytest

from tests import texts
from tests.parity.peers import as_tiktoken, to_encoding
from tokenizer import Tokenizer, UserError, patterns
from tokenizer.formats.tiktoken import from_ranks

tiktoken = pytest.importorskip("tiktoken")


@pytest.mark.parametrize("name", ["gpt2", "llama3", "superbpe"])
def test_ids_equal_tiktoken(name, trained):
    ours = trained[name]
    theirs = as_tiktoken(ours)
    for text in [*texts.various(), *texts.english()[1], *texts.prose()[:8], texts.code()]:
        assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)
    for i in range(1199):
        assert ours.decode_bytes([i]) == theirs.decode_single_token_bytes(i)


@pytest.mark.parametrize("name", ["cl100k", "o200k"])
def test_patterns_cut_as_in_tiktoken(name, trained):
    """The engine is tiktoken's, the regex the pattern's own; merges are there to make the cuts visible."""
    plain = trained["none"]
    ours = Tokenizer.from_ranks(plain.ranks(), pattern=patterns.resolve(name))
    theirs = as_tiktoken(ours)
    for text in [*texts.various(), *texts.english()[1][:20], texts.code()]:
        assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)


SPECIALS = ["<|endoftext|>", "<|end|>", "[x]"]


@pytest.mark.parametrize("allowed", [set(), {"<|end|>"}, {"<|endoftext|>", "[x]"}, "all"])
@pytest.mark.parametrize("disallowed", [(), {"<|end|>"}, {"other"}, "all"])
def test_special_strings_mean_what_they_mean_in_tiktoken(allowed, disallowed, trained):
    plain = trained["gpt2"]
    ours = Tokenizer.from_ranks(plain.ranks(), pattern=plain.pattern, special_tokens=SPECIALS)
    theirs = as_tiktoken(ours)
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    for text in ["plain", "a <|end|> b", "<|endoftext|>", "[x]<|end|>[x]", "an other [x", "<|end<|endoftext|>|>"]:
        try:
            expected = theirs.encode(text, **options)
        except ValueError:
            with pytest.raises(UserError, match="special string"):
                ours.encode(text, **options)
        else:
            assert ours.encode(text, **options) == expected


def random_specials(rng):
    letters = rng.choice(["ab", "<|a", "aé"])
    return letters, list({"".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 4))})


def test_overlapping_special_tokens_are_exported_where_tiktoken_finds_the_same():
    """A special token may be inside another one or overlap its end, but not begin it."""
    rng, exported, differing = random.Random(0), 0, 0
    for _ in range(600):
        letters, specials = random_specials(rng)
        ours = Tokenizer.from_ranks([], pattern=patterns.resolve("none"), special_tokens=specials)
        theirs = as_tiktoken(ours)
        same = True
        for _ in range(12):
            text = "".join(rng.choices([*letters, *specials], k=rng.randint(1, 9)))
            allowed = set(rng.sample(specials, rng.choice([len(specials), rng.randint(0, len(specials))])))
            options = {"allowed_special": allowed, "disallowed_special": ()}
            same &= ours.encode(text, **options) == theirs.encode(text, **options)
        pairs = [(one, other) for one in specials for other in specials if one != other]
        if any(other.startswith(one) for one, other in pairs):
            with pytest.raises(UserError, match="is a prefix of"):
                to_encoding(ours)
            differing += not same
        else:
            to_encoding(ours)
            assert same, specials
            exported += any(one in other for one, other in pairs)
    assert exported > 50
    assert differing > 50


def test_a_special_token_that_begins_another_one_is_named():
    specials = ["<|endoftext|>", "<|end"]
    ours = Tokenizer.from_ranks([(64, 65)], pattern=patterns.resolve("gpt2"), special_tokens=specials)
    with pytest.raises(UserError, match=r"special token '<\|end' is a prefix of '<\|endoftext\|>'"):
        to_encoding(ours)
    ranks = {bytes([byte]): byte for byte in range(256)}
    with pytest.warns(UserWarning, match=r"'<\|end' is a prefix of"):
        from_ranks(ranks, pattern="gpt2", special_tokens={"<|endoftext|>": 256, "<|end": 257})
