"""Settings of sampling, without PyTorch, whose import takes seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenizer.errors import UserError, quoted
from tokenizer.fields import check_fields, declare


@dataclass(frozen=True)
class SamplingConfig:
    """Sampling settings.

    Attributes:
        temperature: Divides the logits; 0 takes the most probable token.
        top_k: Number of most probable tokens to sample from; None for all. Applied before `top_p`.
        top_p: Sample from the most probable tokens that together reach this probability.
        seed: Seed of the random numbers. Sample i of a call depends only on (seed, i), not on the rest of the batch.
        max_new_tokens: Maximum number of tokens after the prompt; None for no limit.
        max_new_bytes: Maximum number of bytes after the prompt; None for no limit. Equal for all tokenizers.
        stop: Strings that end the text and are removed from it. They may span tokens.
    """

    temperature: float = declare(0.8, least=0, below=math.inf, remedy="; 0 takes the most probable token")
    top_k: int | None = declare(None, least=1)
    top_p: float = declare(0.8, above=0, most=1, remedy=" (all tokens)")
    seed: int = declare(0, least=0)
    max_new_tokens: int | None = declare(None, least=0)
    max_new_bytes: int | None = declare(400, least=0)
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_new_tokens is None and self.max_new_bytes is None:
            raise UserError("no length limit: set max_new_tokens or max_new_bytes")
        if "" in self.stop:
            raise UserError(f"stop={quoted(self.stop)} contains an empty string, which matches everywhere; remove it")
