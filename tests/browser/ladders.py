"""A made-up ladder of budgets: measurements of four arms, and their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli.console import Reporter
from experiments.stages import ladder
from experiments.stages.advice import Spent
from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.deployment import Deployment
from lm.scaling.reprice import Measured
from tests.lm.scaling.ladders import FLOPS, law_through

SOURCES = Grouping(
    ("code", "web", "empty", "<b>odd & “quoted”</b>"), np.repeat([0, 1, 3], [40, 90, 20]).astype(np.int32)
)
SIZES = np.random.default_rng(1).integers(200, 4000, 150)
# Laws of code, web and the odd source; "none" is a line over ln FLOPs, which no law fits.
LAWS = {
    "bpe": [(1.2, 0.5, 0.25), (1.5, 0.6, 0.2), (1.7, 0.7, 0.3)],
    "superbpe": [(1.25, 0.5, 0.25), (1.48, 0.58, 0.2), (1.66, 0.7, 0.3)],
    "crossing": [(1.2, 0.48, 0.25), (1.5, 0.55, 0.2), "none"],
    "bytes": [(1.3, 0.5, 0.25), (1.6, 0.6, 0.22), (1.7, 0.7, 0.3)],
}
BYTES_PER_TOKEN = {
    "bpe": [3.0, 4.0, 0, 2.0],
    "superbpe": [4.0, 6.0, 0, 2.5],
    "crossing": [9.0, 9.0, 0, 8.0],
    "bytes": [1] * 4,
}


def measurements(*, n_seeds: int = 3, n_rungs: int = 4, noise: float = 3e-4) -> ladder.Measurements:
    """Measurements of four arms on a ladder of budgets."""
    flops, found = FLOPS[-n_rungs:], []
    for number, (name, laws) in enumerate(LAWS.items()):
        rng = np.random.default_rng(number)
        curves = [1.8 - 0.1 * np.log(flops / flops[0]) if law == "none" else law_through(*law)(flops) for law in laws]
        by_source = np.stack([curves[0], curves[1], curves[1], curves[2]])[SOURCES.index].T
        document = np.exp(0.01 * rng.normal(size=len(SIZES)))
        seeds = np.exp(noise * rng.normal(size=(n_seeds, n_rungs, 1)))
        nats = np.log(2) * SIZES * document * by_source * seeds
        tokens = np.ceil(SIZES / np.array(BYTES_PER_TOKEN[name])[SOURCES.index]).astype(np.int64)
        vocab = 257 if name == "bytes" else 50_000
        # Arms may differ in FLOPs within the tolerance.
        found.append(Measured(name, vocab, list(flops * (1 + 0.002 * number)), list(range(n_seeds)), tokens, nats))
    return ladder.Measurements(
        {None: found}, SIZES, SOURCES, "document", Spent(1800.0, 900.0, [1000] * n_rungs, "bytes", 0.05, 1.0)
    )


def write(
    folder: Path, measured: ladder.Measurements, run: Path = Path("outputs/a run"), **assumptions: Any
) -> dict[str, Any]:
    """Write the page of a ladder and its numbers."""
    return ladder.compare(
        Reporter(),
        folder,
        measured,
        Deployment(),
        origin=ladder.Origin(run, "python -m experiments.pipeline lm.n_seeds=3"),
        tolerance=0.01,
        confidence=0.95,
        **assumptions,
    )
