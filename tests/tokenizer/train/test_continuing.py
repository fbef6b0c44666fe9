"""Training that continues from a tokenizer."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generated import defined
from tests.tokenizer.train.small import CORPORA, counts_of, pairs
from tokenizer import Tokenizer, UserError, patterns, reference, train_bpe
from tokenizer.formats import hf_import
from tokenizer.formats.hf import hf_json
from tokenizer.reference import TIE_BREAKS


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_continuing_from_a_tokenizer_equals_one_run(real, tie_break):
    whole = train_bpe(real, 1200, tie_break=tie_break)
    for size in (257, 700, 1199, 1200):
        start = train_bpe(real, size, tie_break=tie_break)
        extended = train_bpe(real, 1200, start=start, tie_break=tie_break)
        assert extended.sha256 == whole.sha256
        assert extended.provenance["phase1"]["continued_from"] == start.name
        assert extended.provenance["phase1"]["merges"] == 1200 - size


@given(corpus=CORPORA, tie_break=st.sampled_from(TIE_BREAKS), min_count=st.integers(1, 3), first=st.integers(0, 12))
@settings(max_examples=40, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_continuing_equals_one_run_on_small_corpora(corpus, tie_break, min_count, first):
    counts, options = counts_of(corpus), {"special_tokens": ["ab"], "tie_break": tie_break, "min_count": min_count}
    whole = train_bpe(counts, 280, **options)
    start = train_bpe(counts, 257 + first, **options)
    del options["special_tokens"]
    assert train_bpe(counts, 280, start=start, **options).sha256 == whole.sha256


def test_continuing_keeps_the_layout_of_ids(real):
    options = {"special_tokens": ["<a>", "<b>"], "special_layout": "first"}
    merges = train_bpe(real, 600, special_tokens=[]).ranks()
    start = Tokenizer.from_ranks(merges, pattern=patterns.resolve("superbpe"), **options)
    extended = train_bpe(real, 700, start=start)
    assert (extended.special_tokens, extended.vocab_size) == ({"<a>": 0, "<b>": 1}, 700)
    assert extended.vocab[: start.vocab_size] == start.vocab


def test_tokenizers_that_cannot_be_continued_are_rejected(real, trained):
    copy = Tokenizer(*hf_import.parse(hf_json(trained["superwords"])))
    for size, start, message in (
        (5000, copy, "start is a copy of a tokenizer with superwords: its pattern"),
        (300, train_bpe(real, 400), r"vocab_size=300 is below the 400 tokens of start; use cut"),
        (5000, trained["superwords"], "start has superwords"),
        (5000, trained["gpt2"], "start has the pattern gpt2, the counts have superbpe"),
    ):
        with pytest.raises(UserError, match=message):
            train_bpe(real, size, start=start)


def _imported(n_specials_inside):
    """Ids out of order, a token that two merges make, one that none makes, a special token among the others."""
    byte_ids = [*range(255, -1, -1)]
    a, b, c, d = (byte_ids[byte] for byte in b"abcd")
    specials = {"<s>": 256} if n_specials_inside else {}
    first = 256 + n_specials_inside
    ab, bc, abc, dd = first, first + 1, first + 2, first + 3
    merges = [(b, c, bc), (a, b, ab), (ab, c, abc), (a, bc, abc), (d, d, dd)]
    options = {"special_tokens": specials, "ignore_merges": True, "unmerged": {b"dada": first + 4}}
    return defined(merges, byte_ids=byte_ids, pattern="none", **options)


@given(
    corpus=st.dictionaries(
        st.text(alphabet="abcd ", min_size=1, max_size=12).map(str.encode) | st.just(b"dada"),
        st.integers(1, 5),
        min_size=1,
        max_size=8,
    ),
    tie_break=st.sampled_from(TIE_BREAKS),
    inside=st.integers(0, 1),
)
@settings(max_examples=40, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_continuing_from_an_imported_tokenizer_equals_the_reference(corpus, tie_break, inside):
    start = _imported(inside)
    words = Counter()
    for pretoken, count in corpus.items():
        words[tuple(start.vocab[i] for i in start.encode_ordinary(pretoken.decode()))] += count
    expected = reference.train_words(
        words,
        10,
        tokens=[start.vocab[i] for i in start.ordinary_ids()],
        tie_break=tie_break,
        min_count=1,
        accept=lambda left, right, _: left + right != b"<s>",
    )
    extended = train_bpe(counts_of(corpus), start.vocab_size + 10, start=start, tie_break=tie_break)
    assert extended.vocab[: start.vocab_size] == start.vocab
    assert extended.merges[len(start.merges) :] == pairs(expected)
    assert extended.special_tokens == start.special_tokens
    for pretoken in corpus:
        assert extended.decode_bytes(extended.encode_ordinary(pretoken.decode())) == pretoken


def test_an_imported_tokenizer_that_looks_like_ours_keeps_its_ids(real, tmp_path):
    ours = train_bpe(real, 400)
    ours.save(tmp_path)
    (tmp_path / "superbpe.json").unlink()
    imported = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert imported.definition.special_layout == "last"
    extended = train_bpe(real, 500, start=imported)
    assert extended.vocab[:400] == ours.vocab
    assert extended.special_tokens == {"<|endoftext|>": 399}
    assert "imported" in extended.provenance
    assert extended.merges == train_bpe(real, 500).merges


def test_a_text_is_counted_as_the_tokenizer_encodes_it():
    """Normalized, and cut at added tokens: no merge is learned from text that encoding never sees."""
    start = train_bpe(["unrelated"], 257)
    added = {"<think>": start.vocab_size}
    start = Tokenizer(
        replace(start.definition, preparation=replace(start.preparation, forms=("NFC",), added_tokens=added))
    )
    decomposed = "e\u0301e\u0301 <think> " * 5
    extended = train_bpe([decomposed], start.vocab_size + 2, start=start)
    assert [token.decode() for token in extended.vocab[start.vocab_size :]] == ["\u00e9", "\u00e9\u00e9"]
