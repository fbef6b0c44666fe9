"""Training records of tokenizers among the artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.results import TrainedTokenizer
from experiments.store.artifacts import Artifact, artifact_at

if TYPE_CHECKING:
    from pathlib import Path


def tokenizer_folder(path: Path) -> Path:
    """Return the tokenizer's folder or file: the path itself, or the tokenizer that a training record points to."""
    record = training_record(path)
    return path if record is None else path.parent / record.contents.tokenizer


def training_record(folder: Path) -> Artifact[TrainedTokenizer] | None:
    """Return a training record; None for any other folder."""
    if not folder.absolute().name.startswith(("bpe-", "superbpe-")):
        return None
    return artifact_at(folder, TrainedTokenizer)
