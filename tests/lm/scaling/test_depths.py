"""Models of several depths at equal training FLOPs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Grouping
from lm.evaluate.deployment import Deployment
from lm.scaling.depths import best_depths, envelope
from lm.scaling.ladder import HeldOut, source_shares
from lm.scaling.reprice import Measured
from tests.lm.scaling.ladders import reprice
from tokenizer.errors import UserError

FLOPS = [1e15, 1e16, 1e17]
BYTES = np.array([100, 300, 200, 400])
SOURCES = Grouping(("code", "web"), np.array([0, 1, 0, 1], np.int32))
CHOSEN = {4: [1.0, 1.0, 1.0], 8: [1.1, 0.9, 0.8]}
"""Loss of each depth and budget, relative to that of 4 layers: the best depths are 4, 8, 8."""


def arm(name: str, losses: list[float], seed: int = 0) -> Measured:
    """Three seeds, of which one prefers the other depth at every budget."""
    rng = np.random.default_rng(seed)
    runs = np.array([0.99, 1.0, 1.01])[:, None, None]
    nats = rng.uniform(0.9, 1.1, len(BYTES)) * BYTES * np.array(losses)[:, None] * runs
    return Measured(name, 1000, FLOPS, (0, 1, 2), BYTES // 4, nats)


def depths(name: str, seed: int = 0) -> dict[int | None, Measured]:
    return {depth: arm(name, losses, seed) for depth, losses in CHOSEN.items()}


def heldout(**options: object) -> HeldOut:
    return HeldOut(BYTES, SOURCES, source_shares(BYTES, SOURCES, **options))  # type: ignore[arg-type]


def test_every_budget_takes_the_depth_with_the_lowest_mean_loss() -> None:
    found, best = best_depths(depths("a"), heldout())
    assert best == (4, 8, 8)
    assert np.array_equal(found.nats[:, 0], depths("a")[4].nats[:, 0])
    assert np.array_equal(found.nats[:, 1:], depths("a")[8].nats[:, 1:])
    assert list(found.flops) == FLOPS


def test_the_depth_is_the_same_for_all_seeds() -> None:
    two = depths("a")
    lucky = two[8].nats.copy()
    lucky[0, 0] *= 0.8  # 8 layers beat 4 in one seed of the smallest budget, not in the mean
    two[8] = dataclasses.replace(two[8], nats=lucky)
    found, best = best_depths(two, heldout())
    assert lucky[0, 0].sum() < two[4].nats[0, 0].sum()
    assert best == (4, 8, 8)
    assert np.array_equal(found.nats[:, 0], two[4].nats[:, 0])


def test_the_shares_of_the_sources_decide_the_depth() -> None:
    two = depths("a")
    nats = two[8].nats.copy()
    nats[:, 0, SOURCES.index == 0] *= 0.5  # at the smallest budget, 8 layers are better for code only
    nats[:, 0, SOURCES.index == 1] *= 1.2
    two[8] = dataclasses.replace(two[8], nats=nats)
    assert best_depths(two, heldout(fixed={"code": 0.0}))[1] == (4, 8, 8)
    assert best_depths(two, heldout(fixed={"code": 1.0}))[1] == (8, 8, 8)


def test_depths_with_other_budgets_are_rejected() -> None:
    two = depths("a")
    two[8] = dataclasses.replace(two[8], flops=[1.5e15, 1e16, 1e17])
    with pytest.raises(UserError, match=r"a of depth 8 cannot be compared with a of depth 4: a budget is 1\.5e"):
        best_depths(two, heldout())


def test_arms_are_priced_at_their_best_depths() -> None:
    arms = {depth: [arm("a", losses), arm("b", losses[::-1], 1)] for depth, losses in CHOSEN.items()}
    best = envelope(arms, BYTES, SOURCES)
    found = reprice(best.arms, BYTES, SOURCES, Deployment())
    best.describe(found)
    assert [each["depths"] for each in found["arms"]] == [[4, 8, 8], [8, 8, 4]]
    assert [depth["n_layers"] for depth in found["depths"]] == [4, 8]
    for place, each in enumerate(found["arms"]):
        points = np.array([depth["arms"][place]["bits_per_byte"] for depth in found["depths"]])
        assert np.allclose(each["curve"]["bits_per_byte"], points.min(axis=0))
        assert np.allclose([np.mean(d["arms"][place]["by_seed"], axis=0) for d in found["depths"]], points)


def test_one_depth_changes_nothing() -> None:
    arms = [arm("a", [1.0, 0.9, 0.8]), arm("b", [1.1, 0.9, 0.7], 1)]
    best = envelope({None: arms}, BYTES, SOURCES)
    assert best.arms is arms
    best.describe(found := reprice(arms, BYTES, SOURCES, Deployment()))
    assert "depths" not in found
