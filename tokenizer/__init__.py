"""Byte-level BPE: corpus in, tokenizer out.

>>> from tokenizer import Batch, count_pretokens, train_bpe
>>> counts = count_pretokens([Batch.from_texts(["low lower newer"] * 3)], "gpt2")
>>> train_bpe(counts, 260, special_tokens=()).encode("lower")
[258, 257]
"""

from __future__ import annotations

try:
    from tokenizer import _native
except ImportError as error:  # the source tree is on the path, but its Rust core was not built
    message = (
        "the native core tokenizer._native is missing: in a clone, run `make setup`; after `pip install`, do not "
        "start Python inside the source tree"
    )
    raise ImportError(message) from error

from tokenizer.bpe import Tokenizer
from tokenizer.corpus import Corpus, CorpusConfig
from tokenizer.counting import PretokenCounts, count_pretokens, mix_counts
from tokenizer.errors import UserError
from tokenizer.training import train_bpe

Batch = _native.Batch

__all__ = [
    "Batch",
    "Corpus",
    "CorpusConfig",
    "PretokenCounts",
    "Tokenizer",
    "UserError",
    "count_pretokens",
    "mix_counts",
    "train_bpe",
]
