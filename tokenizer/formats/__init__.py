"""Reading and writing tokenizer files: our own folders, tokenizer.json, vocab.json with merges.txt, tiktoken's ranks.

| kind | files | read | written |
|---|---|---|---|
| superbpe | folder with `superbpe.json` | exactly | exactly |
| hf | `tokenizer.json` | byte-level BPE; errors name any unsupported part | one-pass tokenizers |
| gpt2 | `vocab.json` and `merges.txt`; `encoder.json` and `vocab.bpe` | with a pattern | no |
| tiktoken | `NAME.tiktoken` or `.model`; the rest in `NAME.tiktoken.json` | with a pattern | if ids are ranks |
| nanochat | superbpe's folder, `tokenizer.pkl`, `token_bytes.pt` | as superbpe | as tiktoken |
| tekken | `tekken.json` of Mistral | exactly | no |
"""

from __future__ import annotations

from tokenizer.formats.files import KINDS, read, write
from tokenizer.formats.folder import FILE
from tokenizer.formats.hf import HF_FILE, hf_json

__all__ = ["FILE", "HF_FILE", "KINDS", "hf_json", "read", "write"]
