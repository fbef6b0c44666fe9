"""Percentile bootstrap over documents for ratios of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def resampled_ratios(
    numerators: NDArray[Any], denominators: NDArray[Any], *, samples: int, seed: int
) -> NDArray[np.float64]:
    """Ratio sum(numerators) / sum(denominators) for resampled documents.

    The draws depend on the seed and the number of documents only, so two calls that share both are paired:
    their difference is the paired bootstrap of the difference.

    Args:
        numerators: float[n_documents].
        denominators: float[n_documents].
        samples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        float64[samples].
    """
    n = len(numerators)
    rng = np.random.default_rng(seed)
    ratios = np.empty(samples)
    for i in range(samples):
        weights = np.bincount(rng.integers(0, n, n), minlength=n)
        # A resample may consist of empty documents alone.
        ratios[i] = (weights @ numerators) / max(1, weights @ denominators)
    return ratios


def percentile_interval(values: NDArray[Any], confidence: float) -> tuple[float, float]:
    """Interval between the (1 - confidence) / 2 quantiles on either side."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
