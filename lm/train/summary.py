"""Summary of a training run: settings, tokens, FLOPs, time, and the ids that it learned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer.durable import replacing_path, write_json
from tokenizer.errors import UserError
from tokenizer.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SUMMARY = "summary.json"
_LEARNED = "learned_ids.npy"


@dataclass(frozen=True)
class TrainingSummary:
    """Size, cost and speed of a finished run.

    Attributes:
        parameters_non_embedding: Parameters without both vocabulary tables.
        parameters_matmul: Weights that multiply activations, the head included.
        flops: FLOPs of the whole run.
        flops_per_token: FLOPs of one token, forward and backward.
        flops_formula: How they are counted.
        bytes: UTF-8 bytes of text that the run read.
        tokens: Tokens that it read, `end_of_text` included.
        rows: Mean number of sequences of a step (the batch size).
        context_tokens: Mean number of tokens of a row.
        context_bytes: `TrainConfig.context_bytes`.
        epochs: How often the run reads the shards.
        seconds: Time in steps, evaluation and checkpoints excluded.
        tokens_per_second: `tokens` over `seconds`.
        mfu: Model FLOPs utilization after the warm-up of the last process: FLOPs per second over the peak of the GPUs
            (`lm.model.device.peak_flops`); None where that is not known.
        threads: CPU threads of Torch.
        processes: Processes that trained together.
        run: Settings that determine the result (`lm.train.trainer.Trainer.identity`).
    """

    parameters_total: int
    parameters_non_embedding: int
    parameters_matmul: int
    flops: int
    flops_per_token: int
    flops_formula: str
    bytes: int
    tokens: int
    steps: int
    rows: float
    context_tokens: float
    context_bytes: int
    epochs: float
    seconds: float
    tokens_per_second: float
    device: str
    threads: int
    processes: int
    run: dict[str, Any]
    mfu: float | None = None

    def save(self, folder: Path) -> None:
        """Write `summary.json`."""
        write_json(folder / SUMMARY, dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: Path) -> TrainingSummary:
        """Read `summary.json`.

        Raises:
            OSError: If the file cannot be read.
            UserError: If it is not the summary of a run.
        """
        try:
            return cls(**read_json(folder / SUMMARY))
        except TypeError as error:
            raise UserError(f"{folder / SUMMARY} is not the summary of a run ({error}); train again") from error


def save_learned(folder: Path, learned: NDArray[np.bool_]) -> None:
    """Write bool[vocab_size]: the ids that were a target of the training."""
    with replacing_path(folder / _LEARNED) as partial, partial.open("wb") as file:
        np.save(file, learned)


def load_learned(folder: Path) -> NDArray[np.bool_] | None:
    """Read what `save_learned` wrote; None for a model from elsewhere.

    Raises:
        UserError: If the file is damaged.
    """
    path = folder / _LEARNED
    if not path.exists():
        return None
    try:
        return np.asarray(np.load(path, allow_pickle=False), bool)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it") from error
