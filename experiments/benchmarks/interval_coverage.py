"""Coverage of the intervals of bits per byte, in simulations whose true difference is 0.

    python -m experiments.benchmarks.interval_coverage

The simulations call `lm.evaluate.significance` as `compare_all` does. A cell is the percentage of nominal 95 %
intervals that contain 0; a second number is the percentage of simulations whose verdict would be withheld, because
there are too few effective documents or sources. Coverage counts the others only.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.table import Table

from experiments.benchmarks import common
from lm.evaluate.comparison import enough
from lm.evaluate.significance import Ratio, holm_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

_CONFIDENCE = 0.95
_BATCH = 4_000_000  # numbers per array

SIZES: dict[str, Draw] = {
    "equal": lambda _, shape: np.ones(shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1, shape),
    "Pareto 1.5": lambda rng, shape: 1 + rng.pareto(1.5, shape),
    "Zipf": lambda _, shape: np.broadcast_to(1 / np.arange(1.0, shape[-1] + 1), shape),
}
"""Distributions of the sizes of documents or sources."""

NOISE: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "lognormal": lambda rng, shape: (rng.lognormal(0, 1, shape) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e),
}
"""Distributions of the differences per byte, with mean 0 and variance 1; their skewness is 0, 0, 2 and 6.2."""


class Scenario(NamedTuple):
    """One distribution of differences.

    Attributes:
        unit: `document` or `source`.
        n_units: Number of documents or sources.
        sizes: Distribution of their sizes.
        noise: Distribution of their differences per byte.
        by_size: Share of the variance of a difference per byte that is inversely proportional to the size, as if bytes
            were independent.
        n_seeds: Number of seeds.
        variance: Shares of the variance of the result from seeds, from units, and from single runs on single units.
        n_arms: Number of tokenizers.
    """

    unit: str = "document"
    n_units: int = 100
    sizes: str = "equal"
    noise: str = "normal"
    by_size: float = 0.0
    n_seeds: int = 1
    variance: tuple[float, float, float] = (0.0, 1.0, 0.0)
    n_arms: int = 2


class Outcome(NamedTuple):
    """Result of the simulations of a scenario, as shares.

    Attributes:
        coverage: Intervals that contain 0; of more than two tokenizers, experiments in which all intervals do.
        withheld: Simulations whose verdict would be withheld.
    """

    coverage: float
    withheld: float

    def __str__(self) -> str:
        withheld = f"{100 * self.withheld:.0f} % withheld"
        if self.withheld > 0.9:
            return withheld
        return f"{100 * self.coverage:.1f}" + (f" ({withheld})" if self.withheld >= 0.005 else "")


def simulate(scenario: Scenario, rounds: int) -> Outcome:
    """Simulate a scenario; the same scenario and rounds give the same result."""
    rng = np.random.default_rng(zlib.crc32(repr(scenario).encode()))
    batch = max(1, _BATCH // (scenario.n_units * scenario.n_seeds * scenario.n_arms))
    covered, known = np.empty(rounds, bool), np.empty(rounds, bool)
    for start in range(0, rounds, batch):
        part = slice(start, min(start + batch, rounds))
        covered[part], known[part] = _draw(scenario, rng, part.stop - start)
    return Outcome(float(covered[known].mean()) if known.any() else np.nan, 1 - float(known.mean()))


def _draw(scenario: Scenario, rng: np.random.Generator, rounds: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the intervals contain 0, and whether there are enough units, bool[rounds] each."""
    n, seeds = scenario.n_units, scenario.n_seeds
    # Two tokenizers are one draw of a difference, so that it is as skewed as the noise.
    drawn = 1 if scenario.n_arms == 2 else scenario.n_arms
    sizes = SIZES[scenario.sizes](rng, (rounds, n))
    sizes = sizes / sizes.mean(-1, keepdims=True)
    noise = NOISE[scenario.noise]

    def per_byte(n_runs: int) -> Floats:
        shape = (rounds, drawn, n_runs, n)
        values = math.sqrt(1 - scenario.by_size) * noise(rng, shape)
        if scenario.by_size:
            values += np.sqrt(scenario.by_size / sizes)[:, None, None] * noise(rng, shape)
        return values

    of_seeds, of_units, of_both = (math.sqrt(share) for share in scenario.variance)
    values = of_units * per_byte(1)
    if seeds > 1:
        # The variances of the mean over seeds and units are in the proportion of the shares.
        scale = of_seeds * np.sqrt(seeds * (sizes**2).mean(-1) / n)[:, None, None, None]
        values = values + scale * rng.standard_normal((rounds, drawn, seeds, 1))
        values = values + of_both * math.sqrt(seeds) * per_byte(seeds)
    nats = values * sizes[:, None, None]
    if drawn == 1:
        differences = [nats[:, 0]]
    else:
        differences = [nats[:, j] - nats[:, i] for i, j in itertools.combinations(range(drawn), 2)]
    ratios = [Ratio.of(each, sizes) for each in differences]
    p_values = np.stack([ratio.p_value() for ratio in ratios], -1) if drawn > 1 else np.zeros((rounds, 1))
    levels = np.array([holm_levels(row, _CONFIDENCE) for row in p_values])
    covered = np.ones(rounds, bool)
    for ratio, level in zip(ratios, levels.T, strict=True):
        low, high = ratio.interval(level)
        covered &= (low <= 0) & (high >= 0)
    return covered, enough(ratios[0].effective_units, scenario.unit)


def tables(rounds: int) -> Iterable[Table]:
    """Simulate all scenarios."""
    kinds = [("equal", 0.0), ("lognormal", 0.0), ("lognormal", 1.0), ("Pareto 1.5", 0.0), ("Pareto 1.5", 1.0)]
    table = _table("One seed, documents", "sizes", "variance", "differences", "30", "100", "1,000")
    for sizes, by_size in kinds:
        for noise in NOISE:
            cells = [simulate(Scenario("document", n, sizes, noise, by_size), rounds) for n in (30, 100, 1000)]
            table.add_row(sizes, _variance(sizes, by_size), noise, *map(str, cells))
    yield table
    table = _table("One seed, sources", "sizes", "variance", "differences", "5", "10", "20", "50")
    for sizes, by_size in [("equal", 0.0), ("lognormal", 0.5), ("Zipf", 0.0), ("Zipf", 0.5)]:
        for noise in NOISE:
            cells = [simulate(Scenario("source", n, sizes, noise, by_size), rounds) for n in (5, 10, 20, 50)]
            table.add_row(sizes, _variance(sizes, by_size), noise, *map(str, cells))
    yield table
    table = _table("Several seeds", "units", "variance of seeds, units, runs on units", "2", "3", "5")
    units = [
        Scenario("document", 100, "lognormal", "exponential", 0.5),
        Scenario("source", 10, "equal", "exponential"),
    ]
    shares = [(1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.5, 0.5, 0.0), (0.2, 0.8, 0.0), (0.0, 1.0, 0.0)]
    shares += [(0.2, 0.4, 0.4), (0.0, 0.5, 0.5), (0.0, 0.0, 1.0)]
    for unit in units:
        for share in shares:
            cells = [simulate(unit._replace(n_seeds=n, variance=share), rounds) for n in (2, 3, 5)]
            name = f"{unit.n_units} {unit.unit}s, {unit.sizes}"
            table.add_row(name, " : ".join(f"{part:g}" for part in share), *map(str, cells))
    yield table
    table = _table("All pairs of equal tokenizers, with Holm's correction", "seeds", "differences", "3 arms", "6 arms")
    for n_seeds, share in ((1, (0.0, 1.0, 0.0)), (3, (0.4, 0.4, 0.2))):
        for noise in NOISE:
            scenario = Scenario("document", 100, "lognormal", noise, 0.5, n_seeds, share)
            cells = [simulate(scenario._replace(n_arms=n), rounds) for n in (3, 6)]
            table.add_row(str(n_seeds), noise, *map(str, cells))
    yield table


def _variance(sizes: str, by_size: float) -> str:
    return "–" if sizes == "equal" else {0.0: "constant", 0.5: "half and half", 1.0: "1 / size"}[by_size]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def main(argv: list[str]) -> int:
    """Print the tables; return the exit code."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--rounds", type=common.positive, default=2000, help="simulations per cell (%(default)s)")
    arguments = options.parse_args(argv)
    for table in tables(arguments.rounds):
        common.CONSOLE.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
