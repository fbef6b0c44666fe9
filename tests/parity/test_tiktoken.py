"""Our encoder beside `tiktoken`, given the same vocabulary and regex."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.parity.peers import as_tiktoken, to_encoding
from tokenizer import Tokenizer, UserError, patterns
from tokenizer.formats.tiktoken import from_ranks

tiktoken = pytest.importorskip("tiktoken")


@pytest.mark.parametrize("name", ["gpt2", "llama3", "superbpe", "cl100k", "o200k"])
def test_ids_equal_tiktoken(name, trained):
    """Where no tokenizer is trained with the pattern, merges that join anything make its cuts visible."""
    ours = trained.get(name) or Tokenizer.from_ranks(trained["none"].ranks(), pattern=patterns.resolve(name))
    theirs = as_tiktoken(ours)
    for text in [*texts.various(), *texts.english()[1], *texts.prose()[:8], texts.code()]:
        assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)
    for i in range(1199):
        assert ours.decode_bytes([i]) == theirs.decode_single_token_bytes(i)


# No string is the start of another: where one is, tiktoken takes whichever its table lists first, we the longest.
SPECIALS = ["<|a|>", "<|b|>", "[x]", "|>[", "日本", " y "]


@pytest.fixture(scope="module")
def both(trained):
    ours = Tokenizer.from_ranks(trained["gpt2"].ranks(), pattern=patterns.resolve("gpt2"), special_tokens=SPECIALS)
    return ours, as_tiktoken(ours)


@given(
    text=st.text(alphabet="<|ab>[x] y日本", max_size=24),
    allowed=st.one_of(st.just("all"), st.sets(st.sampled_from(SPECIALS))),
    disallowed=st.one_of(st.just("all"), st.sets(st.sampled_from([*SPECIALS, "a", "<|"]))),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_special_strings_of_generated_text_equal_tiktoken(both, text, allowed, disallowed):
    ours, theirs = both
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    try:
        expected = theirs.encode(text, **options)
    except ValueError:
        with pytest.raises(UserError, match="contains the special string"):
            ours.encode(text, **options)
    else:
        assert ours.encode(text, **options) == expected


def random_specials(rng):
    letters = rng.choice(["ab", "<|a", "aé"])
    return letters, list({"".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 4))})


def test_overlapping_special_tokens_are_exported_where_tiktoken_finds_the_same():
    """A special token may be inside another one or overlap its end, but not begin it."""
    rng, exported, differing = random.Random(0), 0, 0
    for _ in range(150):
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
    assert exported > 10
    assert differing > 10


def test_a_special_token_that_begins_another_one_is_named():
    specials = ["<|endoftext|>", "<|end"]
    ours = Tokenizer.from_ranks([(64, 65)], pattern=patterns.resolve("gpt2"), special_tokens=specials)
    with pytest.raises(UserError, match=r"special token '<\|end' is a prefix of '<\|endoftext\|>'"):
        to_encoding(ours)
    ranks = {bytes([byte]): byte for byte in range(256)}
    with pytest.warns(UserWarning, match=r"'<\|end' is a prefix of"):
        from_ranks(ranks, pattern="gpt2", special_tokens={"<|endoftext|>": 256, "<|end": 257})
