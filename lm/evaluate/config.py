"""Settings of evaluation. Separate from it, so that reading a configuration does not import Torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizer.errors import UserError, quoted
from tokenizer.fields import check_fields, declare


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

    context_bytes: int = declare(1024, help="maximum context of a scored token in bytes")
    min_context_bytes: int = 256
    batch_tokens: int = declare(4096, least=1)
    confidence: float = declare(0.95, above=0, below=1, remedy=", for instance 0.95")
    cluster: str = declare(
        "auto",
        choices=("auto", "document", "source"),
        help="unit of sampling: document, source, or auto (sources if there are at least two)",
    )
    weights: dict[str, float] = declare(
        factory=dict, help="weights of the kinds of text, such as {english: 0.6, code: 0.4}, instead of their shares"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.min_context_bytes < self.context_bytes:
            raise UserError(
                f"min_context_bytes={self.min_context_bytes} must be at least 0 and below "
                f"context_bytes={self.context_bytes}; half of it is a good choice"
            )
        given: Any = self.weights
        weights = given.values() if isinstance(given, Mapping) else [None]
        if not all(isinstance(weight, int | float) and 0 < weight < math.inf for weight in weights):
            raise UserError(
                f"weights={quoted(self.weights)} must be positive numbers, for instance {{english: 0.6, code: 0.4}}; "
                "leave out the kinds of text that do not count"
            )
