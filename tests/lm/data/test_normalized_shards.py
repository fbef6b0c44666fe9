"""Shards of a tokenizer that normalises text: original bytes stay the denominator, changed documents are counted."""

import json
import unicodedata
from dataclasses import replace

import numpy as np

from lm.data.sharding import ShardConfig, write_shards
from lm.data.shards import Shards
from lm.data.stream import DocumentStream
from tokenizer import Batch, Tokenizer, patterns
from tokenizer.special import Preparation

TEXTS = ["plain", "e\u0301t\u0301e", "déjà vu", "\u212bngstro\u0308m", "", "a\u0323\u0301b", "end"]
CHANGED = [text for text in TEXTS if unicodedata.normalize("NFC", text) != text]


def nfc_tokenizer():
    plain = Tokenizer.from_ranks([(0, 1)], pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])
    return Tokenizer(replace(plain.definition, preparation=Preparation(forms=("NFC",))))


def test_tokens_spell_the_normalised_text_and_sizes_are_of_the_original(tmp_path):
    tokenizer = nfc_tokenizer()
    config = ShardConfig(8)
    manifest = write_shards(tmp_path / "s", tokenizer, [Batch.from_texts(TEXTS)], config)
    assert manifest["text_loss"]["changed_documents"] == len(CHANGED) == 3
    assert manifest["n_bytes"] == sum(len(text.encode()) for text in TEXTS)
    shards = Shards.open(tmp_path / "s", tokenizer)
    assert sorted(shards.document_bytes.tolist()) == sorted(len(text.encode()) for text in TEXTS)
    spelled = [tokenizer.decode(shards.document(i)) for i in range(shards.n_documents)]
    assert sorted(spelled) == sorted(unicodedata.normalize("NFC", text) for text in TEXTS)
    assert [shards.spelled_bytes(i) for i in range(shards.n_documents)] == [len(text.encode()) for text in spelled]
    assert np.count_nonzero(shards.normalized_bytes) == 3
    stream = DocumentStream(shards, seed=0)
    assert stream.text_bytes(0, shards.n_tokens) == sum(len(text.encode()) for text in spelled)


def test_other_shards_have_no_extra_files(tmp_path):
    plain = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"), special_tokens=["<|endoftext|>"])
    write_shards(tmp_path / "s", plain, [Batch.from_texts(TEXTS)])
    assert not (tmp_path / "s" / "normalized_bytes.bin").exists()
    assert "text_loss" not in json.loads((tmp_path / "s" / "shards.json").read_text())
    shards = Shards.open(tmp_path / "s", plain)
    assert [shards.spelled_bytes(i) for i in range(len(TEXTS))] == shards.document_bytes.tolist()
