"""Superwords on imported tokenizers, as HF reads the result."""

import json
import random

import pytest

from superbpe import train_superbpe
from tests.superbpe.oracle import batches, documents_of, imported
from tokenizer import Tokenizer, formats
from tokenizer.formats import hf_json

hf = pytest.importorskip("tokenizers")
theirs = pytest.importorskip("tiktoken")


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
@pytest.mark.parametrize("rules", ["uw-2025", "none"])
@pytest.mark.parametrize("seed", range(8))
def test_a_tokenizer_json_grows_into_one_with_the_same_ids(rules, seed, tmp_path):
    rng = random.Random(seed)
    (tmp_path / "tokenizer.json").write_text(json.dumps(hf_json(imported(rng, ignore_merges=seed % 2 == 0))))
    base = Tokenizer.from_file(tmp_path)
    documents = documents_of(rng)
    grown = train_superbpe(base, batches(documents), vocab_size=base.vocab_size + 20, rules=rules, keep_ids=True)
    grown.save(tmp_path / "grown")
    again = hf.Tokenizer.from_file(str(tmp_path / "grown" / "tokenizer.json"))
    vocab = again.get_vocab()
    old = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab()
    assert {token: vocab[token] for token in old} == old
    assert Tokenizer.load(tmp_path / "grown").sha256 == grown.sha256
    held_out = documents_of(random.Random(seed + 100))
    assert any(max(again.encode(text).ids, default=0) >= base.vocab_size for text in documents)
    for text in [*documents, *held_out, *(token.decode(errors="ignore") for token in grown.vocab)]:
        assert again.encode(text).ids == grown.encode(text, allowed_special="all")


@pytest.mark.filterwarnings("ignore:the corpus ran out of pairs")
def test_tiktokens_ranks_with_gaps_grow(tmp_path):
    rng = random.Random(3)
    tokens = [b"ab", b" a", b"abc", b" ab", b"da", b"dad", b" dada", b"c "]
    ranks = {bytes([i]): 255 - i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    base = Tokenizer(*formats.tiktoken.from_ranks(ranks, pattern="gpt2", special_tokens={"<s>": 300, "<end>": 310}))
    documents = documents_of(rng)
    for rules in ("uw-2025", "none"):
        grown = train_superbpe(base, batches(documents), vocab_size=330, rules=rules, keep_ids=True)
        assert grown.vocab[: base.vocab_size] == base.vocab
        assert grown.vocab_size == 330
        again = hf.Tokenizer.from_str(json.dumps(hf_json(grown)))
        for text in documents:
            assert again.encode(text).ids == grown.encode(text, allowed_special="all")
            assert grown.decode(grown.encode_ordinary(text)) == text
