from __future__ import annotations

import difflib
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.evaluate import perturbations
from lm.evaluate.perturbations import PERTURBATIONS, WRAP_WIDTH, ZERO_WIDTH_SPACE, choose
from tokenizer.errors import UserError

SENTENCE = "The quick brown foxes jump over 2 lazy dogs, again and again.\n"
RANDOM = [each for each in PERTURBATIONS.values() if each.random]
TEXT = st.text(
    st.one_of(
        st.sampled_from("abcXYZ 09,.\n\t'é\u0301ßİŉǆ_- "),
        st.characters(exclude_categories=["Cs"], max_codepoint=0x2FFFF),
    ),
    max_size=200,
)
CODE = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["if x:", "return 1", ""])), min_size=1, max_size=12).map(
    lambda lines: "\n".join("    " * level + line for level, line in lines)
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("upper-case", "Straße 1a, don't", "STRASSE 1A, DON'T"),
        ("lower-case", "The API of ÅNGSTRÖM", "the api of ångström"),
        ("title-case", "don't panic: it’s snake_case, 3rd dž", "Don't Panic: It’s Snake_case, 3rd Dž"),
        ("without-diacritics", "Ménage à trois, ёлка, हिन्दी", "Menage a trois, елка, हिन्दी"),
        ("decomposed", "é", "e\u0301"),
        ("wrapped", "a" * 40 + " " + "b" * 40 + " c", "a" * 40 + "\n" + "b" * 40 + " c"),
        ("wrapped", "  " + "word " * 20, "  " + "word " * 20),
        ("wrapped", "x" * 100 + " y", "x" * 100 + "\ny"),
        ("unwrapped", "one\ntwo\n\nthree:\n    four\n", "one two\n\nthree:\n    four\n"),
        ("unwrapped", "one\r\ntwo\r\n\r\nthree:\r\n    four\r\n", "one two\r\n\r\nthree:\r\n    four\r\n"),
        ("grouped-digits", "1000000, 12345.5 and -98765", "1,000,000, 12,345.5 and -98,765"),
        ("grouped-digits", "2024 01234567 a12345 3.14159 12345,6", "2024 01234567 a12345 3.14159 12345,6"),
        ("ungrouped-digits", "1,000,000 and 1,234.5", "1000000 and 1234.5"),
        ("ungrouped-digits", "1,2,3 12,34 0,123 1,2345 a1,234", "1,2,3 12,34 0,123 1,2345 a1,234"),
        ("tab-indentation", "if:\n    a\n        b\n", "if:\n\ta\n\t\tb\n"),
        ("two-space-indentation", "if:\n\ta\n\t\tb\n  \n", "if:\n  a\n    b\n  \n"),
        ("four-space-indentation", "if:\n  a\n    b\n", "if:\n    a\n        b\n"),
        ("four-space-indentation", "if:\n  a\n\tb\n", "if:\n  a\n\tb\n"),
        ("four-space-indentation", "if:\n   a\n", "if:\n   a\n"),
    ],
)
def test_exact_examples(name: str, text: str, expected: str) -> None:
    assert PERTURBATIONS[name](text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full-width", "Ｃａｆé ２０２４, ok_ａｙ"),
        ("mathematical", "𝐂𝐚𝐟é 𝟐𝟎𝟐𝟒, ok_𝐚𝐲"),
        ("zero-width", "Caf|é 2024, o|k_a|y"),
        ("extra-spaces", "Café  2024,  ok_ay"),
        ("missing-spaces", "Café 2024, ok_ay"),
    ],
)
def test_random_perturbations_of_every_word(name: str, expected: str) -> None:
    """The place of a zero-width space is drawn."""
    got = PERTURBATIONS[name]("Café 2024, ok_ay", share=1.0)
    if name == "zero-width":
        assert got.count(ZERO_WIDTH_SPACE) == expected.count("|")
        assert got.replace(ZERO_WIDTH_SPACE, "") == "Café 2024, ok_ay"
    else:
        assert got == expected.replace("ok", PERTURBATIONS[name]("ok", share=1.0))


def test_a_typing_error_changes_one_place_inside_a_word() -> None:
    words = ["quick", "brown", "letter", "перемена", "Straße"] * 40
    got = perturbations.typing_errors(" ".join(words), share=1.0).split(" ")
    assert len(got) == len(words)
    for word, wrong in zip(words, got, strict=True):
        assert word != wrong
        assert word[0] == wrong[0]
        assert abs(len(word) - len(wrong)) <= 1
        assert difflib.SequenceMatcher(None, word, wrong).ratio() > 0.7
    assert {len(wrong) - len(word) for word, wrong in zip(words, got, strict=True)} == {-1, 0, 1}
    assert perturbations.typing_errors("a to the 12345 ,,,,", share=1.0) == "a to the 12345 ,,,,"


@pytest.mark.parametrize("perturb", RANDOM, ids=lambda each: each.name)
def test_random_perturbations_depend_on_seed_and_document_alone(perturb: perturbations.Perturbation) -> None:
    text = SENTENCE * 50
    assert perturb(text) == perturb(text)
    assert perturb(text) != perturb(text, seed=1)
    assert perturb(text, share=0.0) == text
    # Another document draws other words.
    assert not perturb(f"{text}.").startswith(perturb(text)[:-1])


def test_the_share_is_that_of_the_words() -> None:
    text = "word " * 20_000
    for share in (0.1, 0.5):
        got = perturbations.typing_errors(text, share=share).split(" ")
        assert sum(word != "word" for word in got[:-1]) / 20_000 == pytest.approx(share, abs=0.01)
        assert perturbations.missing_spaces(text, share=share).count(" ") / 20_000 == pytest.approx(1 - share, abs=0.01)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_repeating_a_perturbation_changes_nothing_more(text: str) -> None:
    for each in PERTURBATIONS.values():
        if not each.random:
            once = each(text)
            assert each(once) == once, each.name


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_pairs_undo_each_other(text: str) -> None:
    assert unicodedata.normalize("NFC", perturbations.decomposed(text)) == unicodedata.normalize("NFC", text)
    assert perturbations.ungrouped_digits(perturbations.grouped_digits(text)) == perturbations.ungrouped_digits(text)
    assert perturbations.unwrapped(perturbations.wrapped(text)) == perturbations.unwrapped(text)
    assert len(perturbations.wrapped(text)) == len(text)
    assert perturbations.zero_width(text, share=1.0).replace(ZERO_WIDTH_SPACE, "") == text.replace(ZERO_WIDTH_SPACE, "")
    for random in (perturbations.full_width, perturbations.mathematical):
        assert unicodedata.normalize("NFKC", random(text, share=1.0)) == unicodedata.normalize("NFKC", text)


def test_numbers_of_any_length_are_grouped() -> None:
    assert perturbations.grouped_digits("1" * 9_001) == "1" + ",111" * 3_000


@settings(max_examples=60, deadline=None)
@given(CODE)
def test_indentations_are_converted_both_ways(text: str) -> None:
    tabs, two, four = (PERTURBATIONS[f"{kind}-indentation"] for kind in ("tab", "two-space", "four-space"))
    for first in (tabs, two, four):
        assert [last(first(text)) for last in (tabs, two, four)] == [tabs(text), two(text), four(text)]
        assert [line.strip() for line in first(text).split("\n")] == [line.strip() for line in text.split("\n")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=90), min_size=1, max_size=40))
def test_wrapped_lines_are_as_full_as_possible(words: list[str]) -> None:
    lines = perturbations.wrapped(" ".join(words)).split("\n")
    assert " ".join(lines) == " ".join(words)
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        assert len(line) <= WRAP_WIDTH or " " not in line
        assert following is None or len(line) + 1 + len(following.split(" ")[0]) > WRAP_WIDTH


def test_unknown_and_repeated_names_are_rejected() -> None:
    assert [each.name for each in choose(["wrapped", "upper-case"])] == ["wrapped", "upper-case"]
    assert [each.name for each in choose(None)] == list(PERTURBATIONS)
    with pytest.raises(UserError, match="unknown perturbation 'uppercase'; known: typing-errors, upper-case,"):
        choose(["uppercase"])
    with pytest.raises(UserError, match="'wrapped' is named twice"):
        choose(["wrapped", "wrapped"])
