"""Comparison of stored measurements under assumptions about the deployment, without training or scoring again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lm.bits import bits
from lm.evaluate.comparison import NOTHING_FURTHER, Further
from lm.evaluate.deployment import Deployment, Phase, ServingCost, serving_cost, training_flops
from lm.scaling.equivalent import Equivalent, Place, answered, place
from lm.scaling.gaps import Gap, Losses, compare_arms
from lm.scaling.points import Points
from tokenizer.errors import UserError, listed

if TYPE_CHECKING:
    from lm.evaluate.bits_per_byte import SamplingUnits

PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True)
class Priced:
    """An arm at a deployment.

    Attributes:
        relative: FLOPs per byte of each phase over the reference's.
        training: FLOPs of training the deployed model on what each budget's models read.
        equivalents: For each phase of serving, the arm against the reference at equal cost of training and serving;
            empty for the reference.
    """

    cost: ServingCost
    relative: Mapping[Phase, float]
    training: Sequence[float]
    equivalents: Mapping[Phase, Equivalent]


@dataclass(frozen=True, eq=False)
class Study:
    """Measurements under a weighting of the kinds of text; what a deployment does not change.

    Attributes:
        arms: The arms as measured; the first is the reference. They must have equal seeds, and budgets that are equal
            in FLOPs or in text (UserError).
        units: The units of sampling of the held-out text, with the weights of their kinds.
        cluster: What they are, `document` or `source`.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        further: Uncertainty beyond seeds and text.
    """

    arms: Sequence[Points]
    units: SamplingUnits
    cluster: str = "document"
    tolerance: float = 0.01
    confidence: float = 0.95
    further: Further = NOTHING_FURTHER

    def __post_init__(self) -> None:
        reference = self.arms[0]
        for arm in self.arms:
            if not np.all(np.diff(arm.flops) > 0):
                raise UserError(f"the budgets of {arm.name} must rise, but they are {listed(arm.flops)} FLOPs")
            problem = f"{arm.name} cannot be compared with {reference.name}"
            sizes = len(arm.flops), len(reference.flops)
            if sizes[0] != sizes[1]:
                raise UserError(f"{problem}: it has {sizes[0]} budgets instead of {sizes[1]}; train the same budgets")
            for one, two in zip(reference.flops, arm.flops, strict=True):
                if abs(two / one - 1) > self.tolerance and not self.on_equal_text(arm):
                    apart = f"{two:.4g} instead of {one:.4g} FLOPs, more than {100 * self.tolerance:g} % apart"
                    remedy = "train both on equal text or with equal FLOPs (budget=equal_deployed_flops)"
                    raise UserError(f"{problem}: a budget is {apart}; {remedy}")
            if list(arm.seeds) != list(reference.seeds):
                seeds = f"{listed(arm.seeds)} instead of {listed(reference.seeds)}"
                raise UserError(f"{problem}: its seeds are {seeds}; train the same seeds")

    def on_equal_text(self, arm: Points) -> bool:
        """Whether the models of an arm read as many bytes of text as the reference's at every budget."""
        reference = self.arms[0]
        if arm.read is None or reference.read is None:
            return False
        read = [np.array(points.read)[:, 1] for points in (reference, arm)]
        return bool(np.all(np.abs(read[1] / read[0] - 1) <= self.tolerance))

    @cached_property
    def losses(self) -> Losses:
        """Losses of the arms."""
        return Losses.of(self.arms, self.units)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Differences of the other arms to the reference."""
        return compare_arms(self.arms, self.losses, self.cluster, confidence=self.confidence, further=self.further)

    def tokens_per_byte(self) -> list[float]:
        """Weighted tokens per byte of each arm."""
        return [float(self.units.average(arm.unit_tokens)) for arm in self.arms]

    def at(self, deployment: Deployment) -> list[Priced]:
        """Price every arm at a deployment."""
        costs = [
            serving_cost(deployment, vocab_size=arm.vocab_size, tokens_per_byte=tokens)
            for arm, tokens in zip(self.arms, self.tokens_per_byte(), strict=True)
        ]
        relative: list[Mapping[Phase, float]] = [
            {phase: getattr(cost, phase).flops_per_byte / getattr(costs[0], phase).flops_per_byte for phase in PHASES}
            for cost in costs
        ]
        training = [
            arm.flops
            if arm.read is None
            else [training_flops(deployment, vocab_size=arm.vocab_size, tokens=t, n_bytes=b) for t, b in arm.read]
            for arm in self.arms
        ]
        phases = {phase: self._equivalents(deployment, relative, training, phase) for phase in PHASES}
        equivalents = [{}, *({phase: answers[i] for phase, answers in phases.items()} for i in range(len(self.gaps)))]
        return [Priced(*row) for row in zip(costs, relative, training, equivalents, strict=True)]

    def _equivalents(
        self,
        deployment: Deployment,
        relative: Sequence[Mapping[Phase, float]],
        training: Sequence[Sequence[float]],
        phase: Phase,
    ) -> list[Equivalent]:
        """Each arm against the reference at equal cost of training and serving."""
        places = {
            i: place(
                training[0],
                training[i],
                rho=deployment.rho,
                relative_cost=cost[phase],
                tolerance=self.tolerance,
                rate=deployment.rate,
            )
            for i, cost in enumerate(relative)
            if i
        }
        changes = self.losses.estimate({i: at.change for i, at in places.items() if isinstance(at, Place)})
        equivalents = []
        for gap, (i, at) in zip(self.gaps, places.items(), strict=True):
            if isinstance(at, Equivalent):
                equivalents.append(Equivalent("withheld", gap.withheld) if gap.barred else at)
                continue
            losses = bits(self.units.average(self.arms[i].nats).mean(0))
            change = self.further.widen((0, i), changes[i])
            equivalents.append(answered(gap, at, change, float(at.read(1, losses, at.arm))))
        return equivalents
