"""Points that were measured elsewhere: a table of bits per byte by arm, seed, training FLOPs and source."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from lm.bits import bits_per_byte
from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.comparison import UNIFORM_BITS
from lm.scaling.points import Points
from lm.tables import ABOVE_ZERO, Column, read_table
from tokenizer.errors import UserError, counted

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_POSITIVE = Column(float, ABOVE_ZERO)
COLUMNS = {
    "arm": Column(),
    "seed": Column(int),
    "flops": _POSITIVE,
    "vocab_size": Column(int, 1),
    "tokens_per_byte": _POSITIVE,
}
"""Columns of the table; every further one is a source."""
_SOURCE_BYTES = 1_000_000
"""Size of every source, whose real size the table does not have: without weights, all have the same share."""


def read_points(path: Path) -> tuple[list[Points], NDArray[np.float64], Grouping]:
    """Read a CSV table (RFC 4180): a row for each arm, seed and budget, with the bits per byte of each source.

    Returns:
        The arms in the order of the table, of which the first is the reference; float64[n_sources], bytes of each
        source; and the sources, each its own unit of sampling.

    Raises:
        UserError: If a column or a row is missing, or a value is wrong.
    """
    hint = " and the sources; a table of losses has arm, document, bytes, nats"
    table = read_table(path, COLUMNS, _POSITIVE, hint)
    names = [name for name in table[0].values if name not in COLUMNS] if table else []
    if table and not names:
        raise UserError(f"{path} has no bits per byte; add a column for each source, or one for the mean")
    arms: dict[str, dict[tuple[int, float], dict[str, float]]] = {}
    for place, row in table:
        key = row["seed"], row["flops"]
        if key in arms.setdefault(row["arm"], {}):
            raise UserError(f"{place}: {row['arm']} has seed {key[0]} at {key[1]:g} FLOPs twice")
        arms[row["arm"]][key] = row
    if len(arms) < 2:
        raise UserError(f"{path} has {counted(len(arms), 'arm')}; at least 2 are required")
    sizes = np.full(len(names), float(_SOURCE_BYTES))
    sources = Grouping(tuple(names), np.arange(len(names), dtype=np.int32))
    return [_points(path, arm, rows, names) for arm, rows in arms.items()], sizes, sources


def _points(path: Path, arm: str, rows: dict[tuple[int, float], dict[str, float]], names: list[str]) -> Points:
    seeds, flops = (sorted(set(column)) for column in zip(*rows, strict=True))
    if absent := [run for run in itertools.product(seeds, flops) if run not in rows]:
        raise UserError(f"{path}: {arm} has no row of seed {absent[0][0]:g} at {absent[0][1]:g} FLOPs")
    losses = np.array([[[rows[seed, budget][name] for name in names] for budget in flops] for seed in seeds])
    first = next(iter(rows.values()))
    tokens = np.full(len(names), round(first["tokens_per_byte"] * _SOURCE_BYTES))
    diverged = f"a model of {arm} needs {losses.max():.1f} bits per byte" if losses.max() >= UNIFORM_BITS else ""
    nats = losses / bits_per_byte(1.0, _SOURCE_BYTES)
    return Points(
        name=arm,
        vocab_size=int(first["vocab_size"]),
        flops=flops,
        seeds=[int(seed) for seed in seeds],
        unit_tokens=tokens,
        nats=nats,
        barred=diverged,
    )
