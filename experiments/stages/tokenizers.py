"""The tokenizers of an experiment, one per arm: trained here, or loaded from elsewhere.

Tokenizers are stored in folders named by their content. Training records link each tokenizer to its text and rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.results import TokenizerFolder, TrainedTokenizer
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.results import Counts
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class ArmTokenizer:
    """The tokenizer of one arm.

    Attributes:
        key: Name of the arm.
        label: Name of the arm in tables and charts.
        artifact: Its folder, named by its content.
        record: Its training: inputs, rules, cost; None if it was not trained here.
        counts: Counts of pretokens that phase 1 trained on; None without a phase 1.
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


def usable(context: Context, name: str) -> Artifact[TrainedTokenizer] | None:
    """Return a training record; remove it and return None if its tokenizer was deleted. The caller holds its lock.

    Raises:
        UserError: If the record is in a bucket, from which nothing is removed.
    """
    record = context.store.find(name, TrainedTokenizer)
    if record is not None and context.store.find(record.contents.tokenizer, TokenizerFolder) is None:
        context.store.remove(name)
        if context.store.find(name, TrainedTokenizer) is not None:
            missing, useless = (f"{context.store.url}/{one}" for one in (record.contents.tokenizer, name))
            raise UserError(f"{missing} is missing, so {useless} is useless: delete it, too, and run the command again")
        return None
    return record


def load(context: Context, record: Artifact[TrainedTokenizer]) -> tuple[Tokenizer, Artifact[TokenizerFolder]]:
    """Load the tokenizer that a training record points to.

    Raises:
        UserError: If its folder is missing or was changed.
    """
    (artifact,) = context.store.open_all([record.contents.tokenizer], TokenizerFolder)
    tokenizer = Tokenizer.load(artifact.path)
    if tokenizer.sha256 != record.contents.sha256:
        raise UserError(
            f"the tokenizer in {artifact.folder} does not match the folder's name; delete that folder and run the same "
            "command again"
        )
    context.store.use(artifact)
    return tokenizer, artifact


def keep(
    context: Context, tokenizer: TokenizerLike, inputs: Mapping[str, str], about: TokenizerFolder | None = None
) -> Artifact[TokenizerFolder]:
    """Save a tokenizer as an artifact.

    Args:
        context: Context of the run.
        tokenizer: The tokenizer.
        inputs: Hashes of the artifacts that it was made from.
        about: Contents of the manifest; None for size and hash only.
    """

    def build(folder: Path) -> TokenizerFolder:
        tokenizer.save(folder)
        return about or TokenizerFolder(vocab_size=tokenizer.vocab_size, sha256=tokenizer.sha256)

    key = tokenizer.sha256
    return context.store.make(
        TokenizerFolder, "tokenizer", config={}, inputs=inputs, build=build, name=f"tokenizer-{key[:12]}", key=key
    )
