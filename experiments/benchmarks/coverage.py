"""Coverage of 95 % intervals over seeds: the interval used here, and Satterthwaite's.

    python -m experiments.benchmarks.coverage

Simulates differences whose true value is 0, with normal noise between seeds and between documents. The variances are
estimated from the given numbers of seeds and documents, as in an evaluation.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from rich.table import Table

from experiments.benchmarks import common
from lm.evaluate.significance import t_quantile

_CONFIDENCE = 0.95


def main(argv: list[str]) -> int:
    """Print the table; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=common.positive, nargs="+", default=[2, 3, 5])
    options.add_argument("--ratios", type=float, nargs="+", default=[0.25, 1.0, 4.0, 100.0])
    options.add_argument("--documents", type=common.positive, default=40)
    options.add_argument("--rounds", type=common.positive, default=20_000)
    arguments = options.parse_args(argv)
    if min(arguments.seeds) < 2 or arguments.documents < 2:
        options.error("variances require at least 2 seeds and 2 documents")
    table = Table(title=f"95 % intervals that contain the true value, {arguments.documents} documents")
    for column in ("seeds", "variance of seeds / of documents", "Satterthwaite", "a t for each variance"):
        table.add_column(column, justify="right")
    rng = np.random.default_rng(0)
    for seeds in arguments.seeds:
        for ratio in arguments.ratios:
            one, each = coverage(rng, seeds, ratio, arguments.documents, arguments.rounds)
            table.add_row(str(seeds), f"{ratio:g}", f"{one:.1%}", f"{each:.1%}")
    common.CONSOLE.print(table)
    return 0


def coverage(rng: np.random.Generator, seeds: int, ratio: float, documents: int, rounds: int) -> tuple[float, float]:
    """Return the share of intervals that contain 0, with Satterthwaite's quantile and with one for each variance.

    Args:
        rng: Random generator.
        seeds: Number of seeds.
        ratio: Variance of the mean over seeds, divided by that of the mean over documents.
        documents: Number of documents.
        rounds: Rounds of the simulation.
    """
    degrees = np.array([[seeds - 1], [documents - 1]])
    truth = np.array([[ratio], [1.0]])
    errors = np.abs(rng.normal(0, np.sqrt(truth.sum()), rounds))
    found = truth * rng.chisquare(degrees, (2, rounds)) / degrees
    total = found.sum(axis=0)
    # Interpolated, because a quantile for every round would take minutes; it is smooth in the degrees of freedom.
    grid = np.geomspace(1, seeds + documents, 200)
    quantiles = np.array([t_quantile(_CONFIDENCE, float(value)) for value in grid])
    single = np.interp(total**2 / (found**2 / degrees).sum(axis=0), grid, quantiles) * np.sqrt(total)
    own = np.array([[t_quantile(_CONFIDENCE, float(value))] for value in degrees[:, 0]])
    each = np.sqrt((own**2 * found).sum(axis=0))
    return float(np.mean(errors <= single)), float(np.mean(errors <= each))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
