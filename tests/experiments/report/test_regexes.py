"""Translating patterns to JavaScript. tests/browser/test_encoder.py runs the translations."""

from __future__ import annotations

import pytest
import regex

from experiments.report.engine import engine
from experiments.report.regexes import UntranslatableError, members, to_javascript
from tokenizer import Tokenizer, _native, patterns
from tokenizer.definition import Definition


def test_every_named_pattern_and_its_other_spellings_translate() -> None:
    for pattern in [*(p for _, p in _native.named_patterns()), *(p for p, _ in _native.equivalent_patterns())]:
        sources = to_javascript(pattern)
        assert len(sources) == (pattern.count("\n") + 1 if pattern else 0)
        for source in sources:
            # Nothing that depends on the browser's version of Unicode, or on flags.
            assert not regex.search(r"\\[pPdDsSwW]|\(\?[a-z]|\+\+|(?<!\\)\.", source)


def test_classes_hold_the_characters_of_our_engine() -> None:
    assert members(r"\s") == [(9, 13), (32, 32), (133, 133), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A),
                              (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]  # fmt: skip
    assert sum(end - start + 1 for start, end in members(r"\p{L}")) == 141_028
    assert members("[^a]") == [(0, 96), (98, 0xD7FF), (0xE000, 0x10FFFF)]
    assert members("(?i:k)") == [(75, 75), (107, 107), (0x212A, 0x212A)]


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "a{x}", "*a", "(?<=a++)b", r"(?P=x)", r"\Z", "(?(1)a)"])
def test_unknown_syntax_is_rejected(pattern: str) -> None:
    with pytest.raises(UntranslatableError):
        to_javascript(pattern)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [(r"(a)\1", r"\1"), (r"(?x) a", "(?x)"), (r"(?m)^a", "(?m)"), (r"a\Kb", r"\K"), (r"(?:a|)*b", "can be empty")],
)
def test_what_cannot_be_translated_is_named(pattern: str, named: str, trained: dict[str, Tokenizer]) -> None:
    plain = trained["gpt2"]
    settings = {"byte_ids": plain.byte_ids, "merge_ids": plain.merge_ids, "n_phase1_merges": plain.n_phase1_merges}
    refused = engine(Tokenizer(Definition(**settings, pattern=patterns.resolve(pattern))))[0]["refused"]
    assert refused is not None
    assert "'custom'" in refused
    assert pattern in refused
    assert named in refused
