"""tiktoken's published patterns are named patterns of ours, in its own spelling."""

import pytest

from tests import texts
from tokenizer import patterns

public = pytest.importorskip("tiktoken_ext.openai_public")
tiktoken = pytest.importorskip("tiktoken")

NAMES = {
    "gpt2": "gpt2",
    "r50k_base": "gpt2",
    "p50k_base": "gpt2",
    "p50k_edit": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "o200k_harmony": "o200k",
}


@pytest.fixture
def published(monkeypatch):
    """Regexes by the encoding's name, without loading its vocabulary from the network."""
    for load in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(public, load, lambda *_, **__: {})
    return {name: make()["pat_str"] for name, make in public.ENCODING_CONSTRUCTORS.items()}


def test_every_published_pattern_is_a_named_one(published):
    found = {name: patterns.equivalent(regex) for name, regex in published.items()}
    assert {name: pattern and pattern.name for name, pattern in found.items()} == NAMES


def test_tiktoken_cuts_as_we_do(published):
    """Every piece of ours is a token here, and one id where tiktoken cuts the same piece."""
    corpus = [*texts.various(), *texts.english()[1][:10], "a \n ", "a\n\n \t", "it'ſ IT'S"]
    for name, regex in published.items():
        cuts = [patterns.split(text, regex) for text in corpus]
        tokens = {bytes([byte]) for byte in range(256)} | {piece.encode() for cut in cuts for piece in cut}
        ids = {token: i for i, token in enumerate(sorted(tokens, key=lambda token: (len(token), token)))}
        theirs = tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ids, special_tokens={})
        for text, cut in zip(corpus, cuts, strict=True):
            assert theirs.encode_ordinary(text) == [ids[piece.encode()] for piece in cut]
