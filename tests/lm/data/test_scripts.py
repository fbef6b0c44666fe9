import pytest
import regex

from lm.data.scripts import SCRIPTS, script


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "no letters"),
        ("1 + 1 = 2 €\n", "no letters"),
        ("naïve café 123", "Latin"),
        ("Привет, world", "Cyrillic"),
        ("Καλημέρα κόσμε", "Greek"),
        ("今天天气很好。", "Han"),
        ("今日はいい天気です。", "Japanese"),
        ("コーヒー", "Japanese"),
        ("漢字" * 30 + "の", "Han"),  # one kana in a Chinese text
        ("안녕하세요 세계 world", "Hangul"),
        ("नमस्ते", "Devanagari"),
        ("ᏣᎳᎩ", "other"),
        ("ªº a", "Latin"),
    ],
)
def test_a_documents_script_is_that_of_most_letters(text, name):
    assert script(text) == name


def test_script_names_are_those_of_unicode():
    for name in set(SCRIPTS) - {"Kana"}:
        regex.compile(rf"\p{{Script={name}}}")
