"""Settings of evaluation. Separate from it, so that reading a configuration does not import Torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenizer.errors import UserError

Cluster = Literal["auto", "document", "source"]


@dataclass(frozen=True)
class EvalConfig:
    """How held-out text is scored.

    Attributes:
        context_bytes: Maximum context of a scored token in bytes.
        min_context_bytes: Minimum context in bytes, if the document has that many. Larger values are closer to a full
            context for every token and cost context_bytes / (context_bytes - min_context_bytes) forward passes.
        batch_tokens: Maximum number of tokens of a forward pass, padding included.
        bootstrap_samples: Number of resamples.
        confidence: Confidence level of the intervals.
        seed: Seed of the resamples.
        cluster: Unit of resampling: `document`; `source`, since documents of one site are not independent; or `auto`,
            sources if there are at least 30 of them, otherwise documents.
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
            raise UserError(f"confidence={self.confidence} must be between 0 and 1, for instance 0.95")
