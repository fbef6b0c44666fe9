"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from tokenizer import patterns
from tokenizer.definition import BYTE_CHARACTERS, Stored, whole_characters
from tokenizer.errors import UserError, quoted
from tokenizer.files import read_json, read_text
from tokenizer.formats import hf_import
from tokenizer.formats.checks import Unsupported, reading
from tokenizer.formats.hf import BYTE_LEVEL, pre_tokenizer
from tokenizer.patterns import Pattern

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""File names of a vocabulary and its merges."""
_AROUND = [("", ""), ("a", "a"), ("A", "1"), ("1", "a"), ("!", "!"), ("!", "\n"), (" ", " "), ("\n", "\n"), ("\n", "")]
"""Text before and after a token. A pattern that cuts the token in all of these is taken to cut it always."""


def read(vocab_file: Path, merges_file: Path, pattern: str | Pattern | None, config: Mapping[str, Any]) -> Stored:
    """Read a vocabulary and a list of merges, with or without a "#version" line.

    Vocabulary entries that are neither bytes nor products of merges become special tokens.

    Args:
        vocab_file: tokens in GPT-2's byte alphabet, and their ids.
        merges_file: the two parts of each merge, by rank.
        pattern: the pretokenization pattern, which the files do not contain; None for GPT-2's, if the merges fit it.
        config: content of the tokenizer_config.json.

    Raises:
        UserError: a file is missing or damaged, the files are inconsistent, or they contradict a default.
    """
    vocab = read_json(vocab_file)
    with reading(vocab_file):
        if on := [name for name in ("add_prefix_space", "do_lower_case") if config.get(name) is True]:
            raise Unsupported(
                f"cannot be followed: the tokenizer_config.json beside it has {on[0]}, which changes text"
            )
        listed = {token["content"]: token for token in (config.get("added_tokens_decoder") or {}).values()}
        ids = {token["content"]: int(i) for i, token in (config.get("added_tokens_decoder") or {}).items()}
        vocab = ids | vocab
    lines = read_text(merges_file).replace("\r\n", "\n").split("\n")
    merges = [line.split(" ") for line in lines[lines[0].startswith("#version") :] if line]
    ordinary = {*BYTE_CHARACTERS.values(), *map("".join, merges)}
    if any(part.endswith("</w>") and part not in ordinary for merge in merges for part in merge):
        raise UserError(f"{vocab_file} is not byte-level: its end-of-word suffix is '</w>'; {hf_import.REMEDY}")
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
    made = [found.vocab[i] for i in dict.fromkeys(found.merge_ids[:, 2].tolist())]
    if pattern is None:
        _check_default(made, merges_file)
    definition = replace(found, pattern=patterns.resolve(pattern or "gpt2"))
    return Stored(definition, {"imported": {"format": "gpt2"}})


def _check_default(tokens: Sequence[bytes], path: Path) -> None:
    """Reject merges of which more than a thousandth make tokens that GPT-2's pattern never leaves whole."""
    never = [token for token in tokens if _never_whole(token, "gpt2")]
    if len(never) > len(tokens) / 1000:
        sample = tokens[:: 1 + len(tokens) // 4000]
        text = b" ".join(sample).decode(errors="replace")
        most = 2 + len(sample) / 1000  # a fence cuts some phase-1 tokens of its own superwords, such as 's
        fitting = [name for name in patterns.NAMES if sum(_never_whole(token, name) for token in sample) <= most]
        fitting.sort(key=lambda name: -len(patterns.split(text, name)))  # those that cut most first
        raise UserError(
            f"{path} names no pattern, and the default, gpt2, does not fit its merges: it cuts {len(never):,} of "
            f"their {len(tokens):,} tokens in any text, such as {quoted(never[0])}. Give the tokenizer's own "
            f"with pattern=NAME; named ones that fit, the strictest first: {', '.join(fitting) or 'none of them'}"
        )
    if len(tokens) >= 1000 and all(token == token.lower() for token in tokens):
        warnings.warn(f"{path}: no token has an upper-case letter; lower-case text if its software did", stacklevel=2)


def _never_whole(token: bytes, pattern: str) -> bool:
    """Whether a token cannot occur in UTF-8, or a pattern cuts it whatever is around it."""
    text = whole_characters(token)
    if not text:
        return text is None
    for before, after in _AROUND:
        ends = accumulate(map(len, patterns.split(f"{before}{text}{after}", pattern)))
        if not any(len(before) < end < len(before) + len(text) for end in ends):
            return False
    return True
