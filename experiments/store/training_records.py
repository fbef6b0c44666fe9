"""Training records of tokenizers among the artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.results import TrainedTokenizer
from experiments.store.artifacts import artifact_at

if TYPE_CHECKING:
    from pathlib import Path


def tokenizer_folder(path: Path) -> Path:
    """Return the tokenizer's folder or file: the path itself, or the tokenizer that a training record points to."""
    if not path.absolute().name.startswith(("bpe-", "superbpe-")):
        return path
    record = artifact_at(path, TrainedTokenizer)
    return path if record is None else path.parent / record.contents.tokenizer
