"""Kinds, mixtures and samples of the text of phase 2."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from superbpe import PRESETS, Rules, Source, train_superbpe
from superbpe.sources import Selection
from tests import texts
from tests.superbpe.oracle import batches
from tokenizer import Batch, Corpus, CorpusConfig, UserError, _native, count_pretokens, train_bpe

pytestmark = pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")

RULES = {name: PRESETS[name] for name in ("uw-2025", "runs", "boundless")}
RULES |= {"truncated": Rules(fence="punctuation-fence", span_trigger=20, truncate_quantile=0.9)}


@pytest.fixture(scope="module")
def english():
    return [text[:4000] for text in texts.english()[0][:12]]


@pytest.fixture(scope="module")
def other():
    """Text with phrases that the English text does not have."""
    return ["der die das und so weiter, und so fort: " * (i % 2 + 1) + str(i) for i in range(9)]


@pytest.fixture(scope="module")
def phase1(english, other):
    return train_bpe(count_pretokens([Batch.from_texts(english + other)], "gpt2"), 256 + 240 + 1)


def train(phase1, text, rules, **options):
    transition = "auto" if rules.interleave else 256 + 160
    return train_superbpe(phase1, text, vocab_size=256 + 240 + 1, transition=transition, rules=rules, **options)


@pytest.mark.parametrize("name", RULES)
def test_a_weight_counts_as_copies(name, phase1, english, other):
    copies = train(phase1, batches(english + 3 * other), RULES[name])
    for options in ({}, {"threshold": 1, "threads": 1}, {"threshold": 9, "threads": 3}):
        sources = [Source(batches(english, 5)), Source(batches(other), weight=3, name="other")]
        weighted = train(phase1, sources, RULES[name], **options)
        assert weighted.sha256 == copies.sha256
        said = ("corpus_bytes", "corpus_documents", "phase1_tokens", "last_count", "longest_span")
        about, expected = weighted.provenance["phase2"], copies.provenance["phase2"]
        assert {key: about[key] for key in said} == {key: expected[key] for key in said}
    assert train(phase1, batches(english + other), RULES[name]).sha256 != copies.sha256


def test_phase_2_may_read_other_text_than_phase_1(phase1, other):
    tokenizer = train(phase1, batches(other), RULES["uw-2025"])
    assert b" und so" in tokenizer.vocab
    assert tokenizer.provenance["phase1"] == phase1.provenance["phase1"]
    assert tokenizer.provenance["phase2"]["corpus_documents"] == len(other)


@pytest.mark.parametrize("weight", [0, -1, 2.5, 1_000_001])
def test_weights_out_of_range_are_rejected(weight, other):
    with pytest.raises(UserError, match=rf"code .*{weight}.* 1 to 1000000"):
        Source(batches(other), weight=weight, name="code")


def test_the_largest_weight_is_counted_correctly_and_a_source_without_text_is_named(phase1, english):
    tokenizer = train(phase1, [Source(batches(["a b c"] * 3000), weight=1_000_000)], Rules(), threads=4)
    assert tokenizer.provenance["phase2"]["last_count"] == 3_000_000_000
    with pytest.raises(UserError, match="code is empty"):
        train(phase1, [Source(batches(english)), Source(batches([""]), name="code")], RULES["uw-2025"])


def test_a_sample_that_leaves_a_source_out_is_rejected(phase1, english, other):
    sources = [Source(batches(other)), Source(batches(english[:1]), name="english")]
    salts = [replace(RULES["uw-2025"], sample=0.5, sample_salt=str(i)) for i in range(8)]
    selections = [Selection(share=rules.sample, salt=rules.sample_salt) for rules in salts]
    taken = [len(next(iter(chosen.of(sources[1:])[0].batches()))) == 1 for chosen in selections]
    assert 0 < sum(taken) < len(salts)
    for rules, there in zip(salts, taken, strict=True):
        refused = pytest.raises(UserError, match=r"english is empty.*choose another sample_salt")
        with nullcontext() if there else refused:
            train(phase1, sources, rules)


@pytest.mark.parametrize("name", ["uw-2025", "truncated"])
def test_a_sample_of_documents_is_chosen_by_their_text(name, phase1, english, other):
    keep = _native.DocumentFilter(sample_fraction=0.4, sample_salt="z")
    documents = english + other
    kept, _ = keep.apply(Batch.from_texts(documents))
    assert 0.2 < len(kept) / len(documents) < 0.6
    rules = replace(RULES[name], sample=0.4, sample_salt="z")
    by_hand = train(phase1, lambda: [kept], RULES[name])
    for size in (1, 9, None):
        sampled = train(phase1, batches(documents, size), rules)
        assert sampled.sha256 == by_hand.sha256
        assert sampled.provenance["phase2"]["corpus_documents"] == len(kept)
    assert train(phase1, batches(documents), replace(rules, sample_salt="y")).sha256 != by_hand.sha256


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lambda f: [f], r"write Source\(\.\.\.\) around"),
        (lambda f: [Source(f), f], r"write Source\(\.\.\.\) around"),
        (lambda f: [Source(f), "text"], r"write Source\(\.\.\.\) around 'text'"),
        (lambda f: lambda: ["a", 5], "text 1 is not a string but int: 5"),
        (lambda f: None, "the text is NoneType, not text: pass a list or an iterator of strings, a column"),
        (lambda f: "text.txt", r"the text 'text\.txt' is one string: write pathlib\.Path\('text\.txt'\)"),
        (lambda f: [""], "the corpus is empty"),
        (lambda f: [], "the corpus is empty"),
        (lambda f: count_pretokens(["a"], "gpt2"), "the text is PretokenCounts, not text"),
    ],
)
def test_text_of_another_kind_is_rejected(text, message, phase1, english):
    with pytest.raises(UserError, match=message):
        train(phase1, text(batches(english)), RULES["uw-2025"])


@pytest.mark.parametrize("option", [{"threshold": 0}, {"threshold": 2.5}, {"memory_bytes": -1}, {"memory_bytes": 0}])
def test_meaningless_limits_are_rejected(option, phase1, english):
    ((name, value),) = option.items()
    with pytest.raises(UserError, match=rf"{name}={value} must be (a whole number, )?from 1 to"):
        train(phase1, batches(english), RULES["uw-2025"], **option)


@pytest.mark.parametrize(
    "kind", ["corpus", "batches", "path", "list", "generator", "iterator", "function", "source", "sources"]
)
def test_phase_2_reads_text_of_any_kind(kind, phase1, english, tmp_path):
    expected = train(phase1, batches(english), RULES["truncated"])
    file = tmp_path / "text.jsonl"
    file.write_text("".join(json.dumps({"content": text}) + "\n" for text in english))
    corpus = Corpus(CorpusConfig(paths=[str(file)], field="content"))
    text, options = {
        "corpus": (corpus, {}),
        "batches": (corpus.batches(), {}),
        "path": (file, {"field": "content"}),
        "list": (english, {}),
        "generator": ((text for text in english), {}),
        "iterator": (iter([{"content": text} for text in english]), {"field": "content"}),
        "function": (lambda: (text for text in english), {}),
        "source": (Source(batches(english)), {}),
        "sources": ([Source(iter(english[:5])), Source(english[5:])], {}),
    }[kind]
    found = train(phase1, text, RULES["truncated"], **options)
    assert found == expected
    assert found.provenance["phase2"]["corpus_documents"] == len(english)


def test_a_long_iterator_is_rejected(phase1, english, monkeypatch):
    monkeypatch.setattr("superbpe.sources.MOST_BYTES", 1 << 10)
    with pytest.raises(UserError, match="kept in memory, and has more than"):
        train(phase1, iter(english), RULES["uw-2025"])


def test_mistakes_with_the_arguments_are_named(phase1, english):
    with pytest.raises(UserError, match=r"a Tokenizer.*a list.*train_superbpe\("):
        train(english, phase1, RULES["uw-2025"])
    with pytest.raises(UserError, match="start is not a Tokenizer but 'gpt2'"):
        train_bpe(english, 300, start="gpt2")
    once = iter(english)
    with pytest.raises(UserError, match=r"a function .*from the start"):
        train(phase1, lambda: once, RULES["uw-2025"])
