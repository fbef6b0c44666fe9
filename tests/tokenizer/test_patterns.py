from itertools import accumulate

import pytest

from tests import texts
from tokenizer import UserError, patterns
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
        ("sentence-fence", "Is pi 3.14? “Yes.” So.\n\nEnd", ["Is pi 3.14?", " “Yes.”", " So.", "\n\n", "End"]),
        ("sentence-fence", "「はい。」と。です\n\n\n।」", ["「はい。」", "と。", "です\n\n\n", "।」"]),
        ("sentence-fence", "We won. We won!", ["We won.", " We won!"]),
        ("sentence-fence", "3.14 is it. Yes?  No", ["3.14 is it.", " Yes?", "  No"]),
        ("sentence-fence", 'He said "no." Then (left.) too', ['He said "no."', " Then (left.)", " too"]),
        ("sentence-fence", "今日は。明日は！「はい。」と", ["今日は。", "明日は！", "「はい。」", "と"]),
        ("sentence-fence", "यह है। वह है", ["यह है।", " वह है"]),
        ("sentence-fence", "a\nb\n\n\nc", ["a\nb\n\n\n", "c"]),
        ("sentence-fence", "e.g. this", ["e.g.", " this"]),
        ("phrases", "He's at the end!\n\n12 x", ["He", "'s", " at", " the", " end", "!\n", "\n", "1", "2", " x"]),
        ("phrases-fence", "He's at the end!\n\n12 x", ["He", "'s", " at the end", "!\n", "\n", "1", "2", " x"]),
        ("phrases-fence", "a b  c\td (e f)\n g", ["a b", " ", " c", "\td", " (", "e f", ")\n", " g"]),
        ("phrases-fence", "यह है। e\u0301 a \u0301b", ["यह है", "।", " e\u0301 a", " \u0301", "b"]),
        ("none", "of the, end.\n\nThe", ["of the, end.\n\nThe"]),
        ("digits1", "it's 123", ["it", "'s", " ", "1", "2", "3"]),
        ("whitespace", "it's  12.5,\n ok", ["it's", " ", " 12.5,", "\n", " ok"]),
        ("uw-paper", "in  1234567 or 12!\n x", ["in", "  ", "1", "234", "567", " or", " ", "12", "!", "\n", " x"]),
        ("uw-paper", "½ 12½3456 ٣٤٥٦", ["½", " ", "12½3", "456", " ", "٣", "٤٥٦"]),
        ("uw-paper-fence", "in  1234567 or 12!\n x", ["in  ", "1", "234", "567", " or ", "12", "!\n x"]),
        ("gpt2", "", []),
        ("none", "", []),
    ],
)
def test_pieces_of_named_patterns(name, text, pieces):
    assert split(text, name) == pieces


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("It's it’S don’t, we'LL", ["It", "'s", " it", "’S", " don", "’t", ",", " we", "'LL"]),
        ("1,234,567.891 12_000", ["1", ",234", ",567", ".891", " ", "12", "_000"]),
        ("12,34 1,2345 1,2", ["12", ",", "34", " ", "1", ",", "234", "5", " ", "1", ",", "2"]),
        ("3.14159 v1.2.", ["3", ".141", "59", " v", "1", ".2", "."]),
        ("6.02e23 1e-5, 2E+10x", ["6", ".02", "e23", " ", "1", "e-5", ",", " ", "2", "E", "+", "10", "x"]),
        ("50% 99.5% 1,000% %", ["50%", " ", "99", ".5%", " ", "1", ",000%", " %"]),
        ("a,b .5 ,123", ["a", ",b", " .", "5", " ,", "123"]),
        ("no!🙂🙂 👩\u200d💻ok", ["no", "!", "🙂", "🙂", " 👩\u200d💻", "ok"]),
        ("👍🏽❤\ufe0f🇩🇪🇫🇷🇩", ["👍🏽", "❤\ufe0f", "🇩🇪", "🇫🇷", "🇩"]),
        ("1\ufe0f\u20e3 #\u20e3 12\u20e3", ["1\ufe0f\u20e3", " #\u20e3", " ", "12", "\u20e3"]),
    ],
)
def test_what_spans_plus_keeps_together(text, pieces):
    assert split(text, "spans-plus") == pieces


def test_a_sequence_cuts_the_pieces_of_the_regex_before():
    assert split("abc211de", "\\d+\n[a-z]$|1") == ["ab", "c", "2", "1", "1", "d", "e"]
    assert resolve("a+\nb+") == Pattern("custom", "a+\nb+")
    assert resolve(resolve("uw-paper").regex).name == "uw-paper"
    with pytest.raises(UserError, match="one regex per line"):
        resolve("a+\n")
    with pytest.raises(UserError, match=r"'?\(b'?.* does not compile"):
        resolve("a+\n(b")


def test_other_spellings_are_known_and_kept():
    for theirs, ours in patterns._EQUIVALENT.items():
        assert resolve(theirs) == Pattern("custom", theirs)
        assert patterns.equivalent(theirs) == ours
    assert patterns.equivalent("gpt2") == resolve("gpt2")
    assert patterns.equivalent("a+") is None


def test_names_resolve_to_themselves_and_regexes_to_their_names():
    for name in patterns.NAMES:
        pattern = resolve(name)
        assert all("".join(split(text, name)) == text for text in texts.various())
        assert pattern.name == name
        assert resolve(pattern) is pattern
        if name != "spans":  # another name of llama3's
            assert resolve(pattern.regex) == pattern
    assert {"gpt2", "cl100k", "o200k", "llama3", "superbpe", "spans", "none"} <= set(patterns.NAMES)
    assert resolve("spans").regex == resolve("llama3").regex
    assert resolve(r"[ab]+") == Pattern("custom", "[ab]+")
    assert [str(each) for each in (resolve(r"\p{N}+"), resolve("gpt2"))] == [r"'\\p{N}+'", "gpt2"]


def test_an_unknown_name_is_an_error_that_suggests_the_near_one():
    with pytest.raises(UserError, match=r"unknown pattern 'gtp2' \(did you mean 'gpt2'\?\)"):
        resolve("gtp2")
    with pytest.raises(UserError, match="unknown pattern 'zzz'; the names are gpt2, "):
        resolve("zzz")


@pytest.mark.parametrize("regex", ["(unclosed", r"\p{Nonsense}+", "*a", "[a"])
def test_a_regex_that_does_not_compile_is_an_error_that_names_it(regex):
    with pytest.raises(UserError, match="does not compile") as error:
        resolve(regex)
    assert regex.replace("\\", "\\\\") in str(error.value)


@pytest.mark.slow  # the limit is a number of steps
def test_a_regex_that_takes_too_long_is_an_error():
    with pytest.raises(UserError, match="gave up"):
        split("a" * 40 + "!", r"(?=(a+)+$)(\1)b|(a|a)*c\1")


def test_words_of_phrases_end_where_phrases_end():
    """The fence cuts no word, so it makes no token of phase 1 unreachable."""
    for text in [*texts.various(), *texts.english()[1][:20], texts.code()[:20_000], *map(texts.generated, range(20))]:
        words, phrases = (set(accumulate(map(len, split(text, name)))) for name in ("phrases", "phrases-fence"))
        assert phrases <= words
