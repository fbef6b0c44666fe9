"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tokenizer import patterns
from tokenizer.definition import BYTE_CHARACTERS, Stored
from tokenizer.errors import UserError
from tokenizer.files import read_json, read_text
from tokenizer.formats import hf_import
from tokenizer.formats.hf import BYTE_LEVEL, pre_tokenizer
from tokenizer.patterns import Pattern

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""File names of a vocabulary and its merges."""


def read(vocab_file: Path, merges_file: Path, pattern: str | Pattern = "gpt2") -> Stored:
    """Read a vocabulary and a list of merges, with or without a "#version" line.

    Vocabulary entries that are neither bytes nor products of merges become special tokens.

    Args:
        vocab_file: tokens in GPT-2's byte alphabet, and their ids.
        merges_file: the two parts of each merge, by rank.
        pattern: the pretokenization pattern, which the files do not contain.

    Raises:
        UserError: a file is missing or damaged, or the files are inconsistent.
    """
    vocab = read_json(vocab_file)
    lines = read_text(merges_file).replace("\r\n", "\n").split("\n")
    merges = [line.split(" ") for line in lines[lines[0].startswith("#version") :] if line]
    ordinary = {*BYTE_CHARACTERS.values(), *map("".join, merges)}
    if any(part.endswith("</w>") and part not in ordinary for merge in merges for part in merge):
        raise UserError(f"{vocab_file} is not byte-level: its end-of-word suffix is '</w>'; {hf_import.REMEDY}")
    specials = [{"id": i, "content": name, "special": True} for name, i in vocab.items() if name not in ordinary]
    content = {
        "added_tokens": specials,
        "pre_tokenizer": pre_tokenizer(patterns.resolve(pattern)),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    found = hf_import.parse(content, vocab_file, portable=False).definition
    definition = replace(found, pattern=patterns.resolve(pattern))
    return Stored(definition, {"imported": {"format": "gpt2"}})
