"""Untrained models with weights large enough for uneven predictions, and small tokenizers for them."""

import functools
from dataclasses import replace

import torch

from lm.model.language_model import LanguageModel
from lm.model.transformer import ModelConfig, Transformer
from tests.generated import merged
from tokenizer import Tokenizer, patterns


def model(vocab_size, context_tokens=64, *, seed=0, scale=0.4, sha256="", vocab_multiple=16):
    config = ModelConfig(n_layers=2, hidden_size=32, head_dim=16, vocab_multiple=vocab_multiple)
    model = Transformer(config, vocab_size, context_tokens, sha256)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval().requires_grad_(False)


def uneven(config, vocab_size, context_tokens, sha256="", *, scale=0.2):
    """A model with its own initial weights and noise: zero projections would hide mistakes in attention and MLP."""
    model = Transformer(config, vocab_size, context_tokens, sha256)
    model.initialize(0, range(vocab_size))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def exportable(tokenizer, **changes):
    """A model with all settings that an export has to carry."""
    config = ModelConfig(n_layers=2, hidden_size=32, head_dim=16, vocab_multiple=64, rope_theta=500.0, norm_eps=1e-5)
    return uneven(replace(config, **changes), tokenizer.vocab_size, 40, tokenizer.sha256)


def language_model(tokenizer, context_tokens=64, **options):
    return LanguageModel(model(tokenizer.vocab_size, context_tokens, sha256=tokenizer.sha256, **options), tokenizer)


def bytes_only():
    """256 bytes and <|endoftext|>."""
    return Tokenizer.from_ranks([], pattern=patterns.resolve("none"), special_tokens=["<|endoftext|>"])


@functools.cache
def words(*texts):
    """Bytes, these words (by default a few short ones), and <|endoftext|>."""
    pairs = {}

    def add(word):
        if len(word) > 1 and word not in pairs:
            end = next(word[i:] for i in range(1, len(word)) if word[i:] in pairs or i == len(word) - 1)
            add(word[: -len(end)])
            pairs[word] = word[: -len(end)], end

    for text in texts or (b"the ", b"of ", b"th", b"in the "):
        add(text)
    return merged(list(pairs.values()), "none")
