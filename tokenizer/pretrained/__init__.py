"""Pretrained tokenizers from a path or the Hugging Face Hub, run by our core or by other software."""

from tokenizer.pretrained.external import ExternalTokenizer
from tokenizer.pretrained.load import Pretrained, load_pretrained, load_saved

__all__ = ["ExternalTokenizer", "Pretrained", "load_pretrained", "load_saved"]
