"""Settings of evaluation. Separate from it, so that reading a configuration does not import Torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizer.errors import UserError, check_choice, check_fields, quoted


@dataclass(frozen=True)
class EvalConfig:
    """How held-out text is scored.

    Attributes:
        context_bytes: Maximum context of a scored token in bytes.
        min_context_bytes: Minimum context in bytes, if the document has that many. Larger values are closer to a full
            context for every token and cost context_bytes / (context_bytes - min_context_bytes) forward passes.
        batch_tokens: Maximum number of tokens of a forward pass, padding included.
        confidence: Confidence level of the intervals.
        cluster: Unit of sampling: `document`, `source` (documents of one site are not independent) or `auto` (sources
            if there are at least two, otherwise documents).
        weights: Weights of the kinds of text in a total, by name, which are divided by their sum; kinds without a
            weight do not count. Empty for their shares of the held-out bytes.
    """

    context_bytes: int = 1024
    min_context_bytes: int = 256
    batch_tokens: int = 8192
    confidence: float = 0.95
    cluster: str = "auto"
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("cluster", self.cluster, ("auto", "document", "source"))
        if not 0 <= self.min_context_bytes < self.context_bytes:
            raise UserError(
                f"min_context_bytes={self.min_context_bytes} must be at least 0 and below "
                f"context_bytes={self.context_bytes}; half of it is a good choice"
            )
        if self.batch_tokens < 1:
            raise UserError(f"batch_tokens={self.batch_tokens} must be at least 1")
        if not 0 < self.confidence < 1:
            raise UserError(f"confidence={self.confidence} must be between 0 and 1, for instance 0.95")
        given: Any = self.weights
        weights = given.values() if isinstance(given, Mapping) else [None]
        if not all(isinstance(weight, int | float) and 0 < weight < math.inf for weight in weights):
            raise UserError(
                f"weights={quoted(self.weights)} must be positive numbers, for instance {{english: 0.6, code: 0.4}}; "
                "leave out the kinds of text that do not count"
            )
