"""Existing tokenizers, from a file or from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.results import TokenizerFolder
from experiments.stages.tokenizers import ArmTokenizer, keep
from lm.data.shards import END_OF_TEXT
from tokenizer.errors import UserError
from tokenizer.external.load import load_pretrained

if TYPE_CHECKING:
    from experiments.arms import Arm
    from experiments.stages.context import Context


def load(context: Context, arm: Arm) -> ArmTokenizer:
    """Load the tokenizer of an arm. Documents are separated by `<|endoftext|>`, which is added if it is missing."""
    assert arm.source is not None
    with context.reporter.stage(arm.name):
        from_hub = arm.recipe == "pretrained"
        if not from_hub and not Path(arm.source).exists():
            raise UserError(
                f"arms.{arm.name}.file={arm.source} does not exist; a repository of the Hugging Face Hub is named with "
                f"arms.{arm.name}.pretrained"
            )
        found = load_pretrained(arm.source, revision=arm.revision, from_hub=from_hub, add_special_tokens=[END_OF_TEXT])
        about = TokenizerFolder.load(found.about() | {"mode": getattr(found.tokenizer, "mode", "external")})
        artifact = keep(context, found.tokenizer, {}, about)
    where = arm.source if found.revision is None else f"{arm.source} at {found.revision[:12]}"
    what = f"{where}, vocabulary {found.tokenizer.vocab_size:,}"
    if about.software is not None:
        what += f", run by {about.software}"
    context.done(arm.name, artifact, what)
    return ArmTokenizer(arm.name, arm.label, found.tokenizer, artifact)
