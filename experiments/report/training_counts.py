"""Counts of a tokenizer's merges in training, from its record among the artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.store.trained_models import tokenizer_folder, training_record
from tokenizer.errors import UserError
from tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy.typing as npt

    from experiments.results import TrainedTokenizer
    from experiments.store.artifacts import Artifact

UNKNOWN = -1


def training_counts(path: Path, tokenizer: Tokenizer) -> npt.NDArray[np.int64] | None:
    """Return the count of each token's pair when it was merged: int64 [vocab_size], -1 for unknown.

    The counts come from the training record in the same folder of artifacts. For a BPE tokenizer that was cut to size,
    this is the record of the longer list.

    Args:
        path: Path given by the user.
        tokenizer: The tokenizer at that path.

    Returns:
        The counts; None if there is no training record for the tokenizer.
    """
    for folder in sorted(tokenizer_folder(path).absolute().parent.glob("*bpe-*")):
        try:
            record = training_record(folder)
            counts = None if record is None else _counts(record, tokenizer)
        except (OSError, UserError, KeyError, ValueError):  # damaged or partly deleted
            continue
        if counts is not None:
            by_id = np.full(tokenizer.vocab_size, UNKNOWN, dtype=np.int64)
            by_id[tokenizer.merge_ids[:, 2]] = counts[: len(tokenizer.merge_ids)]
            return by_id
    return None


def _counts(record: Artifact[TrainedTokenizer], tokenizer: Tokenizer) -> npt.NDArray[np.int64] | None:
    """Counts by rank, if this training produced the tokenizer."""
    from experiments.stages.phase1 import MERGE_COUNTS
    from experiments.stages.phase2 import MERGE_LOG

    same = record.contents.sha256 == tokenizer.sha256
    if (record.folder / MERGE_LOG).exists():
        if not same:
            return None
        import pyarrow.parquet as pq

        column = pq.read_table(record.path / MERGE_LOG, columns=["count"])["count"]
        return np.array([UNKNOWN if value is None else value for value in column.to_pylist()], dtype=np.int64)
    if not (record.folder / MERGE_COUNTS).exists() or tokenizer.fence is not None:
        return None
    if not same:
        whole = Tokenizer.load(record.folder.parent / record.contents.tokenizer)
        cut = whole.pattern == tokenizer.pattern and np.array_equal(
            whole.ranks()[: len(tokenizer.merge_ids)], tokenizer.ranks()
        )
        if not cut:
            return None
    counts: npt.NDArray[np.int64] = np.load(record.path / MERGE_COUNTS).astype(np.int64)
    return counts
