"""Our scanners, trainer and files beside HF `tokenizers`."""

import json

import numpy as np
import pytest

from tests import texts
from tokenizer import Batch, count_pretokens, patterns, train_bpe
from tokenizer.formats import printable

tokenizers = pytest.importorskip("tokenizers")

PATTERNS = [name for name in patterns.NAMES if name not in ("none", "seed")]
# The first two come from the SuperBPE paper's scripts: the very first has only empty matches.
CUSTOM = [
    r"(?=(\d{3})+(?!\d))",
    r"(?=(\d{3})+(?!\d))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r" ?[A-Za-z]+",
    r"[^\n]*\n",
    r"(?<=[.!?]) ",
    r"\s*",
]


def hf_split(text, regex):
    cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(regex), "isolated")
    return [piece for piece, _ in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_cut_where_hf_cuts(name):
    pattern = patterns.resolve(name)
    for text in [*texts.various(), *texts.prose()[:4], *texts.english()[1][:10]]:
        assert patterns.split(text, pattern) == hf_split(text, pattern.regex)


@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_class_every_character_as_hf_does(name, scalars):
    pattern = patterns.resolve(name)
    for start in range(0, len(scalars), 10_000):
        # After a letter, a digit, punctuation and a space: whatever class a character has, some cut shows it.
        text = "".join(f"a{c}1{c}!{c} {c}" for c in scalars[start : start + 10_000])
        if pattern_pieces := patterns.split(text, pattern):
            assert pattern_pieces == hf_split(text, pattern.regex)


@pytest.mark.parametrize("regex", CUSTOM)
def test_other_regexes_cut_where_hf_cuts(regex):
    for text in [*texts.various(), "1234567 1000, 12 1234", texts.prose()[0]]:
        assert patterns.split(text, regex) == hf_split(text, regex)
