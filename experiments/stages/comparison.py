"""Arms with their models and scores, and how they compare."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.results import Scores
from lm.evaluate.bits_per_byte import Comparison, Evaluation, aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.results import ShardsFolder, TrainedModel
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from tokenizer.interface import TokenizerLike


@dataclass(frozen=True)
class ArmModels:
    """What was made with the tokenizer of one arm.

    Attributes:
        arm: The tokenizer.
        training: The training text in its tokens.
        heldout: The held-out text in its tokens.
        lms: The trained models, one per seed.
    """

    arm: ArmTokenizer
    training: Artifact[ShardsFolder]
    heldout: Artifact[ShardsFolder]
    lms: Sequence[Artifact[TrainedModel]]

    @property
    def key(self) -> str:
        """Name of the arm."""
        return self.arm.key

    @property
    def label(self) -> str:
        """Name of the arm in tables and charts."""
        return self.arm.label

    @property
    def tokenizer(self) -> TokenizerLike:
        """Its tokenizer."""
        return self.arm.tokenizer

    @property
    def lm(self) -> Artifact[TrainedModel]:
        """The model of the first seed."""
        return self.lms[0]

    @property
    def reading(self) -> list[Artifact[Any]]:
        """Artifacts of all stages that read text on the way to the models; their contents are `Reading`."""
        return [*self.arm.reading, self.training]


@dataclass(frozen=True)
class ArmResult(ArmModels):
    """An arm with its scores on held-out text.

    Attributes:
        artifacts: The evaluations, one per seed.
        evaluations: The same, loaded.
        scores: Scores over all seeds.
        downstream: Scores on tasks, where `experiments.downstream` measured any.
        series: Of several runs: the settings beside size and transition that tell its run apart.
        partner: Of several runs: index of the BPE arm that its run compared it with.
    """

    artifacts: Sequence[Artifact[Scores]]
    evaluations: Sequence[Evaluation]
    scores: Scores
    downstream: Sequence[Mapping[str, Any]] = ()
    series: str = ""
    partner: int | None = None


FEWEST_DOCUMENTS = 30
"""With fewer held-out documents (or sources) their resamples say too little about others: no verdict."""
FEWEST_SEEDS = 3
"""With fewer, a verdict is about these models, not about their tokenizers. (Two seeds make intervals of 12.7 standard
errors; three of 4.3.)"""


@dataclass(frozen=True)
class Result:
    """All arms with their scores, each compared with each later one.

    Attributes:
        arms: The arms; of one run, the reference first.
        comparisons: By indices in `arms`: `[0, 1]` is the second against the first.
        fixed_reference: Whether the first was chosen as what the others are compared with.
    """

    arms: Sequence[ArmResult]
    comparisons: Mapping[tuple[int, int], Comparison]
    fixed_reference: bool = False

    @property
    def labels(self) -> list[str]:
        """Names of the arms in tables and charts."""
        return [each.label for each in self.arms]

    @property
    def n_seeds(self) -> int:
        """Models of each arm."""
        return len(self.arms[0].lms)

    @property
    def ranked(self) -> list[int]:
        """Indices of the arms, the lowest loss first."""
        return sorted(range(len(self.arms)), key=lambda i: self.arms[i].scores.bits_per_byte)

    @property
    def pair(self) -> tuple[int, int]:
        """The two arms that the verdict's numbers are about: the best but the first, and what it is compared with.

        That is the reference if one was chosen, else the BPE arm of its own run, else the first arm with a vocabulary
        of its size, so that no more differs than has to.
        """
        best = next(i for i in self.ranked if i)
        partner = self.arms[best].partner
        if self.fixed_reference or (partner is not None and partner < best):
            return (0 if self.fixed_reference or partner is None else partner), best
        sizes = [each.tokenizer.vocab_size for each in self.arms]
        base = sizes.index(sizes[best])
        return (base if base < best else 0), best

    @property
    def shown(self) -> Comparison:
        """The comparison of `pair`."""
        return self.comparisons[self.pair]

    @property
    def too_few(self) -> bool:
        """Whether there are too few documents for a verdict."""
        return any(min(each.n_documents, each.n_clusters) < FEWEST_DOCUMENTS for each in self.comparisons.values())

    @property
    def winner(self) -> ArmResult | None:
        """The arm that is better than every other; None if the data cannot tell."""
        if self.too_few or len(self.arms) < 2:
            return None
        for i, each in enumerate(self.arms):
            against = [(pair, found.verdict) for pair, found in self.comparisons.items() if i in pair]
            if all(verdict == ("A better" if pair[0] == i else "B better") for pair, verdict in against):
                return each
        return None


def of_seed(arm: ArmTokenizer, number: int) -> ArmTokenizer:
    """The arm as it is called where a stage works on one of several seeds; the first keeps its name."""
    return dataclasses.replace(arm, key=f"{arm.key}-seed{number}") if number else arm


def scored(arm: ArmModels, artifacts: Sequence[Artifact[Scores]], **more: Any) -> ArmResult:
    """An arm with its evaluations.

    Args:
        arm: The arm and its models.
        artifacts: The evaluations, one per model.
        **more: Further attributes of `ArmResult`.
    """
    evaluations = [Evaluation.load(artifact.path) for artifact in artifacts]
    scores = Scores.load({**aggregate(evaluations), "cost": artifacts[0].contents.cost.save()})
    return ArmResult(arm.arm, arm.training, arm.heldout, arm.lms, artifacts, evaluations, scores, **more)
