"""Our scanners beside HF `tokenizers`: the same Unicode tables, the same pieces."""

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import texts
from tests.conftest import CLASSES, plane_of_scalars
from tests.parity.peers import hf_split
from tokenizer import patterns

tokenizers = pytest.importorskip("tokenizers")

PATTERNS = [name for name in patterns.NAMES if name not in ("none", "spans")]
SEQUENCES = ["\\p{N}\n ?[^\\s\\p{N}]+|\\s+", "(?<=[.!?]) \n(?=(\\d{3})+(?!\\d))", "[^\\n]*\\n\n\\s*"]
# HF's engine has other rules for `$`, and repeats `{1,3}+`: such a spelling means something else there.
PORTABLE = [regex for regex in patterns._EQUIVALENT if "$" not in regex and "}+" not in regex]


@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_cut_where_hf_cuts(name):
    for text in [*texts.various(), *texts.prose()[:4], *texts.english()[1][:10]]:
        assert patterns.split(text, name) == hf_split(text, patterns.resolve(name).regex)


@pytest.mark.parametrize("name", PATTERNS)
@given(text=st.text(max_size=60))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_scanners_cut_any_text_where_hf_cuts(name, text):
    assert patterns.split(text, name) == hf_split(text, patterns.resolve(name).regex)


@pytest.fixture(scope="module")
def every_character(scalars, classes):
    """Texts that show each character's class: all in order, and where classes change, each in four contexts."""
    kinds = np.stack([hf for hf, _ in classes.values()])
    changes = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0))
    edges = sorted({*changes.tolist(), *(changes + 1).tolist(), *range(0x250)})
    assert len(edges) > 2500
    contexts = [f"a{scalars[i]}1{scalars[i]}!{scalars[i]} {scalars[i]}b" for i in edges]
    return [scalars, "".join(contexts)]


@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_classify_every_character_like_hf(name, every_character):
    for text in every_character:
        assert patterns.split(text, name) == hf_split(text, patterns.resolve(name).regex)


@pytest.fixture(scope="module")
def other_planes():
    return "".join(chr(code) for plane in (*range(4, 14), 15, 16) for code in plane_of_scalars(plane))


@pytest.mark.slow
@pytest.mark.parametrize("class_", CLASSES)
def test_other_planes_hold_no_member_of_a_class(class_, other_planes):
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(class_), "isolated")
    assert len(split.pre_tokenize_str(other_planes)) == 1
    assert regex.search(class_, other_planes) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_classify_other_planes_like_hf(name, other_planes):
    assert patterns.split(other_planes, name) == hf_split(other_planes, patterns.resolve(name).regex)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequences_cut_where_hf_cuts(sequence):
    for text in [*texts.various(), "1234567 1000, 12. 1234", texts.prose()[0]]:
        assert patterns.split(text, sequence) == hf_split(text, sequence)


@pytest.mark.parametrize("theirs", PORTABLE)
def test_other_spellings_cut_where_hf_cuts(theirs):
    for text in [*texts.various(), texts.prose()[0]]:
        assert patterns.split(text, theirs) == hf_split(text, theirs)


def test_the_papers_pattern_is_hf_digits_and_a_regex():
    """The released SuperBPE tokenizers of the paper begin with HF's `Digits`, not with a regex."""
    pre = tokenizers.pre_tokenizers
    line = patterns.resolve("uw-paper").regex.split("\n")[1]
    theirs = pre.Sequence([pre.Digits(individual_digits=False), pre.Split(tokenizers.Regex(line), "isolated")])
    for text in [*texts.various(), *texts.english()[1][:10]]:
        assert patterns.split(text, "uw-paper") == [piece for piece, _ in theirs.pre_tokenize_str(text)]


def test_the_gpt2_pattern_is_hf_byte_level():
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in [*texts.various(), *texts.english()[1][:10]]:
        spans = [span for _, span in byte_level.pre_tokenize_str(text)]
        assert patterns.split(text, "gpt2") == [text[start:stop] for start, stop in spans]
