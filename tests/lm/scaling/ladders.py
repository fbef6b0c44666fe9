"""Made-up arms with known gaps over a ladder of budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm.evaluate.bits_per_byte import Grouping
from lm.scaling.gaps import Gap, Losses, compare_arms
from lm.scaling.points import HeldOut, Points

FLOPS = np.geomspace(2e15, 6e16, 4)
N = 60
SIZES = np.repeat([300, 900], N // 2)
SOURCES = Grouping(("code", "web"), np.repeat([0, 1], N // 2).astype(np.int32))


def loss(flops: np.ndarray) -> np.ndarray:
    """Bits per byte of the reference."""
    return 0.6 + 0.9 * (flops / 1e16) ** -0.2


def heldout(sizes: np.ndarray = SIZES, sources: Grouping = SOURCES, cluster: str = "document") -> HeldOut:
    return HeldOut.of(sizes, sources, cluster=cluster)


def points(
    name: str,
    percent: Sequence[float],
    *,
    n_seeds: int = 3,
    scatter: float = 0.0,
    seed: int = 0,
    documents: float = 0.0,
    flops: np.ndarray = FLOPS,
    vocab_size: int = 50_000,
    bytes_per_token: float = 4.0,
    sizes: np.ndarray = SIZES,
    **more: Any,
) -> Points:
    """An arm whose gap to the reference is this many percent at each budget.

    Args:
        scatter: Half the range of the seeds, evenly spread around the gap, in percent of the reference.
        documents: Standard deviation of the documents' own gaps, in percent.
        more: Further attributes.
    """
    flops = flops[: len(percent)]
    rng = np.random.default_rng(seed)
    spread = scatter * np.linspace(-1, 1, n_seeds) if n_seeds > 1 else np.zeros(1)
    own = documents * rng.standard_normal(len(sizes))
    shared = np.exp(0.3 * np.random.default_rng(7).standard_normal(len(sizes)))
    gaps = 1 + (np.asarray(percent)[None, :, None] + spread[:, None, None] + own) / 100
    nats = np.log(2) * sizes * shared * loss(flops)[:, None] * gaps
    tokens = (sizes / bytes_per_token).astype(np.int64)
    return Points(name, vocab_size, list(map(float, flops)), list(range(n_seeds)), tokens, nats, **more)


def compared(*arms: Points, confidence: float = 0.95, text: HeldOut | None = None) -> list[Gap]:
    text = text or heldout()
    return compare_arms(arms, Losses.of(arms, text), text.cluster, confidence=confidence)


def gap(percent: Sequence[float], **options: float) -> Gap:
    """The gap of an arm to a reference without noise."""
    n_seeds = int(options.get("n_seeds", 3))
    (found,) = compared(points("ref", [0.0] * len(percent), n_seeds=n_seeds), points("arm", percent, **options))
    return found
