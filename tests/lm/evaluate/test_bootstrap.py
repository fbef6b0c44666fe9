from __future__ import annotations

import numpy as np
import pytest

from lm.evaluate.bootstrap import percentile_interval, resampled_ratios


def test_the_interval_has_its_nominal_coverage():
    """Ratios of sums around a known value: 90 % intervals hold it about 90 % of the time."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        sizes = rng.integers(50, 150, 60).astype(float)
        nats = sizes * rng.normal(1.0, 0.2, 60)
        low, high = percentile_interval(resampled_ratios(nats, sizes, samples=300, seed=1), 0.9)
        hits += low <= 1.0 <= high
    assert 0.82 <= hits / 200 <= 0.97


def test_constant_ratio_has_no_spread():
    sizes = np.array([3.0, 5.0, 0.0])
    assert resampled_ratios(2 * sizes, sizes, samples=50, seed=0) == pytest.approx(
        [2.0 if r else 0.0 for r in resampled_ratios(2 * sizes, sizes, samples=50, seed=0)]
    )


def test_same_seed_is_paired():
    sizes = np.arange(1.0, 20.0)
    noise = np.random.default_rng(0).normal(size=19) * 5
    a = resampled_ratios(sizes + noise, sizes, samples=100, seed=3)
    b = resampled_ratios(sizes + noise + 0.01 * sizes, sizes, samples=100, seed=3)
    assert b - a == pytest.approx(np.full(100, 0.01))
