"""Settings of sampling, without PyTorch, whose import takes seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenizer.errors import UserError, check_fields, check_whole, quoted


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

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 0.8
    seed: int = 0
    max_new_tokens: int | None = None
    max_new_bytes: int | None = 400
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature={self.temperature} must be at least 0 (the most probable token)")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p} must be greater than 0 and at most 1 (all tokens)")
        for name in ("top_k", "seed", "max_new_tokens", "max_new_bytes"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), int(name == "top_k"))
        if self.max_new_tokens is None and self.max_new_bytes is None:
            raise UserError("no length limit: set max_new_tokens or max_new_bytes")
        if "" in self.stop:
            raise UserError(f"stop={quoted(self.stop)} contains an empty string, which matches everywhere; remove it")
