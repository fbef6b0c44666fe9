"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tokenizer import patterns
from tokenizer.definition import (
    BYTE_CHARACTERS,
    NO_TOKEN,
    Definition,
    Described,
    Stored,
    missing_byte,
    printable,
    unprintable,
)
from tokenizer.errors import UserError, quoted
from tokenizer.files import read_json, read_text
from tokenizer.formats.checks import check_ids, check_plain
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
    check_ids(vocab, vocab_file)
    if missing := missing_byte(lambda byte: BYTE_CHARACTERS[byte] in vocab):
        raise UserError(f"{vocab_file} is not byte-level: {missing}")
    lines = read_text(merges_file).split("\n")
    header = lines[0] if lines[0].startswith(_HEADER) else None
    rows = []
    for number, line in enumerate(lines, 1):
        if (number == 1 and header is not None) or not line.strip("\r"):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or not all(parts):
            raise UserError(f"{merges_file}, line {number}: {quoted(line)} is not two tokens with a space between them")
        for name in (*parts, "".join(parts)):
            if name not in vocab or unprintable(name) is None:
                raise UserError(f"{merges_file}, line {number}: {quoted(name)} is not a token of {vocab_file}")
        rows.append([vocab[parts[0]], vocab[parts[1]], vocab["".join(parts)]])
    merges = np.array(rows, dtype=np.uint32).reshape(-1, 3)
    byte_ids = [vocab.get(BYTE_CHARACTERS[byte], NO_TOKEN) for byte in range(256)]
    ordinary = set(byte_ids) | set(merges[:, 2].tolist())
    definition = Definition(
        byte_ids=byte_ids,
        merge_ids=merges,
        n_phase1_merges=len(merges),
        pattern=patterns.resolve(pattern),
        special_tokens={name: i for name, i in vocab.items() if i not in ordinary},
    )
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
