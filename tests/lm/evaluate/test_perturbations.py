import difflib
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.evaluate import perturbations
from lm.evaluate.perturbations import PERTURBATIONS, WRAP_WIDTH

SENTENCE = "The quick brown foxes jump over 2 lazy dogs, again and again.\n"
TEXT = st.text(
    st.one_of(
        st.sampled_from("abcXYZ 09,.\n\t'é\u0301ßİŉǆ_- "),
        st.characters(exclude_categories=["Cs"], max_codepoint=0x2FFFF),
    ),
    max_size=200,
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("upper-case", "Straße 1a, don't", "STRASSE 1A, DON'T"),
        ("lower-case", "The API of ÅNGSTRÖM", "the api of ångström"),
        ("title-case", "don't panic: it’s snake_case, 3rd dž", "Don't Panic: It’s Snake_case, 3rd Dž"),
        ("decomposed", "é", "e\u0301"),
        ("wrapped", "a" * 40 + " " + "b" * 40 + " c", "a" * 40 + "\n" + "b" * 40 + " c"),
        ("wrapped", "  " + "word " * 20, "  " + "word " * 20),
        ("wrapped", "x" * 100 + " y", "x" * 100 + "\ny"),
    ],
)
def test_exact_examples(name, text, expected):
    assert PERTURBATIONS[name](text) == expected


def test_spaces_of_every_word():
    text = "Café 2024, ok_ay and  so"
    assert perturbations.extra_spaces(text, share=1.0) == "Café  2024,  ok_ay  and  so"
    assert perturbations.missing_spaces(text, share=1.0) == "Café 2024, ok_ayand  so"


def test_a_typing_error_changes_one_place_inside_a_word():
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


@pytest.mark.parametrize("name", ["typing_errors", "extra_spaces", "missing_spaces"])
def test_random_perturbations_depend_on_the_document_alone(name):
    text, perturb = SENTENCE * 50, getattr(perturbations, name)
    assert perturb(text) == perturb(text)
    assert perturb(text, share=0.0) == text
    # Another document draws other words.
    assert not perturb(f"{text}.").startswith(perturb(text)[:-1])


def test_the_share_is_that_of_the_words():
    text = "word " * 20_000
    for share in (0.1, 0.5):
        got = perturbations.typing_errors(text, share=share).split(" ")
        assert sum(word != "word" for word in got[:-1]) / 20_000 == pytest.approx(share, abs=0.01)
        assert perturbations.missing_spaces(text, share=share).count(" ") / 20_000 == pytest.approx(1 - share, abs=0.01)


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_repeating_a_perturbation_changes_nothing_more(text):
    for name, change in PERTURBATIONS.items():
        if name not in ("typing-errors", "extra-spaces", "missing-spaces"):
            once = change(text)
            assert change(once) == once, name
    assert unicodedata.normalize("NFC", perturbations.decomposed(text)) == unicodedata.normalize("NFC", text)
    assert len(perturbations.wrapped(text)) == len(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=90), min_size=1, max_size=40))
def test_wrapped_lines_are_as_full_as_possible(words):
    lines = perturbations.wrapped(" ".join(words)).split("\n")
    assert " ".join(lines) == " ".join(words)
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        assert len(line) <= WRAP_WIDTH or " " not in line
        assert following is None or len(line) + 1 + len(following.split(" ")[0]) > WRAP_WIDTH
