"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import _native, patterns
from tokenizer.definition import BYTE_CHARACTERS, Stored, whole_characters
from tokenizer.errors import UserError, quoted
from tokenizer.files import read_json, read_text
from tokenizer.formats import hf_import
from tokenizer.formats.checks import Unsupported, reading
from tokenizer.formats.hf import BYTE_LEVEL, pre_tokenizer
from tokenizer.patterns import Pattern

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""File names of a vocabulary and its merges."""
_CONTEXTS = [*product(("", "a", "A", "1", "!", "'", " ", "\n"), ("", "a", "1", "!", " ", "\n"))]
"""Text before and after a token: a pattern that cuts inside the token in all of them is taken to cut it always."""


def read(
    vocab_file: Path, merges_file: Path, pattern: str | Pattern | None = None, config: Mapping[str, Any] | None = None
) -> Stored:
    """Read a vocabulary and a list of merges, with or without a "#version" line.

    Vocabulary entries that are neither bytes nor products of merges become special tokens.

    Args:
        vocab_file: tokens in GPT-2's byte alphabet, and their ids.
        merges_file: the two parts of each merge, by rank.
        pattern: the pretokenization pattern, which the files do not contain; None for GPT-2's, if the merges fit it.
        config: content of the tokenizer_config.json; its added tokens are special unless it says otherwise.

    Raises:
        UserError: a file is missing or damaged, the files are inconsistent, or they contradict a default.
    """
    vocab, config = read_json(vocab_file), config or {}
    with reading(vocab_file):
        if on := [name for name in ("add_prefix_space", "do_lower_case") if config.get(name) is True]:
            raise Unsupported(f"cannot be followed: the tokenizer_config.json beside it changes text ({on[0]})")
        listed = {token["content"]: token | {"id": int(i)} for i, token in _decoder(config).items()}
    lines = read_text(merges_file).replace("\r\n", "\n").split("\n")
    merges = [line.split(" ") for line in lines[lines[0].startswith("#version") :] if line]
    ordinary = {*BYTE_CHARACTERS.values(), *map("".join, merges)}
    if any(part.endswith("</w>") and part not in ordinary for merge in merges for part in merge):
        raise UserError(f"{vocab_file} is not byte-level: its end-of-word suffix is '</w>'; {hf_import.REMEDY}")
    vocab |= {name: token["id"] for name, token in listed.items() if name not in vocab}
    specials = [
        {"special": True} | listed.get(name, {}) | {"id": i, "content": name}
        for name, i in vocab.items()
        if name not in ordinary
    ]
    content = {
        "added_tokens": specials,
        "pre_tokenizer": pre_tokenizer(patterns.resolve(pattern or "gpt2")),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    found = hf_import.parse(content, vocab_file, portable=False).definition
    made = [found.vocab[i] for i in np.unique(found.merge_ids[:, 2]).tolist()]
    if pattern is None:
        _check_default(made, merges_file)
    if len(made) >= 1000 and not any(token != token.lower() for token in made):
        warnings.warn(
            f"{merges_file}: no merge makes an upper-case letter, so its software may have lower-cased text, which is "
            "not done here; lower-case your text if so",
            stacklevel=2,
        )
    definition = replace(found, pattern=patterns.resolve(pattern or "gpt2"))
    return Stored(definition, {"imported": {"format": "gpt2"}})


def _decoder(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("added_tokens_decoder") or {}
    return found


def _check_default(tokens: Sequence[bytes], path: Path) -> None:
    """Reject merges of which more than a thousandth make tokens that GPT-2's pattern never leaves whole."""
    most = len(tokens) / 1000
    never = _never_whole(tokens, patterns.resolve("gpt2"))
    if len(never) <= most:
        return
    fitting = [name for name in patterns.NAMES if len(_never_whole(tokens, patterns.resolve(name))) <= most]
    sample = b" ".join(tokens[:: 1 + len(tokens) // 5000]).decode(errors="replace")
    fitting.sort(key=lambda name: -len(patterns.split(sample, name)))  # those that cut most first
    fit = ", ".join(map(patterns.short, fitting)) or "no named pattern does, so the byte alphabet may be another one"
    raise UserError(
        f"{path} names no pattern, and the default, gpt2, is not the one of its merges: it cuts {len(never):,} of "
        f"their {len(tokens):,} tokens in any text, such as {quoted(never[0])}. Give the pattern of the tokenizer "
        f"(--pattern, pattern=); of the named ones, these fit, the most specific first: {fit}"
    )


def _never_whole(tokens: Sequence[bytes], pattern: Pattern) -> list[bytes]:
    """Tokens that cannot occur in UTF-8, or that a pattern cuts whatever is around them."""
    texts = [whole_characters(token) for token in tokens]
    cut = _native.always_cut([text or "" for text in texts], _CONTEXTS, pattern.regex)
    return [token for token, text, is_cut in zip(tokens, texts, cut, strict=True) if text is None or is_cut]
