"""Scanners and regexes beside HF `tokenizers` and tiktoken: the same Unicode tables, the same pieces."""

import random

import numpy as np
import pytest
from hypothesis import strategies as st

from tests import texts
from tests.conftest import plane_of_scalars
from tests.parity.peers import hf_split
from tests.properties import examples, quick_first
from tokenizer import Tokenizer, UserError, _native, patterns
from tokenizer.formats.portable import CATEGORIES, SCRIPTS, unportable_part
from tokenizer.formats.tiktoken import from_ranks
from tokenizer.patterns import Pattern

public = pytest.importorskip("tiktoken_ext.openai_public")
tiktoken = pytest.importorskip("tiktoken")
tokenizers = pytest.importorskip("tokenizers")

PATTERNS = [name for name in patterns.NAMES if name not in ("none", "spans")]
PORTABLE = [
    *(patterns.resolve(name).regex for name in patterns.NAMES),
    # Other people's spellings, but for those with `$` or `{n,m}+`.
    *(regex for regex, _ in _native.equivalent_patterns() if "$" not in regex and "}+" not in regex),
    # The first two come from the SuperBPE paper's scripts: the very first has only empty matches.
    r"(?=(\d{3})+(?!\d))",
    r"(?=(\d{3})+(?!\d))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r" ?[ー\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*",
    r"[!\"#%&'()*+,\-./:;<=>?@]?[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s+(?!\S)|\s+",
    *(r" ?[A-Za-z]+", r"[^\n]*\n", r"(?<=[.!?]) ", r"\s*", r"[^$^]+|\s", r"[[a-z]$]+|\s", r"(?i:'s)| ?\p{L}+"),
    *("[一-龥぀-ゟ゠-ヿ]+", r"[\u4e00-\u9fff]+|\p{Hangul}{2,3}?"),
    # Sequences.
    *("\\p{N}\n ?[^\\s\\p{N}]+|\\s+", "(?<=[.!?]) \n(?=(\\d{3})+(?!\\d))", "[^\\n]*\\n\n\\s*"),
]


def portable(regex):
    return unportable_part(Pattern("custom", regex)) is None


@pytest.mark.parametrize("regex", PORTABLE)
def test_portable_regexes_cut_where_hf_cuts(regex):
    assert portable(regex)
    odd = ["İ ŉ K ſs ß ﬁ ﬆ", "1234567 a{2}?", "1234567 1000, 12. 1234"]
    for text in filter(None, [*texts.various(), *texts.prose()[:1], *texts.english()[1][:3], *odd]):
        assert hf_split(text, regex) == _native.split(text, regex)


@examples(80, 250, name=st.sampled_from(PATTERNS), text=st.text(max_size=60))
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


@pytest.mark.parametrize("name", quick_first(["o200k", "sentence-fence", "gpt2", "spans-plus"]))
def test_scanners_classify_every_character_like_hf(name, every_character):
    for text in every_character:
        assert patterns.split(text, name) == hf_split(text, patterns.resolve(name).regex)


@pytest.mark.slow
def test_other_planes_are_cut_where_hf_cuts():
    other_planes = "".join(chr(code) for plane in (*range(4, 14), 15, 16) for code in plane_of_scalars(plane))
    assert patterns.split(other_planes, "o200k") == hf_split(other_planes, patterns.resolve("o200k").regex)


@pytest.mark.parametrize("name", ["gpt2", "uw-paper"])
def test_patterns_that_hf_writes_without_a_regex(name):
    """The released SuperBPE tokenizers of the paper begin with HF's `Digits`."""
    pre = tokenizers.pre_tokenizers
    theirs = pre.ByteLevel(add_prefix_space=False)
    if name == "uw-paper":
        line = pre.Split(tokenizers.Regex(patterns.resolve(name).regex.split("\n")[1]), "isolated")
        theirs = pre.Sequence([pre.Digits(individual_digits=False), line])
    for text in [*texts.various(), *texts.english()[1][:10]]:
        spans = [span for _, span in theirs.pre_tokenize_str(text)]
        assert patterns.split(text, name) == [text[start:stop] for start, stop in spans]


# ------------------------------------------------------------------------------------------------ portability

DIFFERENT = {
    r"a{2}?": "aaa aa a",
    r"(?i:ss)": "ß ss",
    r"(?i:ﬁ)": "ﬁ fi",
    r"^a|a$": "xa\nax",
    r"a{1,2}+a": "aaaaa",
    r"\<a": "<a",
    r"[a~~b]": "~~",
}
UNPORTABLE = [
    *(r"\p{L}{2}?", r"\p{N}{3}?", r"a{2,2}?", r"a{3,2}", r"a{1,2}{2}", r"(?i:st)", r"(?i:ff)", r"(?i:fi)", r"(?i:FL)"),
    *(r"(?i:ß)", r"(?i:\p{Lu})", r"\pL", r"[a--c]", r"[!-&&a]", r"[^[:alpha:]]", r"[a[:alpha:]]", r"[[:alpha:]]"),
    *(r"\p{Word}", r"\p{Graph}", r"\p{Print}", r"\p{Script=Han}", r"\p{gc=L}", r"\w+", r"\bx", r"(?<=a+)b"),
    *(r"(?<=(a))b", r"(?m:.)", r"(?x)a b", r"(a)\1", r"(?:a?)*b"),
]


def test_constructs_that_engines_read_differently_are_not_portable():
    assert not [regex for regex in (*UNPORTABLE, *DIFFERENT) if portable(regex)]
    for regex, text in DIFFERENT.items():
        assert hf_split(text, regex) != _native.split(text, regex), regex


@pytest.mark.parametrize(
    "part", [*(rf"\p{{{name}}}+" for name in (*CATEGORIES, *SCRIPTS)), r"\s+", r"\d+", r"\P{L}+", ".+", r"[^\S\n]+"]
)
def test_classes_hold_the_same_characters(part):
    assert portable(part)
    groups = texts.characters_by_category().values()
    every = "".join("".join(group[:: 1 + len(group) // 1000]) for group in groups)
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


@pytest.mark.parametrize("seed", quick_first(range(4)))
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


# ---------------------------------------------------------------------------------------------------- tiktoken

NAMES = dict.fromkeys(("gpt2", "r50k_base", "p50k_base", "p50k_edit"), "gpt2")
NAMES |= {"cl100k_base": "cl100k", "o200k_base": "o200k", "o200k_harmony": "o200k"}


def test_tiktokens_published_patterns_are_named_ones_and_cut_as_we_do(monkeypatch):
    """Every piece of ours is a token here, and one id where tiktoken cuts the same piece."""
    for load in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):  # which need the network
        monkeypatch.setattr(public, load, lambda *_, **__: {})
    published = {name: make()["pat_str"] for name, make in public.ENCODING_CONSTRUCTORS.items()}
    assert published.keys() == NAMES.keys()
    corpus = [*texts.various(), *texts.english()[1][:10], "a \n ", "a\n\n \t", "it'ſ IT'S", " \n\n x\r\n  y "]
    for name, regex in published.items():
        cuts = [patterns.split(text, regex) for text in corpus]
        tokens = {bytes([byte]) for byte in range(256)} | {piece.encode() for cut in cuts for piece in cut}
        ids = {token: i for i, token in enumerate(sorted(tokens, key=lambda token: (len(token), token)))}
        theirs = tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ids, special_tokens={})
        read = Tokenizer(*from_ranks(ids, pattern=regex))
        assert read.pattern.name == NAMES[name]
        for text, cut in zip(corpus, cuts, strict=True):
            expected = [ids[piece.encode()] for piece in cut]
            assert theirs.encode_ordinary(text) == read.encode_ordinary(text) == expected
