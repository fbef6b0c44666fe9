"""A `transformers` tokenizer that uses our encoder.

>>> from tokenizer.hf import register  # doctest: +SKIP
>>> from transformers import AutoTokenizer  # doctest: +SKIP
>>> register()  # doctest: +SKIP
>>> AutoTokenizer.from_pretrained("tokenizers/mine")("Two texts, padded.", padding=True)  # doctest: +SKIP
"""

from tokenizer.hf.tokenizer import SuperBPETokenizerFast, register

__all__ = ["SuperBPETokenizerFast", "register"]
