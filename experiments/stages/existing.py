"""Tokenizers that exist already: from a file, or from the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.stages.tokenizers import ArmTokenizer, keep
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.stages.context import Context


def load(context: Context, arm: Arm) -> ArmTokenizer:
    """Read the tokenizer of an arm."""
    assert arm.source is not None
    with context.reporter.stage(arm.name):
        tokenizer = Tokenizer.from_file(arm.source)
        artifact = keep(context, tokenizer, {})
    context.done(arm.name, artifact, f"{arm.source}, vocabulary {tokenizer.vocab_size:,}")
    return ArmTokenizer(arm.name, arm.label, tokenizer, artifact)
