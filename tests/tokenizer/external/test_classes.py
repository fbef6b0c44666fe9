"""Folders are read from tokenizer.json, whatever class their tokenizer_config.json names."""

import json
import warnings

import pytest

from tests import texts
from tokenizer import formats, patterns, train_bpe
from tokenizer.external import opening
from tokenizer.external.load import load_pretrained

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("kind", "differs"), [("GPT2Tokenizer", True), ("PreTrainedTokenizerFast", False), ("Unknown", False)]
)
def test_tokenizer_json_is_followed_and_other_ids_are_reported(tmp_path, kind, differs):
    tokenizer = train_bpe(texts.sample(60_000), 400, pattern="llama3")
    formats.write(tokenizer, tmp_path / "tokenizer.json", "hf")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert load_pretrained(tmp_path).tokenizer == tokenizer
    lines = [str(one.message) for one in caught if "AutoTokenizer" in str(one.message)]
    assert [line.count("other ids than tokenizer.json, which is followed here") for line in lines] == [1] * differs


def test_code_of_a_folder_is_never_run(tmp_path, monkeypatch):
    formats.write(train_bpe(["a b"], 258), tmp_path / "tokenizer.json", "hf")
    config = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "mine.Mine"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine: ...\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # the answer to the question of transformers
    load_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", opening._CLASSES)
def test_known_classes_cut_text_as_stated(kind):
    forms, pattern = opening._CLASSES[kind]
    parts = getattr(transformers, f"{kind}Tokenizer")()._tokenizer
    assert tuple([] if parts.normalizer is None else [type(parts.normalizer).__name__]) == forms
    text = "It's 1234567 o'CLOCK,\tnaïve café  日本語 🙂\r\n\n  def f(x):\n    return x**2  # I'LL go…  "
    spans = [span for _, span in parts.pre_tokenizer.pre_tokenize_str(text)]
    assert [text[start:end] for start, end in spans] == patterns.split(text, pattern)
