"""Pretrained tokenizers from a path, the Hugging Face Hub, or tiktoken: see `tokenizer.external`."""

from tokenizer.external.tokenizer import ExternalTokenizer
from tokenizer.pretrained.load import Pretrained, load_pretrained, load_saved

__all__ = ["ExternalTokenizer", "Pretrained", "load_pretrained", "load_saved"]
