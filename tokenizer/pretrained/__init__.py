"""Pretrained tokenizers from a path or the Hugging Face Hub.

`load` recognizes formats, `hub` downloads, `software` runs SentencePiece, Unigram and WordPiece models with the
packages that define them, and `external` wraps these behind the interface of our own tokenizers.
"""

from tokenizer.pretrained.external import ExternalTokenizer
from tokenizer.pretrained.load import Pretrained, load_pretrained, load_saved

__all__ = ["ExternalTokenizer", "Pretrained", "load_pretrained", "load_saved"]
