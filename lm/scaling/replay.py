"""What a page needs to compute `lm.scaling.reprice.reprice` under other assumptions, without the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm.evaluate.comparison import FEWEST_EFFECTIVE, FEWEST_SEEDS
from lm.evaluate.deployment import MLP_MATRICES, NUMBER_BYTES
from lm.evaluate.significance import t_quantile
from lm.scaling.curve import EXPONENTS, FARTHEST, FEWEST_RUNGS, HUBER, fit_degrees
from lm.scaling.estimates import FEWEST_UNITS, GRID

if TYPE_CHECKING:
    from lm.scaling.estimates import Arm
    from lm.scaling.reprice import Measured, Prepared


def replay(prepared: Prepared) -> dict[str, Any]:
    """Return JSON-able sums over the documents of every source, and resampled curves, for `ladder.compute`.

    Sums are enough for every number that has no interval, under any shares of the sources. Intervals at other
    deployments need resampled documents, which are stored as curves for the present shares only.
    """
    heldout, first = prepared.heldout, prepared.arms[0]
    n_seeds, units = len(first.ladder.seeds), first.points.effective_units
    level = prepared.gaps[0].level if prepared.gaps else prepared.confidence
    return {
        "confidence": prepared.confidence,
        "cluster": heldout.cluster,
        "sources": list(heldout.sources.names),
        "bytes": heldout.sources.sums(heldout.document_bytes).tolist(),
        "squares": heldout.sources.sums(heldout.document_bytes.astype(float) ** 2).tolist(),
        "average": prepared.average,
        "fixed": dict(prepared.fixed),
        "arms": [_arm(*each, prepared) for each in zip(prepared.measured, prepared.arms, strict=True)],
        "quantiles": {
            "fit": t_quantile(prepared.confidence, max(1, fit_degrees(n_seeds, len(first.ladder.flops)))),
            "seeds": t_quantile(level, n_seeds - 1) if n_seeds > 1 else None,
            "units": t_quantile(level, units - 1) if units is not None and units >= FEWEST_UNITS else None,
            "scatter": t_quantile(level, max(1, len(first.ladder.flops) - 3)),
        },
        "constants": {
            "fewestRungs": FEWEST_RUNGS,
            "farthest": FARTHEST,
            "huber": HUBER,
            "exponents": list(EXPONENTS),
            "grid": GRID,
            "fewestSeeds": FEWEST_SEEDS,
            "fewestEffective": FEWEST_EFFECTIVE,
            "numberBytes": NUMBER_BYTES,
            "mlpMatrices": MLP_MATRICES,
        },
    }


def _arm(measured: Measured, arm: Arm, prepared: Prepared) -> dict[str, Any]:
    sums, resampled, scatter = prepared.heldout.sources.sums, arm.points.resampled, arm.scatter
    return {
        "name": measured.name,
        "vocab_size": measured.vocab_size,
        "flops": [float(flops) for flops in measured.flops],
        "n_seeds": len(measured.seeds),
        "tokens": sums(measured.document_tokens).tolist(),
        "nats": [[sums(rung).tolist() for rung in seed] for seed in measured.nats],
        "resampled": None if resampled is None else resampled.tolist(),
        "laws": None if arm.curve.law is None else {"seeds": arm.laws_by_seed, "resampled": arm.laws_resampled},
        "scatter": None
        if scatter is None
        else {
            "variance": scatter.variance,
            "scales": scatter.scales.tolist(),
            "triangle": scatter.triangle.tolist(),
        },
    }
