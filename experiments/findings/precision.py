"""Expected precision of a comparison, announced before its models are trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from experiments.numbers import percent
from experiments.stages.heldout import kinds_of, sizes
from lm.evaluate.bits_per_byte import SOURCE, sampling_unit
from lm.evaluate.comparison import FEWEST_EFFECTIVE, FEWEST_SEEDS, reason_withheld
from lm.evaluate.significance import effective_number, t_quantile

if TYPE_CHECKING:
    from experiments.results import HeldoutDocuments
    from experiments.stages.context import Context
    from experiments.store.artifacts import Artifact
    from lm.evaluate.config import EvalConfig

SEED_SPREAD = {"equal_bytes": 0.0015, "other": 0.0047}
UNIT_SPREAD = {"document": 0.013, "source": 0.017, "source within kinds": 0.009}
"""Standard deviations of the relative difference between BPE and superwords, of one pair of models and of one held-out
document or source; measured with models of the demonstration's size (docs/decisions.md). Larger models vary less. Only
at equal bytes do the models of a pair read all of their text in the same steps."""


def half_width(n_seeds: int, effective: float, unit: str, confidence: float, mode: str) -> float:
    """Expected half width of the interval of a relative difference; infinite if no interval can be given.

    >>> round(half_width(5, 15, "source", 0.95, "equal_bytes"), 4)
    0.0096
    """
    if n_seeds < 2 or effective <= 1:
        return math.inf
    seeds = t_quantile(confidence, n_seeds - 1) * SEED_SPREAD.get(mode, SEED_SPREAD["other"]) / math.sqrt(n_seeds)
    return math.hypot(seeds, t_quantile(confidence, effective - 1) * UNIT_SPREAD[unit] / math.sqrt(effective))


def announce(
    context: Context,
    documents: Artifact[HeldoutDocuments],
    scoring: EvalConfig,
    *,
    n_arms: int,
    n_seeds: int,
    mode: str,
    heldout_sample: float,
) -> None:
    """Say how wide the interval of a difference will be, or why no verdict will be possible and what to change."""
    if n_arms < 2:
        return
    unit = sampling_unit(scoring.cluster, len(documents.contents.names[SOURCE]))
    effective = float(effective_number(sizes(documents, unit).astype(np.float64)))
    say, confidence = context.reporter.say, scoring.confidence
    if not (reason := reason_withheld(effective, unit, n_seeds)):
        within = unit == SOURCE and kinds_of(documents.contents.names[SOURCE]) is not None
        width = half_width(n_seeds, effective, f"{unit} within kinds" if within else unit, confidence, mode)
        say(
            f"differences will be known to about ±{percent(width)} ({percent(confidence, 0)} interval, "
            f"{n_seeds} seeds, held-out text that counts as {effective:.1f} {unit}s of equal size; a guess, from BPE "
            "and superwords in models of 3 million parameters)"
        )
        return
    remedies = [f"lm.n_seeds={FEWEST_SEEDS}"] if n_seeds < FEWEST_SEEDS else []
    if effective < FEWEST_EFFECTIVE[unit]:
        if heldout_sample < 1:
            remedies.append("a larger corpus.heldout_sample")
        if unit == SOURCE:
            remedies.append("eval.cluster=document if the sources are arbitrary parts of one collection")
            effective = float(effective_number(sizes(documents, "document").astype(np.float64)))
        if heldout_sample == 1 and effective < FEWEST_EFFECTIVE["document"]:
            remedies.append("a larger corpus.heldout_fraction, or corpus.heldout_paths")
    say(f"no verdict about tokenizers will be possible: {reason}; add {' and '.join(remedies)}", style="yellow")
