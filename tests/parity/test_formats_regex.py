"""Which regexes are written to tokenizer.json and read from it: those that HF's engine cuts by as ours does."""

import random

import pytest

from tests import texts
from tests.parity.peers import hf_split
from tokenizer import UserError, _native, patterns
from tokenizer.formats.portable import CATEGORIES, SCRIPTS, unportable_part
from tokenizer.patterns import Pattern

tokenizers = pytest.importorskip("tokenizers")


def portable(regex):
    return unportable_part(Pattern("custom", regex)) is None


UNLIKE = {
    r"a{2}?": "aaa aa a",
    r"\p{L}{2}?": "aaa aa a",
    r"\p{N}{3}?": "123 12",
    r"a{2,2}?": "aaa aa a",
    r"a{3,2}": "aaaa",
    r"a{1,2}{2}": "aaaaaaa",
    r"a{1,2}+a": "aaaaa",
    r"(?i:ss)": "ß ss",
    r"(?i:st)": "ﬆ st",
    r"(?i:ff)": "ﬀ ff",
    r"(?i:fi)": "ﬁ fi",
    r"(?i:FL)": "ﬂ fl",
    r"(?i:ß)": "ß ss",
    r"(?i:\p{Lu})": "a A",
    r"\pL": "a pL",
    r"[a~~b]": "~~",
    r"[a--c]": "a-c",
    r"[!-&&a]": "!&a",
    r"[^[:alpha:]]": "a1 é",
    r"[a[:alpha:]]": "a1 é",
    r"[[:alpha:]]": "a1 é",
    r"\p{Word}": "a_1 \u200d",
    r"\p{Graph}": "a \u200b",
    r"\p{Print}": "a \t",
    r"\p{Script=Han}": "日a",
    r"\p{gc=L}": "a1",
    r"\w+": "a\u200db",
    r"\<a": "<a",
    r"\bx": "x",
    r"^a|a$": "xa\nax",
    r"(?<=a+)b": "aab",
    r"(?<=(a))b": "ab",
    r"(?m:.)": "a\nb",
    r"(?x)a b": "ab a b",
    r"(a)\1": "aa",
    r"(?:a?)*b": "aab",
}


@pytest.mark.parametrize("regex", UNLIKE)
def test_constructs_that_engines_read_differently_are_not_portable(regex):
    assert not portable(regex)


@pytest.mark.parametrize("regex", [r"a{2}?", r"(?i:ss)", r"(?i:ﬁ)", r"^a|a$", r"a{1,2}+a", r"\<a", r"[a~~b]"])
def test_the_engines_do_read_them_differently(regex):
    text = UNLIKE.get(regex, "ﬁ fi")
    assert hf_split(text, regex) != _native.split(text, regex)


SHARED = [
    *(patterns.resolve(name).regex for name in patterns.NAMES),
    # Other people's spellings, but for those with `$` or `{n,m}+`.
    *(regex for regex, _ in _native.equivalent_patterns() if "$" not in regex and "}+" not in regex),
    r" ?[ー\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*",
    r"[^$^]+|\s",
    r"(?<=[.!?]) ",
    r"[[a-z]$]+|\s",
    r"(?i:'s)| ?\p{L}+",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#%&'()*+,\-./:;<=>?@]?[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s+(?!\S)|\s+",
    r"[\u4e00-\u9fff]+|\p{Hangul}{2,3}?",
]


@pytest.mark.parametrize("regex", SHARED)
def test_portable_constructs_cut_the_same(regex):
    assert portable(regex)
    for text in filter(None, [*texts.various(), *texts.english()[1][:10], "İ ŉ K ſs ß ﬁ ﬆ", "1234567 a{2}?"]):
        assert hf_split(text, regex) == _native.split(text, regex)


@pytest.mark.parametrize(
    "part", [*(rf"\p{{{name}}}+" for name in (*CATEGORIES, *SCRIPTS)), r"\s+", r"\d+", r"\P{L}+", ".+", r"[^\S\n]+"]
)
def test_classes_hold_the_same_characters(part):
    assert portable(part)
    groups = texts.characters_by_category().values()
    every = "".join("".join(group[:: 1 + len(group) // 3000]) for group in groups)
    assert hf_split(every, part) == _native.split(every, part)


def test_escaped_punctuation_means_the_same():
    signs = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    for sign in signs:
        for regex in (rf"\{sign}", rf"[\{sign}]"):
            assert portable(regex) == (sign not in "<>")
            if portable(regex):
                assert hf_split(signs, regex) == _native.split(signs, regex) == [p for p in signs.partition(sign) if p]


def random_class(rng, depth=0):
    items = ["a", "b-d", "A-Z", "-", "^", "&", "~", "é", "ß", "$", r"\s", r"\d", r"\p{Lu}", r"\P{L}", r"\n", r"\]", "1"]
    parts = [random_class(rng, 1) if not depth and rng.random() < 0.15 else rng.choice(items) for _ in range(3)]
    return f"[{rng.choice(['', '', '^'])}{''.join(parts)}]"


def random_regex(rng, depth=0):
    """Of the parts that are on the list, and some that are not."""
    atoms = ["a", "b", "s", "f", "1", " ", "é", ".", r"\s", r"\d", r"\p{L}", r"\P{L}", r"\n", r"\.", "日", "^", "$"]
    groups = ["(?:", "(", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"]
    suffixes = ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{2,}", "{0,2}?"]
    suffixes += ["{2,}?", "{2}?", "{1,2}+", "{0}", "{2}+"]
    branches = []
    for _ in range(rng.randint(1, 2)):
        parts = []
        for _ in range(rng.randint(1, 3)):
            kind = rng.random()
            if kind < 0.3 and depth < 2:
                parts.append(rng.choice(groups) + random_regex(rng, depth + 1) + ")")
            else:
                parts.append(random_class(rng) if kind < 0.5 else rng.choice(atoms))
            parts.append(rng.choice(suffixes))
        branches.append("".join(parts))
    return "|".join(branches)


@pytest.mark.parametrize("seed", range(4))
def test_random_portable_regexes_cut_the_same(seed):
    rng = random.Random(seed)
    seen = 0
    while seen < 150:
        regex = random_regex(rng)
        if not portable(regex):
            continue
        try:
            patterns.resolve(regex)
        except UserError:
            continue
        seen += 1
        for _ in range(5):
            text = "".join(rng.choices("aabbssffcAZ1123  \n.-^&~$]é日ßﬁſ", k=40))
            assert hf_split(text, regex) == _native.split(text, regex), (regex, text)
