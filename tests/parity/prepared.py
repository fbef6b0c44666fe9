"""Tokenizers with normalisers and added tokens, and texts for them."""

import json

import pytest

from tokenizer import Tokenizer, formats
from tokenizer.formats import hf_json
from tokenizer.special import normalized

tokenizers = pytest.importorskip("tokenizers")

SEQUENCES = [("NFC",), ("NFD",), ("NFKC",), ("NFKD",), ("NFD", "NFKC"), ("NFKC", "NFD"), ()]
STRINGS = ["<a>", "<a", "a>", "  ", "    ", "<b>x", "éé", "KK", "x<", "</t>", "\u0301"]
PIECES = [*STRINGS, *"ab eKx<> ", "e\u0301", "é", "\u0323\u0302", "ệ", "\u212a", "ﬁ", "①", ">\u0338"]
PIECES += ["각", "각", "क़", "中", "🙂"]


def imported(trained, rng, forms):
    """A tokenizer.json with a normaliser and added tokens with flags, as HF reads it and as we do."""
    content = hf_json(trained[rng.choice(["gpt2", "superwords", "none"])])
    parts = [{"type": form} for form in forms]
    content["normalizer"] = parts[0] if len(parts) == 1 else {"type": "Sequence", "normalizers": parts}
    following = max(content["model"]["vocab"].values()) + 1
    content["added_tokens"] = [
        {"id": following + i, "content": string, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": rng.random() < 0.5, "special": rng.random() < 0.4}
        for i, string in enumerate(rng.sample(STRINGS, rng.randint(0, 6)))
    ]
    for token in content["added_tokens"]:
        # A string that normalisation changes is rejected as a token of normalised text.
        token["normalized"] &= normalized(forms, token["content"]) == token["content"]
    return tokenizers.Tokenizer.from_str(json.dumps(content)), Tokenizer(*formats.hf_import.parse(content))


def generated(rng):
    return "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
