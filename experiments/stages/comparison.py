"""Arms with their models and scores, and the comparisons between them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from experiments.results import Scores
from experiments.stages.plan import DEFAULT_DEPLOYMENT, reasons_unequal
from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.comparison import Comparison, aggregate, compare_all, eligible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from experiments.config import BudgetConfig
    from experiments.results import Contamination, ShardsFolder, TrainedModel, Tuning
    from experiments.stages.shards import Encoded
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact
    from lm.evaluate.deployment import Deployment
    from tokenizer.interface import TokenizerLike

SUSPICIOUS = 3.0
"""Points by which an arm may save more tokens on held-out than on training text, relative to the reference."""
LEAST_EVIDENCE = 99_000_000
"""Models that read fewer bytes of text are a demonstration."""


@dataclass(frozen=True)
class ArmResult:
    """An arm with its trained models and their scores on held-out text.

    Attributes:
        arm: The tokenizer.
        training: Shards of the training text.
        heldout: Shards of the held-out text.
        lms: The trained models, one per seed.
        artifacts: The evaluations, one per seed.
        evaluations: The loaded evaluations, one per seed.
        compared: The evaluations on the documents that the arms are compared on (`Result.documents`).
        scores: Scores over all seeds, on the same documents.
        barred: Why the arm takes part in no verdict; empty if it does.
    """

    arm: ArmTokenizer
    training: Artifact[ShardsFolder]
    heldout: Artifact[ShardsFolder]
    lms: Sequence[Artifact[TrainedModel]]
    artifacts: Sequence[Artifact[Scores]]
    evaluations: Sequence[Evaluation]
    compared: Sequence[Evaluation]
    scores: Scores
    barred: str = ""

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
        """Tokenizer of the arm."""
        return self.arm.tokenizer

    @property
    def lm(self) -> Artifact[TrainedModel]:
        """The model of the first seed."""
        return self.lms[0]


@dataclass(frozen=True)
class Result:
    """All arms with their scores, and all pairwise comparisons, of which those with the reference decide.

    Attributes:
        arms: The arms; the first is the reference.
        comparisons: Keyed by indices into `arms`: `[0, 1]` compares the second arm with the first.
        documents: bool[n_documents]: the held-out documents that the arms are compared on; None for all.
        left_out: A sentence about the other documents; empty if there are none.
        overlap: Overlap of the held-out documents with the training text, if it was measured.
        tuning: For each arm, the choice of its learning rates, if they were tuned.
    """

    arms: Sequence[ArmResult]
    comparisons: Mapping[tuple[int, int], Comparison]
    documents: NDArray[np.bool_] | None = None
    left_out: str = ""
    overlap: Artifact[Contamination] | None = None
    tuning: Sequence[Tuning] = ()

    @classmethod
    def of(
        cls, arms: Sequence[ArmResult], budget: BudgetConfig, deployment: Deployment = DEFAULT_DEPLOYMENT, **more: Any
    ) -> Result:
        """Compare all arms that may take part in verdicts, and show the others.

        These are arms of equal budgets (`reasons_unequal`) that `lm.evaluate.comparison.eligible` admits.

        Args:
            arms: The arms, as returned by `scored`.
            budget: What is equal between the models, within which tolerance.
            deployment: The model that will be deployed.
            **more: Further attributes.
        """
        if len(arms) < 2:
            return cls(arms, {}, **more)
        # Bytes and tokenizers from elsewhere keep their own variance between seeds.
        trained = [arm.arm.record is not None for arm in arms]
        models = [(arm.label, arm.tokenizer.vocab_size, [lm.contents.summary for lm in arm.lms]) for arm in arms]
        unequal = reasons_unequal(models, budget, deployment)
        eligibility = eligible([arm.evaluations for arm in arms], [arm.label for arm in arms], trained, unequal)
        arms = [dataclasses.replace(arm, barred=reason) for arm, reason in zip(arms, eligibility.reasons, strict=True)]
        if eligibility.note:
            arms = [_restricted(arm, eligibility.documents) for arm in arms]
            more |= {"documents": eligibility.documents, "left_out": eligibility.note}
        return cls(arms, compare_all([arm.compared for arm in arms], eligibility), **more)

    @property
    def demonstration(self) -> bool:
        """Whether the models read too little text for evidence about tokenizers."""
        return any(arm.lm.contents.summary.bytes < LEAST_EVIDENCE for arm in self.arms)

    @property
    def seed_seconds(self) -> float:
        """Time to train the models of one seed of all arms."""
        return sum(fmean(model.contents.summary.seconds for model in arm.lms) for arm in self.arms)

    @property
    def labels(self) -> list[str]:
        """Names of the arms in tables and charts."""
        return [arm.label for arm in self.arms]

    @property
    def n_seeds(self) -> int:
        """Number of models per arm."""
        return len(self.arms[0].lms)

    @property
    def judged(self) -> list[int]:
        """Indices of the arms that take part in verdicts."""
        return [i for i, arm in enumerate(self.arms) if not arm.barred]

    @property
    def pair(self) -> tuple[int, int]:
        """The two arms that the verdict's numbers refer to: the reference, and the best other arm in verdicts."""
        return 0, min(filter(None, self.judged), key=lambda i: self.arms[i].scores.bits_per_byte, default=1)

    @property
    def tested(self) -> dict[int, Comparison]:
        """Comparisons with the reference that may decide, by the index of the other arm."""
        return {j: comparison for (i, j), comparison in self.comparisons.items() if i == 0 and comparison.tested}

    @property
    def shown(self) -> Comparison:
        """Comparison of the two arms of `pair`."""
        return self.comparisons[self.pair]

    @property
    def withheld(self) -> str:
        """Reason why the verdict about the tokenizers is withheld; empty if it is not."""
        if self.comparisons and not self.tested:
            return "; ".join(arm.barred for arm in self.arms if arm.barred)
        return next((comparison.withheld for comparison in self.tested.values() if comparison.withheld), "")

    @property
    def suspects(self) -> dict[str, float]:
        """Arms that save `SUSPICIOUS` more points of tokens on held-out than on training text, against the reference.

        Only of texts that a hash divided, in which all kinds of text have the same shares.
        """
        first, points = self.arms[0], dict[str, float]()
        for arm in self.arms[1:]:
            if arm.arm.settings.get("corpus.source") != "files" or arm.arm.settings["corpus.heldout_paths"]:
                continue
            pairs = [(arm.training.contents, first.training.contents), (arm.heldout.contents, first.heldout.contents)]
            if len({shards.corpus for pair in pairs for shards in pair}) == 1:
                train, heldout = (other.bytes_per_token / own.bytes_per_token for own, other in pairs)
                points[arm.label] = 100 * (train - heldout)
        return {label: value for label, value in points.items() if value >= SUSPICIOUS}

    @property
    def leader(self) -> ArmResult | None:
        """The only arm whose models have a lower loss than the reference's, or the reference if all others have a
        higher one, by the tested comparisons; None otherwise.
        """
        lower = [i for i, comparison in self.tested.items() if comparison.lower == "B"]
        if len(lower) == 1:
            return self.arms[lower[0]]
        all_worse = self.tested and all(comparison.lower == "A" for comparison in self.tested.values())
        return self.arms[0] if all_worse else None

    @property
    def winner(self) -> ArmResult | None:
        """The tokenizer that the comparisons with the reference single out; None if the verdict is withheld."""
        return None if self.withheld else self.leader


def scored(arm: Encoded, lms: Sequence[Artifact[TrainedModel]], artifacts: Sequence[Artifact[Scores]]) -> ArmResult:
    """Load the evaluations of an arm's models, one per model."""
    evaluations = [Evaluation.load(artifact.path) for artifact in artifacts]
    scores = Scores.load({**aggregate(evaluations), "cost": artifacts[0].contents.cost})
    return ArmResult(*arm, lms, artifacts, evaluations, evaluations, scores)


def _restricted(arm: ArmResult, documents: NDArray[np.bool_]) -> ArmResult:
    """The arm, compared on some of the held-out documents."""
    compared = [run.only(documents) for run in arm.evaluations]
    return dataclasses.replace(
        arm, compared=compared, scores=Scores.load({**aggregate(compared), "cost": arm.scores.cost})
    )
