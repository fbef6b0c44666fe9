"""Byte-level BPE: corpus in, tokenizer out.

>>> from tokenizer import train_bpe
>>> train_bpe(["low lower newer"] * 3, 260, special_tokens=()).encode("lower")
[257, 258]
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

# Importing the core takes as long as importing NumPy, which a command's help does not need.
if importlib.util.find_spec("tokenizer._native") is None:  # the source tree is on the path, but its core was not built
    message = (
        "the native core tokenizer._native is missing: in a clone, run `make setup`; after `pip install`, do not "
        "start Python inside the source tree"
    )
    raise ImportError(message)


if TYPE_CHECKING:
    from tokenizer._native import Batch as Batch
    from tokenizer.corpus.config import CorpusConfig as CorpusConfig
    from tokenizer.corpus.corpus import Corpus as Corpus
    from tokenizer.definition import Definition as Definition
    from tokenizer.errors import UserError as UserError
    from tokenizer.external.load import load_pretrained as load_pretrained
    from tokenizer.tokenizer import Tokenizer as Tokenizer
    from tokenizer.train.bpe import train_bpe as train_bpe
    from tokenizer.train.counting import PretokenCounts as PretokenCounts
    from tokenizer.train.counting import count_pretokens as count_pretokens
    from tokenizer.train.counting import mix_counts as mix_counts

_MODULES = {
    "Batch": "_native",
    "Corpus": "corpus.corpus",
    "CorpusConfig": "corpus.config",
    "Definition": "definition",
    "PretokenCounts": "train.counting",
    "Tokenizer": "tokenizer",
    "UserError": "errors",
    "count_pretokens": "train.counting",
    "load_pretrained": "external.load",
    "mix_counts": "train.counting",
    "train_bpe": "train.bpe",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used, so that importing one module does not load NumPy."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f"tokenizer.{_MODULES[name]}"), name)
    return value
