"""Existing tokenizers, from a file or from the Hugging Face Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.results import TokenizerFolder
from experiments.stages.tokenizers import ArmTokenizer, keep
from lm.data.shards import END_OF_TEXT
from tokenizer.pretrained import load_pretrained

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.stages.context import Context


def load(context: Context, arm: Arm) -> ArmTokenizer:
    """Load the tokenizer of an arm. Documents are separated by `<|endoftext|>`, which is added if it is missing."""
    assert arm.source is not None
    with context.reporter.stage(arm.name):
        found = load_pretrained(arm.source, revision=arm.revision, add_special_tokens=[END_OF_TEXT])
        about = TokenizerFolder.load(found.about() | {"mode": getattr(found.tokenizer, "mode", "external")})
        artifact = keep(context, found.tokenizer, {}, about)
    where = arm.source if found.revision is None else f"{arm.source} at {found.revision[:12]}"
    what = f"{where}, vocabulary {found.tokenizer.vocab_size:,}"
    if about.software is not None:
        what += f", run by {about.software}"
    context.done(arm.name, artifact, what)
    return ArmTokenizer(arm.name, arm.label, found.tokenizer, artifact)
