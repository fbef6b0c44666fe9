"""Models of several depths: the best depth of every budget (the compute-optimal envelope), and a curve per depth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lm.scaling.curve import fit_curve
from lm.scaling.ladder import Average, HeldOut, Ladder, check_comparable, document_ladder, source_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping
    from lm.scaling.reprice import Measured


class Envelope(NamedTuple):
    """The arms at the best depth of every budget.

    Attributes:
        arms: The measurements at these depths.
        chosen: For each arm, the depth of every budget; empty if there is one depth.
        depths: The points and the law of every depth, as JSON; empty if there is one depth.
    """

    arms: Sequence[Measured]
    chosen: Sequence[Sequence[int | None]] = ()
    depths: Sequence[Mapping[str, Any]] = ()

    def describe(self, found: dict[str, Any]) -> None:
        """Add the depths to a result of `lm.scaling.reprice.price` for these arms, if there are several."""
        if self.chosen:
            found["depths"] = self.depths
            for arm, depths in zip(found["arms"], self.chosen, strict=True):
                arm["depths"] = list(depths)


def envelope(
    depths: Mapping[int | None, Sequence[Measured]],
    document_bytes: NDArray[np.int64],
    sources: Grouping,
    *,
    average: Average = "micro",
    shares: Mapping[str, float] | None = None,
    cluster: str = "document",
    tolerance: float = 0.01,
    confidence: float = 0.95,
) -> Envelope:
    """Choose the best depth of every arm and budget.

    Args:
        depths: The arms in the same order for every number of layers; one entry, with any key, if there is one depth.
        document_bytes: As for `lm.scaling.reprice.prepare`, like all other arguments.
        sources: See `prepare`.
        average: See `prepare`.
        shares: See `prepare`.
        cluster: See `prepare`.
        tolerance: See `prepare`; also the accepted difference between two depths.
        confidence: See `prepare`.

    Raises:
        UserError: If the depths cannot be compared.
    """
    if len(depths) == 1:
        (arms,) = depths.values()
        return Envelope(arms)
    used = source_shares(document_bytes, sources, average=average, fixed=shares)
    heldout = HeldOut(document_bytes, sources, used, cluster)
    best = [
        best_depths(dict(zip(depths, arm, strict=True)), heldout, tolerance=tolerance)
        for arm in zip(*depths.values(), strict=True)
    ]
    points = [
        {"n_layers": depth, "arms": [_points(_ladder(arm, heldout), confidence) for arm in arms]}
        for depth, arms in depths.items()
    ]
    return Envelope([arm for arm, _ in best], [chosen for _, chosen in best], points)


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
