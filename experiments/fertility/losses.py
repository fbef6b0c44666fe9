"""Measured losses of language models, by the tokenizer that they were trained with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.fertility.measures import Measure
from experiments.results import TokenizerFolder
from experiments.store import records
from experiments.store.artifacts import Store
from tokenizer.errors import UserError


class Loss(NamedTuple):
    """Loss of the models of one tokenizer.

    Attributes:
        label: Name of the tokenizer in the run.
        bits_per_byte: Loss on the held-out text of the run.
        percent: Difference to the loss of the run's first tokenizer, in percent of it, and its interval.
    """

    label: str
    bits_per_byte: float
    percent: Measure


def measured_losses(run: Path) -> dict[str, Loss]:
    """The losses that a finished run measured, by the SHA-256 of the tokenizer.

    Raises:
        UserError: The folder has no finished run, or the run's tokenizers are not where it stored them.
    """
    done, _ = records.finished([run])
    losses = {}
    for record in done:
        store = Store.at(record.store)
        for arm in record.results.arms if record.results else []:
            artifact = store.find(arm.tokenizer, TokenizerFolder)
            if artifact is None:
                raise UserError(
                    f"run={run}: its tokenizer {arm.tokenizer} is not in {record.store}; move the artifacts back, or "
                    "name another run"
                )
            ends = arm.percent_interval or (None, None)
            losses[artifact.contents.sha256] = Loss(arm.label, arm.bits_per_byte, Measure(arm.percent, *ends))
    return losses
