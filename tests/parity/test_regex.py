"""Our scanners beside the `regex` module, which the readable reference uses."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from tests import texts
from tests.properties import examples
from tokenizer import Batch, patterns, reference

PATTERNS = [name for name in patterns.NAMES if name != "none"]
LIST = Path(__file__).parents[2] / "docs" / "unicode.txt"


MALFORMED = [b"caf\xe9 ol\xe9", b"\x80\xbf a", b"\xe4\xb8 \xe4\xb8\xad", b"\xf0\x9f\xa6", b"1\xff2", b"\xed\xa0\x80x"]
MALFORMED += [b"\xc0\xaf"]


def by_regex(text, pattern):
    return reference.split(text, patterns.resolve(pattern).regex)


def compact(members):
    """Code points as ranges: "588-58A 600"."""
    runs = []
    for code in members:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return " ".join(f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in runs)


def test_the_versions_of_unicode_are_the_documented_ones(classes, disputed):
    """HF and our scanners follow Unicode 16; `regex` may be newer, and then only assigns what was unassigned."""
    letters, numbers, spaces = ([hf, newer] for hf, newer in list(classes.values())[:3])
    assert [int(letters[0].sum()), int(numbers[0].sum()), int(spaces[0].sum())] == [141_028, 1_911, 25]
    assert int(spaces[1].sum()) == 25
    for hf, newer in classes.values():
        assert not np.any(hf & ~newer)
    # Of characters that have long been assigned, one was moved: U+0295 became a letter without case.
    assert {c for c in disputed if unicodedata.ucd_3_2_0.category(c) != "Cn"} <= {"\u0295"}


def test_the_differences_between_versions_are_the_listed_ones(scalars, classes):
    listed = re.findall(r"^(\S+): ([\d,]+)\n((?:[0-9A-F \n-]*\n)?)(?=\n|\Z)", LIST.read_text(), re.MULTILINE)
    found = {}
    for class_, (hf, newer) in classes.items():
        members = [ord(scalars[i]) for i in np.flatnonzero(hf != newer)]
        found[class_] = (f"{len(members):,}", compact(members))
    assert {class_: (n, " ".join(ranges.split())) for class_, n, ranges in listed} == found


def agreed(text, disputed):
    return "".join(c for c in text if c not in disputed)


@pytest.mark.parametrize("name", PATTERNS)
def test_scanners_cut_where_regex_cuts(name, disputed):
    data, offsets = np.frombuffer(b"".join(MALFORMED), dtype=np.uint8), np.cumsum([0, *map(len, MALFORMED)])
    batch = Batch.from_buffers(data, offsets, replace_invalid=True)
    replaced = [batch.text(i) for i in range(len(batch))]
    assert replaced == [text.decode(errors="replace") for text in MALFORMED]
    for text in [*texts.various(), *texts.prose()[:1], *texts.english()[1][:3], *replaced]:
        text = agreed(text, disputed)
        assert patterns.split(text, name) == by_regex(text, name)


CRAMPED = st.text(
    alphabet="aSstTlLrRvVeEmMdD'’ſ1٣½ \t\r\n\x85\u2028\u3000!/_,.%+-#\u0301Ǆǅʰ日🙂\u200d🏽\ufe0f\u20e3🇩\ufffd"
    '?"”»…。」।',
    max_size=24,
)


@examples(250, 800, name=st.sampled_from(PATTERNS), text=CRAMPED)
def test_scanners_cut_dense_text_where_regex_cuts(name, text):
    pattern = patterns.resolve(name)
    assert patterns.split(text, pattern) == by_regex(text, pattern)


# Regexes without classes of characters, so that no version of Unicode plays a part; then sequences.
OTHERS = [r"(?=(\d{3})+(?!\d))", r"a*", r"(?<=s)t|t(?=s)", r" ?[a-z]+|\n+", r"(?i:ab?)", r""]
OTHERS += ["\\d+\n(?=(\\d{3})+(?!\\d))", "[ab]+\na*\n[12]$", " \n(?<=s)t", "(?=b)\n[^3]+"]


@examples(200, 400, other=st.sampled_from(OTHERS), text=st.text(alphabet="abAsStT 123\n", max_size=24))
def test_other_regexes_cut_where_regex_cuts(other, text):
    assert patterns.split(text, other) == reference.split(text, other or None)  # an empty pattern does not cut


@pytest.mark.slow
@pytest.mark.parametrize("theirs", patterns._EQUIVALENT)
def test_other_spellings_cut_like_the_named_patterns(theirs, disputed):
    """By `regex`, whose `$` is also in front of a last line feed: `\\Z` is the end of the text there."""
    ours = patterns.equivalent(theirs)
    for text in [*texts.various()[::2], *texts.english()[1][:2], "a \n", "a\n ", " \n\n  ", "it'ſ IT'S"]:
        text = agreed(text, disputed)
        assert patterns.split(text, theirs) == patterns.split(text, ours) == by_regex(text, ours)
        assert by_regex(text, ours) == reference.split(text, theirs.replace("$", r"\Z"))
