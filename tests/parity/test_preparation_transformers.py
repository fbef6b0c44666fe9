"""`tokenizer.hf` with normalisers and added tokens equals the stock class of `transformers`."""

import json
import random

import pytest

from tests.parity.peers import same
from tests.parity.prepared import SEQUENCES, generated, imported
from tokenizer import Tokenizer, UserError

transformers = pytest.importorskip("transformers")

CALLS = [
    {},
    {"return_offsets_mapping": True, "return_special_tokens_mask": True},
    {"split_special_tokens": True, "return_offsets_mapping": True},
    {"truncation": True, "max_length": 5, "stride": 2, "return_overflowing_tokens": True},
]


@pytest.mark.parametrize("forms", SEQUENCES[:5])
def test_calls_equal_the_stock_class(forms, hf, trained, tmp_path):
    rng = random.Random(str(forms))
    for number in range(3):
        folder = tmp_path / str(number)
        _, ours = imported(trained, rng, forms)
        ours.save(folder)
        pair = [cls.from_pretrained(folder) for cls in (transformers.PreTrainedTokenizerFast, hf.SuperBPETokenizerFast)]
        for one in pair:
            one.add_tokens(["newword", "\u212b<"])
            one.add_special_tokens({"eos_token": "<eos>"})
        found = [generated(rng) + rng.choice(["", "newword", "<eos>", "\u212b<", "\u00c5<"]) for _ in range(25)]
        for call in CALLS:
            same(pair[0](found, **call), pair[1](found, **call))
        same(pair[0](found[:8], found[8:16]), pair[1](found[:8], found[8:16]))
        with pytest.raises(UserError, match="'word' has lstrip=True, which is not supported"):
            pair[1].add_tokens([transformers.AddedToken("word", lstrip=True)])


def test_added_tokens_survive_saving(hf, trained, tmp_path):
    _, ours = imported(trained, random.Random(2), ("NFC",))
    fast = hf.SuperBPETokenizerFast.from_tokenizer(ours)
    fast.add_tokens(["newword"])
    fast.save_pretrained(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.preparation.added_tokens == {**ours.preparation.added_tokens, "newword": ours.vocab_size}
    assert loaded.special_tokens == ours.special_tokens
    assert json.loads((tmp_path / "tokenizer.json").read_text())["normalizer"] == {"type": "NFC"}
    text = "e\u0301 newword"
    assert loaded.encode_ordinary(text) == fast(text)["input_ids"]
