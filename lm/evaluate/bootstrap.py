"""Percentile bootstrap over documents (or clusters of them), and over seeds, for ratios of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def resampled_ratios(
    numerators: NDArray[Any], denominators: NDArray[Any], *, samples: int, seed: int
) -> NDArray[np.float64]:
    """Ratio sum(numerators) / sum(denominators) for resampled documents.

    The draws depend only on the seed and the number of documents, so two calls with the same of both are paired: their
    difference is the paired bootstrap of the difference.

    Args:
        numerators: float[n_documents].
        denominators: float[n_documents].
        samples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        float64[samples].
    """
    return multi_bootstrap(np.asarray(numerators)[None], denominators, samples=samples, seed=seed)


def multi_bootstrap(
    numerators: NDArray[Any], denominators: NDArray[Any], *, samples: int, seed: int
) -> NDArray[np.float64]:
    """Mean over runs of sum(numerators) / sum(denominators), with runs and documents both resampled.

    Each resample draws runs and documents independently, with replacement. Paired runs (two models with one seed) are
    one row of differences.
    (Sellam et al., The MultiBERTs, ICLR 2022, section 4; Owen, The pigeonhole bootstrap, 2007, for its coverage.)

    Args:
        numerators: float[n_runs, n_documents].
        denominators: float[n_documents], the same for all runs.
        samples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        float64[samples].
    """
    n_runs, n = numerators.shape
    rng = np.random.default_rng(seed)
    ratios = np.empty(samples)
    for i in range(samples):
        weights = np.bincount(rng.integers(0, n, n), minlength=n)
        sums = numerators @ weights
        if n_runs > 1:
            sums = sums[rng.integers(0, n_runs, n_runs)]
        # A resample may consist of empty documents only.
        ratios[i] = sums.mean() / max(1, weights @ denominators)
    return ratios


def percentile_interval(values: NDArray[Any], confidence: float) -> tuple[float, float]:
    """Interval between the (1 - confidence) / 2 and (1 + confidence) / 2 quantiles."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def percentile_p_value(values: NDArray[Any]) -> float:
    """Two-sided p-value against 0: twice the smaller share of resamples on either side, plus one.

    (Davison and Hinkley, Bootstrap Methods and their Application, section 4.4, for the +1.)
    """
    below, above = int((values <= 0).sum()), int((values >= 0).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + len(values)))
