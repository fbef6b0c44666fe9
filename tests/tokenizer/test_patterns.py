import pytest

from tests import texts
from tokenizer import UserError, patterns, reference
from tokenizer.patterns import Pattern, resolve, split


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt2", "Let's  IT'S 1234!\n x", ["Let", "'s", " ", " IT", "'", "S", " 1234", "!", "\n", " x"]),
        ("llama3", "Let's  IT'S 1234!\n x", ["Let", "'s", " ", " IT", "'S", " ", "123", "4", "!\n", " x"]),
        ("cl100k", "a.b  \n  ", ["a", ".b", "  \n  "]),
        ("llama3", "a.b  \n  ", ["a", ".b", "  \n", "  "]),
        ("o200k", "camelCase don't ABCdef//\n/", ["camel", "Case", " don't", " ABCdef", "//\n/"]),
        ("superbpe", "camelCase don't ABCdef//\n/", ["camel", "Case", " don", "'t", " ABCdef", "//\n/"]),
        ("uw-2025-fence", "of the 1234 a.b -- c  d ", ["of the ", "123", "4", " a.b", " --", " c", " ", " d", " "]),
        ("punctuation-fence", "of the, end.\n\nThe", ["of the", ",", " end", ".\n\n", "The"]),
        ("none", "of the, end.\n\nThe", ["of the, end.\n\nThe"]),
        ("gpt2", "", []),
        ("none", "", []),
    ],
)
def test_pieces(name, text, pieces):
    assert split(text, name) == pieces


def test_a_long_s_is_no_contraction_in_gpt2_and_one_where_case_is_ignored():
    assert split("it'ſ", "gpt2") == ["it", "'", "ſ"]
    for name in ("cl100k", "llama3", "o200k"):
        assert split("it'ſ", name) == reference.split("it'ſ", resolve(name).regex)


@pytest.mark.parametrize("name", patterns.NAMES)
def test_pieces_joined_are_the_text(name):
    for text in texts.various():
        assert "".join(split(text, name)) == text


def test_names_resolve_to_themselves_and_regexes_to_their_names():
    for name in patterns.NAMES:
        pattern = resolve(name)
        assert pattern.name == name
        assert resolve(pattern) is pattern
        if name != "seed":  # another name of llama3's
            assert resolve(pattern.regex) == pattern
    assert {"gpt2", "cl100k", "o200k", "llama3", "superbpe", "seed", "none"} <= set(patterns.NAMES)
    assert resolve("seed").regex == resolve("llama3").regex
    assert resolve(r"[ab]+") == Pattern("custom", "[ab]+")


def test_an_unknown_name_is_an_error_that_suggests_the_near_one():
    with pytest.raises(UserError, match=r"unknown pattern 'gtp2'; did you mean 'gpt2'\?"):
        resolve("gtp2")
    with pytest.raises(UserError, match="unknown pattern 'zzz'; The names are gpt2, "):
        resolve("zzz")


@pytest.mark.parametrize("regex", ["(unclosed", r"\p{Nonsense}+", "*a", "[a"])
def test_a_regex_that_does_not_compile_is_an_error_that_names_it(regex):
    with pytest.raises(UserError, match="does not compile") as error:
        resolve(regex)
    assert regex.replace("\\", "\\\\") in str(error.value)


def test_a_regex_that_backtracks_for_ever_is_an_error_not_a_hang():
    with pytest.raises(UserError, match="gave up"):
        split("a" * 40 + "!", r"(?=(a+)+$)(\1)b|(a|a)*c\1")
