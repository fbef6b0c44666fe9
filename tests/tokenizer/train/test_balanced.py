"""Parity-aware phase 1 against its reference, and the text by which sources are balanced."""

import json

import numpy as np
import pytest
from hypothesis import strategies as st

from superbpe import train_superbpe
from tests.properties import examples
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens, train_bpe
from tokenizer.corpus.parallel import parallel_documents
from tokenizer.definition import ALPHABET
from tokenizer.reference.balanced import train_balanced
from tokenizer.train.balanced import Balanced, check_balance
from tokenizer.train.bpe import TIE_BREAKS, segment

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")

WORDS = st.dictionaries(st.text("abcé", min_size=1, max_size=8), st.integers(1, 6), min_size=1, max_size=12)
RATIOS = [1, 0.5, 1.7, 3]


def counted(words):
    return {str(i): count_pretokens(of_source, "none", special_tokens=["ab"]) for i, of_source in enumerate(words)}


def merged(tokenizer):
    """The merges as pairs of byte strings."""
    tokens = [bytes([byte]) for byte in ALPHABET]
    for left, right in tokenizer.ranks():
        tokens.append(tokens[left] + tokens[right])
    return [(tokens[left], tokens[right]) for left, right in tokenizer.ranks()]


@examples(
    10,
    60,
    words=st.lists(WORDS, min_size=2, max_size=4),
    parallel=st.none() | st.lists(WORDS, min_size=4, max_size=4),
    tie_break=st.sampled_from(TIE_BREAKS),
    min_count=st.sampled_from([1, 2, 5]),
    n_merges=st.integers(1, 30),
)
def test_merges_equal_the_reference(words, parallel, tie_break, min_count, n_merges):
    words = [{**of_source, "x": 1} for of_source in words]  # text remains if a special string is all of it
    sources = counted(words)
    options = {"tie_break": tie_break, "min_count": min_count, "special_tokens": ["ab"]}
    if parallel is None:
        balanced = Balanced(sources=sources, ratios=dict(zip(sources, RATIOS, strict=False)))
        measured = None
    else:
        tested = counted([{**text, "x": 1} for text in parallel[: len(words)]])
        balanced = Balanced(sources=sources, parallel=tested)
        measured = [dict(counts.items()) for counts in tested.values()]
    expected = train_balanced(
        [dict(counts.items()) for counts in sources.values()], n_merges, parallel=measured, ratios=RATIOS, **options
    )
    counts = []
    tokenizer = train_bpe(balanced, 256 + n_merges + 1, on_counts=counts.append, **options)
    assert merged(tokenizer) == [(left, right) for _, left, right, _ in expected]
    assert counts[0].tolist() == [count for *_, count in expected]
    costs = balanced.costs(lambda of_source: segment(of_source, tokenizer))
    assert all(np.isfinite(cost) for cost in costs.values())


@pytest.fixture
def languages(tmp_path):
    """Two sources with translations, of which one has much more other text."""
    english = [f"the quick brown fox jumps over dog number {i} and sleeps" for i in range(20)]
    japanese = [f"素早い茶色の狐が犬{i}を飛び越えて眠る" for i in range(20)]
    for name, texts, more in (("en", english, 200), ("ja", japanese, 1)):
        rows = [{"text": text, "id": {"nr": i}} for i, text in enumerate(texts)]
        rows += [{"text": f"{texts[i % 20]} and more {i}"} for i in range(more)] + [
            {"text": "other", "id": {"nr": name}}
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Corpus(CorpusConfig(sources={name: str(tmp_path / f"{name}.jsonl") for name in ("en", "ja")}))


def test_sources_are_balanced_by_their_translations(languages):
    found = parallel_documents(languages, "id.nr", "train")
    texts = {name: [text for _, text in documents] for name, documents in found.items()}
    assert [len(of_source) for of_source in texts.values()] == [20, 20]
    sources = {name: count_pretokens(part, "o200k") for name, part, _ in languages.by_source()}
    balanced = Balanced(
        sources=sources, parallel={name: count_pretokens(text, "o200k") for name, text in texts.items()}
    )
    tokenizer = train_bpe(balanced, 330)
    assert train_bpe(languages, 330, parallel="id.nr") == tokenizer
    plain = train_bpe(languages, 330)
    assert plain == train_bpe(balanced.total, 330)
    spread = [
        np.ptp(list(balanced.costs(lambda counts, of=one: segment(counts, of)).values())) for one in (plain, tokenizer)
    ]
    assert spread[1] <= 20 < spread[0]
    assert tokenizer.cut(300).ranks().tolist() == train_bpe(balanced, 300).ranks().tolist()
    assert train_bpe(balanced, 330, start=train_bpe(balanced, 290)).ranks().tolist() == tokenizer.ranks().tolist()
    assert tokenizer.provenance["phase1"]["balanced"]["parallel_bytes"].keys() == {"en", "ja"}
    superwords = train_superbpe(tokenizer, languages, vocab_size=330, transition=300, rules="digits")
    assert superwords.ranks()[:43].tolist() == tokenizer.ranks()[:43].tolist()
    assert len(superwords.superword_ids())


def test_documents_are_parallel_by_their_values_or_places(tmp_path):
    rows = {
        "a.jsonl": [
            {"text": "one", "id": 1},
            {"text": "two", "id": 2},
            {"text": "no", "id": ""},
            {"text": "", "id": 4},
        ],
        "b.jsonl": [{"text": "deux", "id": "2"}, {"text": "un", "id": 1.0}, {"text": "non", "id": ""}],
    }
    for name, of_file in rows.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in [*of_file, {"text": "x", "id": True}]))
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("un\nwithout original\ndeux")

    def parallel(ending, **settings):
        sources = {name: str(tmp_path / f"{name}.{ending}") for name in "ab"}
        documents = parallel_documents(Corpus(CorpusConfig(sources=sources, **settings)), "id", "all")
        return [sorted(of_source) for of_source in documents.values()]

    assert parallel("jsonl") == [[("1", "one"), ("2", "two")], [("1", "un"), ("2", "deux")]]
    found = parallel("txt", separator="\n")
    assert found == [[("document 1", "one"), ("document 3", "two")], [("document 1", "un"), ("document 3", "deux")]]
    (tmp_path / "b.txt").write_text("un\ndeux")
    with pytest.raises(UserError, match=r"a: 3, b: 2; sep"):
        parallel("txt", separator="\n")


def test_mistakes_with_balance_are_named(languages):
    one = {"en": count_pretokens(["text"], "gpt2")}
    two = one | {"de": count_pretokens(["Text"], "gpt2")}
    huge = one | {"de": count_pretokens({"Text": 1 << 61}, "gpt2")}
    for options, message in (
        ({"sources": one, "ratios": {"en": 1}}, r"only 1 source\(s\) to balance"),
        ({"sources": two}, "either by parallel text or by ratios"),
        ({"sources": two, "parallel": two, "ratios": {"en": 1, "de": 1}}, "either by parallel text or by ratios"),
        ({"sources": huge, "ratios": {"en": 1, "de": 1}}, r"source de stand for 2\^63 bytes or more"),
        ({"sources": two, "parallel": one}, "parallel is for the sources en, but the sources are en, de"),
        *(({"sources": two, "ratios": {"en": 1, "de": x}}, "ratio of de") for x in (0, -1, True, "1", float("nan"))),
    ):
        with pytest.raises(UserError, match=message):
            Balanced(**options)
    with pytest.raises(UserError, match=r"field name .*en: 0, ja: 0"):
        parallel_documents(languages, "name", "train")
    with pytest.raises(UserError, match=r"parallel=id needs a transition"):
        check_balance({"en": 1, "de": 1}, parallel="id", competing=True)
    with pytest.raises(UserError, match=r"named sources .*list"):
        train_bpe(["text"], 260, ratios={"en": 1, "de": 1})
    with pytest.raises(UserError, match="but these are counts"):
        train_bpe(Balanced(sources=two, ratios={"en": 1, "de": 1}), 260, pattern="gpt2")
