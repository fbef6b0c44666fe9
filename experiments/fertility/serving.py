"""Cost of serving a deployed model with each tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.cli.compose import load
from lm.evaluate.deployment import serving_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.fertility.measures import Row
    from lm.evaluate.deployment import Deployment

MEASURES = (
    "prefill_flops_per_byte",
    "prefill_seconds_per_byte",
    "decode_flops_per_byte",
    "decode_seconds_per_byte",
    "cache_bytes_per_byte",
)


def deployment(words: Sequence[str]) -> Deployment:
    """The deployment that the words of `--deployment` describe: a preset, and KEY=VALUE for each other setting.

    Raises:
        UserError: If a preset, a key or a value is wrong.
    """
    return load([f"deployment.{word}" if "=" in word else f"deployment={word}" for word in words]).deployment


def costs(deployed: Deployment, vocab_size: int, row: Row) -> dict[str, float | None]:
    """Cost of serving text that needs as many tokens per byte as a group of documents.

    Args:
        deployed: The model that is served.
        vocab_size: Size of the tokenizer's vocabulary.
        row: Measures of the tokenizer on the group.

    Returns:
        The `MEASURES`; None if the tokenizer gives no tokens.
    """
    if not row.tokens:
        return dict.fromkeys(MEASURES)
    found = serving_cost(deployed, vocab_size=vocab_size, tokens_per_byte=row.tokens / row.bytes)
    return {
        "prefill_flops_per_byte": found.prefill.flops_per_byte,
        "prefill_seconds_per_byte": found.prefill.seconds_per_byte,
        "decode_flops_per_byte": found.decode.flops_per_byte,
        "decode_seconds_per_byte": found.decode.seconds_per_byte,
        "cache_bytes_per_byte": found.cache_bytes_per_byte,
    }
