"""Models of several depths: the best depth of every budget (the compute-optimal envelope), and a curve per depth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lm.scaling.curve import fit_curve
from lm.scaling.ladder import Average, HeldOut, Ladder, check_comparable, document_ladder, source_shares
from lm.scaling.reprice import Measured, reprice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping
    from lm.evaluate.deployment import Deployment


def reprice_depths(
    depths: Mapping[int | None, Sequence[Measured]],
    document_bytes: NDArray[np.int64],
    sources: Grouping,
    deployment: Deployment,
    *,
    average: Average = "micro",
    shares: Mapping[str, float] | None = None,
    cluster: str = "document",
    tolerance: float = 0.01,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """The result of `reprice` for the best depth of every arm and budget.

    Args:
        depths: The arms in the same order for every number of layers; one entry, with any key, if there is one depth.
        document_bytes: As for `reprice`, like all other arguments.
        sources: See `reprice`.
        deployment: See `reprice`.
        average: See `reprice`.
        shares: See `reprice`.
        cluster: See `reprice`.
        tolerance: See `reprice`; also the accepted difference between two depths.
        confidence: See `reprice`.

    Returns:
        With several depths, each of the `arms` has the chosen `depths`, one per budget, and `depths` has the points and
        the law of every depth.

    Raises:
        UserError: If the arms or the depths cannot be compared.
    """
    price = partial(
        reprice,
        document_bytes=document_bytes,
        sources=sources,
        deployment=deployment,
        average=average,
        shares=shares,
        cluster=cluster,
        tolerance=tolerance,
        confidence=confidence,
    )
    if len(depths) == 1:
        (arms,) = depths.values()
        return price(arms)
    used = source_shares(document_bytes, sources, average=average, fixed=shares)
    heldout = HeldOut(document_bytes, sources, used, cluster)
    envelopes = [
        best_depths(dict(zip(depths, arm, strict=True)), heldout, tolerance=tolerance)
        for arm in zip(*depths.values(), strict=True)
    ]
    found = price([measured for measured, _ in envelopes])
    for arm, (_, best) in zip(found["arms"], envelopes, strict=True):
        arm["depths"] = list(best)
    found["depths"] = [
        {"n_layers": depth, "arms": [_points(_ladder(arm, heldout), confidence) for arm in arms]}
        for depth, arms in depths.items()
    ]
    return found


def best_depths(
    depths: Mapping[int | None, Measured], heldout: HeldOut, *, tolerance: float = 0.01
) -> tuple[Measured, tuple[int | None, ...]]:
    """At every budget, the depth with the lowest bits per byte, mean over the seeds.

    It is chosen for all seeds together: chosen for each seed, it would use the noise of every run.

    Args:
        depths: The measurements of one arm by depth.
        heldout: The documents.
        tolerance: Accepted relative difference of two depths' training FLOPs at a budget.

    Returns:
        The measurements at the best depths, and the depth of each budget.

    Raises:
        UserError: If the depths were not measured on the same documents, seeds and budgets.
    """
    ladders = [replace(_ladder(arm, heldout), name=f"{arm.name} of depth {depth}") for depth, arm in depths.items()]
    for ladder in ladders[1:]:
        check_comparable(ladders[0], ladder, tolerance=tolerance)
    best = np.argmin([ladder.mean for ladder in ladders], axis=0)
    arms, names = list(depths.values()), list(depths)
    chosen = replace(
        arms[0],
        flops=[arms[depth].flops[rung] for rung, depth in enumerate(best)],
        nats=np.stack([arms[depth].nats[:, rung] for rung, depth in enumerate(best)], axis=1),
    )
    return chosen, tuple(names[depth] for depth in best)


def _ladder(arm: Measured, heldout: HeldOut) -> Ladder:
    return document_ladder(arm.name, arm.flops, arm.nats, heldout, seeds=arm.seeds)


def _points(ladder: Ladder, confidence: float) -> dict[str, Any]:
    """The points of one arm and depth, with the law through them."""
    curve = fit_curve(ladder, confidence=confidence)
    return {
        "name": ladder.name,
        "flops": list(curve.flops),
        "bits_per_byte": list(curve.bits_per_byte),
        "by_seed": ladder.bits_per_byte.tolist(),
        "law": None if curve.law is None else curve.law._asdict(),
        "reason": curve.reason,
    }
