"""How held-out text is scored, apart from the scoring: a configuration is read without importing Torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenizer.errors import UserError

Cluster = Literal["auto", "document", "source"]


@dataclass(frozen=True)
class EvalConfig:
    """How held-out text is scored.

    Attributes:
        context_bytes: Most bytes of context of a scored token.
        min_context_bytes: Fewest, where the document has them. Larger is closer to a full context for every
            token, and costs context_bytes / (context_bytes - min_context_bytes) forward passes.
        batch_tokens: Most tokens, padding included, of a forward pass.
        bootstrap_samples: Resamples of the documents.
        confidence: Of the intervals.
        seed: Of the resamples.
        cluster: What is resampled: single documents; sources, with all documents of each, because what one site
            wrote is not independent; `auto`: sources where there are at least 30, documents otherwise.
    """

    context_bytes: int = 1024
    min_context_bytes: int = 256
    batch_tokens: int = 8192
    bootstrap_samples: int = 2000
    confidence: float = 0.95
    seed: int = 0
    cluster: Cluster = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.min_context_bytes < self.context_bytes:
            raise UserError(
                f"min_context_bytes={self.min_context_bytes} must be at least 0 and below "
                f"context_bytes={self.context_bytes}; half of it is a good choice"
            )
        if self.batch_tokens < 1 or self.bootstrap_samples < 1:
            raise UserError("batch_tokens and bootstrap_samples must be positive whole numbers")
        if not 0 < self.confidence < 1:
            raise UserError(f"confidence={self.confidence} must lie between 0 and 1, for instance 0.95")
