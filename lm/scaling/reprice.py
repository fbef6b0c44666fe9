"""Everything that follows from stored measurements under given assumptions, without training or scoring again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm.evaluate.comparison import DETECTABLE
from lm.evaluate.deployment import Deployment, Phase, ServingCost, relative_cost, serving_cost
from lm.evaluate.significance import Needed, Ratio
from lm.scaling.equivalent import Equivalent, equivalent_bits_per_byte, equivalent_gap
from lm.scaling.estimates import FEWEST_UNITS, Arm, curve_bands
from lm.scaling.gap import Gap, compare_arms
from lm.scaling.ladder import Average, HeldOut, Ladder, check_comparable, document_ladder, source_shares
from lm.scaling.verdict import decisions, statements
from lm.scaling.worth import worth
from tokenizer.errors import UserError, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping

AVERAGES: tuple[Average, ...] = ("micro", "macro")
PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True, eq=False)
class Measured:
    """What is stored of an arm.

    Attributes:
        name: Name of the arm.
        vocab_size: Rows of the head that the arm would be deployed with.
        flops: Training FLOPs of each rung.
        seeds: Seeds of the models.
        document_tokens: int64[n_documents], text tokens of each document.
        nats: float64[n_seeds, n_rungs, n_documents], loss of each document's text tokens.
    """

    name: str
    vocab_size: int
    flops: Sequence[float]
    seeds: Sequence[int]
    document_tokens: NDArray[np.int64]
    nats: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Measurements under a weighting of the sources; what a deployment does not change.

    Attributes:
        measured: The arms as measured; the first is the reference.
        heldout: The held-out documents with the shares of their sources.
        average: How sources are averaged.
        fixed: Shares of sources that are set by hand.
        arms: Ladders and curves of the arms.
        gaps: Differences of the other arms to the reference.
        confidence: Confidence level.
    """

    measured: Sequence[Measured]
    heldout: HeldOut
    average: Average
    fixed: Mapping[str, float]
    arms: Sequence[Arm]
    gaps: Sequence[Gap]
    confidence: float


def prepare(
    arms: Sequence[Measured],
    document_bytes: NDArray[np.int64],
    sources: Grouping,
    *,
    average: Average = "micro",
    shares: Mapping[str, float] | None = None,
    cluster: str = "document",
    tolerance: float = 0.01,
    confidence: float = 0.95,
    samples: int = 500,
    seed: int = 0,
) -> Prepared:
    """Average over sources, fit curves and compare the arms.

    Args:
        arms: The arms; the first is the reference.
        document_bytes: int64[n_documents], bytes of the held-out documents.
        sources: Their sources.
        average: How sources are averaged, see `source_shares`.
        shares: Shares of sources that are set by hand.
        cluster: Unit of sampling: "document", or "source" where sources take the place of documents.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        confidence: Confidence level.
        samples: Number of resamples of the documents.
        seed: Seed of the resamples.

    Raises:
        UserError: If the arms cannot be compared.
    """
    for arm in arms:
        if arm.nats.shape != (len(arm.seeds), len(arm.flops), len(document_bytes)):
            raise UserError(
                f"{arm.name} has losses of {listed(arm.nats.shape)} seeds, budgets and documents instead of "
                f"{len(arm.seeds)}, {len(arm.flops)}, {len(document_bytes)}; evaluate it on the same held-out text"
            )
    used = source_shares(document_bytes, sources, average=average, fixed=shares)
    heldout = HeldOut(document_bytes, sources, used, cluster)
    ladders = [document_ladder(arm.name, arm.flops, arm.nats, heldout, seeds=arm.seeds) for arm in arms]
    for ladder in ladders[1:]:
        check_comparable(ladders[0], ladder, tolerance=tolerance)
    read = [Arm.of(ladder, confidence=confidence, samples=samples, seed=seed) for ladder in ladders]
    gaps = compare_arms(read[0], read[1:], confidence=confidence)
    return Prepared(arms, heldout, average, dict(shares or {}), read, gaps, confidence)


def price(prepared: Prepared, deployment: Deployment) -> dict[str, Any]:
    """Curves, differences, costs and rankings of all arms at a deployment, as a JSON-able dictionary."""
    arms, read, gaps, heldout = prepared.measured, prepared.arms, prepared.gaps, prepared.heldout
    tokens_per_byte = [float(heldout.average(arm.document_tokens)) for arm in arms]
    costs = [
        serving_cost(deployment, vocab_size=arm.vocab_size, tokens_per_byte=each)
        for arm, each in zip(arms, tokens_per_byte, strict=True)
    ]
    equivalents = {
        each.ladder.name: equivalents_of(each, cost, costs[0], read[0].ladder.flops, deployment.rho)
        for each, cost in zip(read, costs, strict=True)
    }
    equivalent_gaps = [
        {
            phase: [
                equivalent_gap(
                    read[0],
                    arm,
                    flops,
                    rho=deployment.rho,
                    relative_cost=getattr(relative_cost(cost, costs[0]), phase),
                    confidence=gap.level,
                )
                for flops in gap.flops
            ]
            for phase in PHASES
        }
        for arm, cost, gap in zip(read[1:], costs[1:], gaps, strict=True)
    ]
    withheld = next((gap.withheld for gap in gaps if gap.withheld), None)
    last = {arm.name: float(each.ladder.mean[-1]) for arm, each in zip(arms, read, strict=True)}
    return {
        "reference": arms[0].name,
        "deployment": dataclasses.asdict(deployment),
        "average": prepared.average,
        "shares": dict(heldout.shares),
        "confidence": prepared.confidence,
        "arms": [
            {
                "name": arm.name,
                "tokens_per_byte": each.tokens_per_byte,
                "bits_per_byte": {"micro": micro, "macro": macro},
                "curve": _plain(one.curve),
                "bands": dict(
                    zip(("measured", "extrapolated"), _plain(curve_bands(one, prepared.confidence)), strict=True)
                ),
                "cost": _plain(each),
                "relative_cost": relative_cost(each, costs[0])._asdict(),
                "equivalent": {phase: _plain(by_phase[phase]) for phase in PHASES},
            }
            for arm, one, each, by_phase, micro, macro in zip(
                arms,
                read,
                costs,
                equivalents.values(),
                *_averages(arms, heldout.document_bytes, heldout.sources),
                strict=True,
            )
        ],
        "gaps": [
            {
                **_plain(gap),
                "statements": statements(gap, (read[0].curve, arm.curve)),
                "decisions": decisions(gap),
                "needed": _plain(needed(read[0].ladder, arm.ladder, gap)),
                "equivalent": {phase: _plain(each) for phase, each in by_phase.items()},
                "worth": {phase: _plain(worth(gap, equivalents[gap.arm][phase], by_phase[phase])) for phase in PHASES},
            }
            for gap, arm, by_phase in zip(gaps, read[1:], equivalent_gaps, strict=True)
        ],
        "ranking": {
            "bits_per_byte": sorted(last, key=lambda name: last[name]),
            **{phase: ranking({name: each[phase] for name, each in equivalents.items()}) for phase in PHASES},
            "withheld": withheld,
        },
        "frontier": {
            **{
                phase: frontier(
                    last,
                    {arm.name: getattr(cost, phase).flops_per_byte for arm, cost in zip(arms, costs, strict=True)},
                )
                for phase in PHASES
            },
            "withheld": withheld,
        },
    }


def needed(reference: Ladder, other: Ladder, gap: Gap) -> Needed | None:
    """Sample that would show the gap at the largest budget, or `DETECTABLE` if that is larger.

    Returns:
        None with fewer than two documents or sources.
    """
    bits, base, sizes = other.document_bits, reference.document_bits, reference.document_bytes
    if bits is None or base is None or sizes is None or (sizes > 0).sum() < FEWEST_UNITS:
        return None
    kept = sizes > 0
    found = Ratio.of((bits - base)[:, -1, kept], sizes[kept])
    return found.needed(max(DETECTABLE, abs(gap.percent[-1]) / 100) * float(reference.mean[-1]), gap.level)


def equivalents_of(
    arm: Arm, cost: ServingCost, reference: ServingCost, flops: Sequence[float] | NDArray[np.float64], rho: float
) -> dict[Phase, list[Equivalent]]:
    """FLOP-equivalent bits per byte at every budget of the reference, for serving that only reads or only generates."""
    relative = relative_cost(cost, reference)
    return {
        phase: [
            equivalent_bits_per_byte(arm.curve, float(each), rho=rho, relative_cost=getattr(relative, phase))
            for each in flops
        ]
        for phase in PHASES
    }


def ranking(equivalents: Mapping[str, Sequence[Equivalent]]) -> dict[str, Any]:
    """Arms by FLOP-equivalent bits per byte, at the largest budget where every arm that can be matched has a number.

    Returns:
        `reference_flops` (None if there is no such budget), `names` from best to worst, `extrapolated` (those whose
        number is an extrapolation), and `unmatched` (those whose serving cost cannot be matched).
    """
    unmatched = [name for name, row in equivalents.items() if row[-1].flops is None]
    rows = {name: row for name, row in equivalents.items() if name not in unmatched}
    for i in reversed(range(min(map(len, rows.values())))):
        values = {name: row[i].bits_per_byte for name, row in rows.items()}
        found = {name: value for name, value in values.items() if value is not None}
        if len(found) == len(rows):
            return {
                "reference_flops": next(iter(rows.values()))[i].reference_flops,
                "names": sorted(found, key=lambda name: found[name]),
                "extrapolated": [name for name, row in rows.items() if row[i].extrapolated],
                "unmatched": unmatched,
            }
    return {"reference_flops": None, "names": [], "extrapolated": [], "unmatched": unmatched}


def frontier(bits_per_byte: Mapping[str, float], cost: Mapping[str, float]) -> list[str]:
    """Arms that no other arm beats in both bits per byte and cost, cheapest first.

    >>> frontier({"a": 1.0, "b": 0.9, "c": 1.1}, {"a": 1.0, "b": 2.0, "c": 1.5})
    ['a', 'b']
    """
    names: list[str] = []
    for name in sorted(cost, key=lambda each: (cost[each], bits_per_byte[each])):
        if not names or bits_per_byte[name] < bits_per_byte[names[-1]]:
            names.append(name)
    return names


def _averages(
    arms: Sequence[Measured], document_bytes: NDArray[np.int64], sources: Grouping
) -> list[list[list[float]]]:
    """Bits per byte of every rung, mean over the seeds, for both averages over sources: by average, arm and rung."""
    found = []
    for average in AVERAGES:
        shares = source_shares(document_bytes, sources, average=average)
        heldout = HeldOut(document_bytes, sources, shares)
        found.append([(heldout.average(arm.nats).mean(axis=0) / math.log(2)).tolist() for arm in arms])
    return found


def _plain(value: Any) -> Any:
    """Dataclasses and named tuples as dictionaries, all the way down."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
