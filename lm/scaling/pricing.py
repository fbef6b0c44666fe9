"""Comparison of stored measurements under assumptions about the deployment, without training or scoring again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm.bits import bits
from lm.evaluate.deployment import (
    Deployment,
    Phase,
    Relative,
    ServingCost,
    relative_cost,
    serving_cost,
    training_flops,
)
from lm.scaling.equivalent import Equivalent, Place, answered, interpolate, place
from lm.scaling.gaps import Gap, Pair, compare_arms, estimate_all
from lm.scaling.points import Average, HeldOut, Points, check_comparable, source_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm.evaluate.bits_per_byte import Grouping

PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True)
class Priced:
    """An arm at a deployment.

    Attributes:
        cost: Cost of serving.
        relative: That cost over the reference's.
        training: FLOPs of training the deployed model on what each budget's models read.
        equivalents: For each phase of serving, the arm against the reference at equal cost of training and serving;
            empty for the reference.
    """

    cost: ServingCost
    relative: Relative
    training: Sequence[float]
    equivalents: Mapping[Phase, Equivalent]


@dataclass(frozen=True, eq=False)
class Study:
    """Measurements under a weighting of the sources; what a deployment does not change.

    Attributes:
        arms: The arms as measured; the first is the reference.
        heldout: The held-out documents with the shares of their sources.
        average: How sources are averaged.
        gaps: Differences of the other arms to the reference.
        pairs: Losses that the gaps are computed from.
        confidence: Confidence level.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
    """

    arms: Sequence[Points]
    heldout: HeldOut
    average: Average
    gaps: Sequence[Gap]
    pairs: Sequence[Pair]
    confidence: float
    tolerance: float

    @classmethod
    def of(
        cls,
        arms: Sequence[Points],
        document_bytes: NDArray[np.int64],
        sources: Grouping,
        *,
        average: Average = "micro",
        shares: Mapping[str, float] | None = None,
        cluster: str = "document",
        tolerance: float = 0.01,
        confidence: float = 0.95,
    ) -> Study:
        """Average over sources and compare the arms.

        Args:
            arms: The arms; the first is the reference.
            document_bytes: int64[n_documents], bytes of the held-out documents.
            sources: Their sources.
            average: How sources are averaged, see `source_shares`.
            shares: Shares of sources that are set by hand.
            cluster: Unit of sampling: "document", or "source" where sources take the place of documents.
            tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
            confidence: Confidence level.

        Raises:
            UserError: If the arms cannot be compared.
        """
        check_comparable(arms, len(document_bytes), tolerance=tolerance)
        heldout = HeldOut(
            document_bytes, sources, source_shares(document_bytes, sources, average=average, fixed=shares), cluster
        )
        gaps = compare_arms(arms, heldout, confidence=confidence)
        pairs = [Pair.of(arms[0], arm, heldout) for arm in arms[1:]]
        return cls(arms, heldout, average, gaps, pairs, confidence, tolerance)

    def tokens_per_byte(self) -> list[float]:
        """Tokens per byte of each arm, averaged over sources."""
        return [float(self.heldout.average(arm.document_tokens)) for arm in self.arms]

    def at(self, deployment: Deployment) -> list[Priced]:
        """Price every arm at a deployment."""
        costs = [
            serving_cost(deployment, vocab_size=arm.vocab_size, tokens_per_byte=tokens)
            for arm, tokens in zip(self.arms, self.tokens_per_byte(), strict=True)
        ]
        relative = [relative_cost(cost, costs[0]) for cost in costs]
        training = [
            arm.flops
            if arm.read is None
            else [training_flops(deployment, vocab_size=arm.vocab_size, tokens=t, n_bytes=b) for t, b in arm.read]
            for arm in self.arms
        ]
        phases = {phase: self._equivalents(deployment.rho, relative, training, phase) for phase in PHASES}
        equivalents = [{}, *({phase: found[i] for phase, found in phases.items()} for i in range(len(self.gaps)))]
        return [Priced(*each) for each in zip(costs, relative, training, equivalents, strict=True)]

    def _equivalents(
        self, rho: float, relative: Sequence[Relative], training: Sequence[Sequence[float]], phase: Phase
    ) -> list[Equivalent]:
        """Each arm against the reference at equal cost of training and serving."""
        places = [
            place(training[0], flops, rho=rho, relative_cost=getattr(cost, phase), tolerance=self.tolerance)
            for flops, cost in zip(training[1:], relative[1:], strict=True)
        ]
        measured = [i for i, found in enumerate(places) if isinstance(found, Place)]
        arms = [self.arms[0], *(self.arms[i + 1] for i in measured)]
        functions = [found.change() for found in places if isinstance(found, Place)]
        estimates = estimate_all(arms, [self.pairs[i] for i in measured], functions)
        changes = dict(zip(measured, estimates, strict=True))
        equivalents = []
        for i, (gap, found) in enumerate(zip(self.gaps, places, strict=True)):
            losses = bits(self.heldout.average(self.arms[i + 1].nats).mean(0))
            loss = float(interpolate(found.budgets[1], losses, found.arm)) if isinstance(found, Place) else 0.0
            equivalents.append(answered(gap, found, changes.get(i), loss))
        return equivalents
