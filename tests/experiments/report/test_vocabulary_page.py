"""The vocabulary page runs no regex of a stranger's tokenizer in its reader's browser, and uses no network."""

from dataclasses import replace

import pytest

from experiments.report import vocabulary, vocabulary_page
from tokenizer import Tokenizer, patterns


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_ranks([(97, 98)], pattern=patterns.resolve("gpt2"))


def with_pattern(tokenizer, regex):
    return Tokenizer(replace(tokenizer.definition, pattern=patterns.resolve(regex)))


def test_only_named_patterns_run_in_a_page(tokenizer):
    for name in patterns.NAMES:
        assert vocabulary_page.to_javascript(with_pattern(tokenizer, name)) is not None, name
    for part in (r"(a+)+", r"(\p{L}|\p{Lu})+", r"(?:x*)*y", r"\w+", r"[a-z&&[^b]]+", "a"):
        for regex in (f"{part}(?!a)", f"a?|{part}", f"{part}\n{patterns.resolve('gpt2').regex}"):
            assert vocabulary_page.to_javascript(with_pattern(tokenizer, regex)) is None, regex


def test_a_page_allows_its_own_scripts_and_no_network(tokenizer):
    side = vocabulary.side("one", "nowhere", with_pattern(tokenizer, "(a+)+(?!a)"), [], alpha=2.5)
    page = vocabulary_page.render(vocabulary.gather([side], None), [side])
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in page.replace("&#39;", "'")
