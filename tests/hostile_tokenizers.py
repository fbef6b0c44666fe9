"""Tokenizer files that take other software unbounded time or memory, drawn at random."""

import io
import json
from unittest.mock import patch

import pytest

from tests import changed_files
from tokenizer import UserError
from tokenizer.external import software
from tokenizer.external.load import load_pretrained

SCRIPTS = ["az", "аям", "اب", "あん", "ሀጀ", "中文"]
CLASSES = ["T5Tokenizer", "ByT5Tokenizer", "MyT5Tokenizer", "LasrTokenizer", "UdopTokenizer"]
"""Classes of `transformers` that make as many tokens as their configuration says."""


def _file(model, **parts):
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"))
    return {"version": "1.0", "added_tokens": [], **empty, **parts, "model": model}


def _words(*words):
    return {"type": "WordLevel", "unk_token": "?", "vocab": {word: i for i, word in enumerate(["?", *words])}}


def _replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def doubling_normalizer(rng):
    """Each step doubles a letter, which may first be made from another."""
    letter = rng.choice(rng.choice(SCRIPTS))
    kind = rng.choice(["String", "Regex"])
    steps = [_replace(rng.choice("aeß"), letter, kind)] * rng.randrange(2)
    steps += [_replace(letter, letter * 2, kind)] * rng.randint(35, 60)
    return json.dumps(_file(_words("a"), normalizer={"type": "Sequence", "normalizers": steps})).encode()


def doubling_decoder(rng):
    """The same while decoding."""
    letter = rng.choice(rng.choice(SCRIPTS))
    steps = [_replace(letter, letter * 2)] * rng.randint(35, 60)
    return json.dumps(_file(_words(letter), decoder={"type": "Sequence", "decoders": steps})).encode()


def many_decoders(rng):
    """Tens of thousands of steps for each of tens of thousands of tokens."""
    steps = [_replace(f"{i}!", " ") for i in range(rng.randint(20_000, 40_000))]
    words = [f"w{i}" for i in range(30_000)]
    return json.dumps(_file(_words(*words), decoder={"type": "Sequence", "decoders": steps})).encode()


def long_words(rng):
    """WordPiece, which takes cubic time in the length of a word, without its limit on that length."""
    letters = rng.choice(SCRIPTS)
    names = ["?", *letters, *(f"##{letter}" for letter in letters)]
    model = {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##"}
    vocab = {name: i for i, name in enumerate(names)}
    return json.dumps(_file({**model, "max_input_chars_per_word": 10 ** rng.randint(6, 9), "vocab": vocab})).encode()


def long_units(rng):
    """Unigram whose tokens are as long as the text."""
    letter = rng.choice("ax")
    pieces = [["?", 0.0], *([letter * n, -float(n)] for n in range(1, 4000))]
    return json.dumps(_file({"type": "Unigram", "unk_id": 0, "vocab": pieces})).encode()


FILES = {make.__name__: make for make in (doubling_normalizer, doubling_decoder, many_decoders, long_words, long_units)}


def swelling_model(rng, folder):
    """A SentencePiece model that normalizes one letter to a hundred thousand."""
    spm = pytest.importorskip("sentencepiece")
    rules, out = folder / "rules.tsv", io.BytesIO()
    rules.write_text(f"61\t{'62 ' * rng.randint(100_000, 200_000)}\n", encoding="utf-8")
    options = {"vocab_size": 20, "hard_vocab_limit": False, "minloglevel": 2, "normalization_rule_tsv": str(rules)}
    lines = iter(["bc cb bb cc"] * 20)  # without the letter
    spm.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=out, model_type="bpe", **options)
    return out.getvalue()


def case(rng, folder, kind=None):
    """Write a hostile file and load it, which must be rejected within the limits on time and memory.

    Returns:
        The kind of the file.
    """
    kind = kind or rng.choice([*FILES, swelling_model.__name__])
    if kind in FILES:
        path, content = folder / "tokenizer.json", FILES[kind](rng)
    else:
        path, content = folder / "tokenizer.model", swelling_model(rng, folder)
    path.write_bytes(content)
    with patch.object(software, "SECONDS", 1), changed_files.limited(), pytest.raises(UserError) as caught:
        load_pretrained(path)
    message = str(caught.value)
    assert "is damaged or hostile: " in message, message
    assert "\n" not in message, message
    assert len(message) < changed_files.LONGEST_MESSAGE, message
    return kind
