"""The tokenizers of an experiment, one per arm: trained here, or loaded from elsewhere.

Tokenizers are stored in folders named by their content. Training records link each tokenizer to its text and rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.results import TokenizerFolder, TrainedTokenizer
from experiments.store.manifest import FORMAT
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.results import Counts, Reading
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class ArmTokenizer:
    """The tokenizer of one arm.

    Attributes:
        key: Name of the arm.
        label: Name of the arm in tables and charts.
        tokenizer: The tokenizer.
        artifact: Its folder, named by its content.
        record: Its training: inputs, rules, cost; None if it was not trained here.
        counts: Counts of pretokens that phase 1 trained on; None likewise.
        settings: Settings of the arm and its models (`experiments.settings.resolved`); empty if they are unknown.
    """

    key: str
    label: str
    tokenizer: TokenizerLike
    artifact: Artifact[TokenizerFolder]
    record: Artifact[TrainedTokenizer] | None = None
    counts: Artifact[Counts] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def reading(self) -> list[Artifact[Any]]:
        """Artifacts of the stages that read text for this tokenizer; their contents are `Reading`."""
        return [artifact for artifact in (self.counts, self.record) if artifact is not None]


def load(context: Context, record: Artifact[TrainedTokenizer]) -> tuple[Tokenizer, Artifact[TokenizerFolder]]:
    """Load the tokenizer that a record of training points to.

    Raises:
        UserError: If its folder is missing or was changed.
    """
    artifact = context.store.find(record.contents.tokenizer, TokenizerFolder)
    if artifact is None:
        raise UserError(f"{context.store.root}/{record.contents.tokenizer} was deleted; run the same command again")
    tokenizer = Tokenizer.load(artifact.path)
    if tokenizer.sha256 != record.contents.sha256:
        raise UserError(
            f"the tokenizer in {artifact.folder} does not match the folder's name; delete that folder and run the same "
            "command again"
        )
    context.store.on_use(artifact)
    return tokenizer, artifact


def points(context: Context, record: Artifact[TrainedTokenizer]) -> bool:
    """Return whether the tokenizer that a record points to exists."""
    return context.store.exists(record.contents.tokenizer)


def keep(
    context: Context, tokenizer: TokenizerLike, inputs: Mapping[str, str], about: TokenizerFolder | None = None
) -> Artifact[TokenizerFolder]:
    """Save a tokenizer as an artifact.

    Args:
        context: Context of the run.
        tokenizer: The tokenizer.
        inputs: Hashes of the artifacts that it was made from.
        about: Contents of the manifest; None for size, mode and hash only.
    """

    def build(folder: Path) -> TokenizerFolder:
        tokenizer.save(folder)
        mode = tokenizer.mode if isinstance(tokenizer, Tokenizer) else "external"
        return about or TokenizerFolder(vocab_size=tokenizer.vocab_size, mode=mode, sha256=tokenizer.sha256)

    identity = {"stage": "tokenizer", "inputs": dict(inputs), "format": FORMAT, "hash": tokenizer.sha256}
    return context.store.write(TokenizerFolder, f"tokenizer-{tokenizer.sha256[:12]}", identity, build)


def trained(artifact: Artifact[TokenizerFolder], tokenizer: Tokenizer, read: Reading, **facts: Any) -> TrainedTokenizer:
    """Return a training record.

    Args:
        artifact: Folder of the tokenizer.
        tokenizer: The tokenizer.
        read: The text that it was trained on.
        **facts: Further attributes of `TrainedTokenizer`.
    """
    return TrainedTokenizer(
        tokenizer=artifact.name,
        sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        corpus=read.corpus,
        split=read.split,
        mixture=read.mixture,
        without_heldout_of=read.without_heldout_of,
        **facts,
    )


def say_if_short(context: Context, record: Artifact[Any], tokenizer: Tokenizer, vocab_size: int) -> None:
    """Repeat the warning about a small vocabulary where the tokenizer is reused."""
    if tokenizer.vocab_size < vocab_size and not record.fresh:
        context.reporter.say(
            f"warning: the corpus had pairs for only {tokenizer.vocab_size} tokens, not {vocab_size}", style="yellow"
        )
