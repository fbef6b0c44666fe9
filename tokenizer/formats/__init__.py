"""Reading and writing tokenizer files: our own folders, tokenizer.json, vocab.json with merges.txt, tiktoken's ranks.

| kind | files | read | written |
|---|---|---|---|
| superbpe | folder with `superbpe.json` | exactly | exactly |
| hf | `tokenizer.json` | byte-level BPE; errors name any unsupported part | one-pass tokenizers |
| gpt2 | `vocab.json` and `merges.txt`; `encoder.json` and `vocab.bpe` | with a pattern | no |
| tiktoken | `NAME.tiktoken` or `.model`; the rest in `NAME.tiktoken.json` | with a pattern | if ids are ranks |
| tekken | `tekken.json` of Mistral | exactly | no |
"""

from __future__ import annotations

from tokenizer.formats.files import KINDS, named_tokens, read, write
from tokenizer.formats.folder import FILE, dumps, identity, load, loads, save
from tokenizer.formats.hf import HF_CONFIG_FILE, HF_FILE, TEMPLATE, hf_json

__all__ = [
    "FILE",
    "HF_CONFIG_FILE",
    "HF_FILE",
    "KINDS",
    "TEMPLATE",
    "dumps",
    "hf_json",
    "identity",
    "load",
    "loads",
    "named_tokens",
    "read",
    "save",
    "write",
]
