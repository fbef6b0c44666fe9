"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tokenizer import patterns
from tokenizer.definition import BYTE_CHARACTERS, Described, Stored, printable
from tokenizer.errors import UserError, quoted
from tokenizer.files import read_json, read_text
from tokenizer.formats import hf_import
from tokenizer.formats.checks import check_plain
from tokenizer.formats.hf import BYTE_LEVEL, pre_tokenizer
from tokenizer.patterns import Pattern

PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""File names of a vocabulary and its merges."""
_HEADER = "#version"


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
    header = lines[0] if lines[0].startswith(_HEADER) else None
    merges = [line.split(" ") for line in lines[header is not None :] if line]
    ordinary = {*BYTE_CHARACTERS.values(), *map("".join, merges)}
    specials = [{"id": i, "content": name, "special": True} for name, i in vocab.items() if name not in ordinary]
    content = {
        "added_tokens": specials,
        "pre_tokenizer": pre_tokenizer(patterns.resolve(pattern)),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    found = hf_import.parse(content, vocab_file, ("regex",)).definition
    definition = replace(found, pattern=patterns.resolve(pattern))
    return Stored(definition, {"imported": {"format": "gpt2", "header": header}})


def files(tokenizer: Described, *, any_pattern: bool = False) -> dict[str, str]:
    """Contents of `vocab.json` and `merges.txt`, by name.

    Args:
        tokenizer: a one-pass tokenizer.
        any_pattern: allow a pattern other than GPT-2's; readers of the files must then be given the pattern.

    Raises:
        UserError: the files cannot describe the tokenizer.
    """
    definition = tokenizer.definition
    cut = definition.fence or definition.pattern
    check_plain(definition, "as vocab.json and merges.txt")
    if definition.ignore_merges or definition.unmerged:
        raise UserError(
            "vocab.json and merges.txt describe only tokens that merges produce, but this tokenizer has others "
            f"(ignore_merges is {definition.ignore_merges}, {len(definition.unmerged)} tokens without a merge); write "
            "it as hf"
        )
    if cut.regex != patterns.resolve("gpt2").regex and not any_pattern:
        raise UserError(
            "vocab.json and merges.txt contain no pattern, and programs use GPT-2's: for a tokenizer with "
            f"{cut.name} ({quoted(cut.regex)}) they would give other ids. Write it as hf, or pass any_pattern=True "
            "and give readers the pattern"
        )
    special_ids = {i: string for string, i in definition.special_tokens.items()}
    names = [special_ids.get(i) or printable(token) for i, token in enumerate(definition.vocab)]
    vocab = {name: i for i, name in enumerate(names) if name}
    if len(vocab) < sum(map(bool, names)):
        clash = min(string for string in special_ids.values() if names.count(string) > 1)
        raise UserError(f"the special token {quoted(clash)} is also how vocab.json writes an ordinary token")
    header = (tokenizer.provenance.get("imported") or {}).get("header", "#version: 0.2")
    lines = [f"{names[left]} {names[right]}" for left, right in definition.merge_ids[:, :2].tolist()]
    return {
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "merges.txt": "".join(f"{line}\n" for line in ([header] if header else []) + lines),
    }
