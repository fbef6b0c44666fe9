"""Our encoder beside `tiktoken`, given the same vocabulary and regex."""

import pytest

from tests import texts
from tokenizer import Tokenizer, UserError, patterns

tiktoken = pytest.importorskip("tiktoken")


def as_tiktoken(tokenizer):
    """A tiktoken encoding: its ranks are ours, since a byte's id is its value and a merge's 256 + its rank."""
    specials = tokenizer.special_tokens
    return tiktoken.Encoding(
        "ours",
        pat_str=(tokenizer.fence or tokenizer.pattern).regex,
        mergeable_ranks={token: i for i, token in enumerate(tokenizer.vocab) if i not in specials.values()},
        special_tokens=specials,
    )


@pytest.mark.parametrize("name", ["gpt2", "llama3", "superbpe"])
def test_ids_are_tiktokens(name, trained):
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
