"""Arms with their models and scores, and the comparisons between them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from experiments.results import ArmRecord, ComparisonRecord, Scores
from experiments.stages.plan import DEFAULT_DEPLOYMENT, reasons_unequal
from experiments.stages.shards import EncodedArm
from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.comparison import Comparison, Decision, aggregate, compare_all, eligible
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from experiments.config import BudgetConfig
    from experiments.results import Contamination, Reading, TrainedModel, Tuning
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from lm.evaluate.deployment import Deployment

SUSPICIOUS = 3.0
"""Points by which an arm may save more tokens on held-out than on training text, relative to the reference."""
LEAST_EVIDENCE = 99_000_000
"""Models that read fewer bytes of text are a demonstration."""


@dataclass(frozen=True, kw_only=True)
class ScoredArm(EncodedArm):
    """An arm with its trained models and their scores on held-out text.

    Attributes:
        lms: The trained models, one per seed.
        artifacts: The evaluations, one per seed.
        evaluations: The loaded evaluations, one per seed.
        compared: The evaluations on the documents that the arms are compared on (`Findings.documents`).
        scores: Scores over all seeds, on the same documents.
        barred: Why the arm takes part in no verdict; empty if it does.
    """

    lms: Sequence[Artifact[TrainedModel]]
    artifacts: Sequence[Artifact[Scores]]
    evaluations: Sequence[Evaluation]
    compared: Sequence[Evaluation]
    scores: Scores
    barred: str = ""

    @property
    def lm(self) -> Artifact[TrainedModel]:
        """The model of the first seed."""
        return self.lms[0]


@dataclass(frozen=True)
class Findings:
    """All arms with their scores, and all pairwise comparisons, of which those with the reference decide.

    Attributes:
        arms: The arms; the first is the reference.
        comparisons: Keyed by indices into `arms`: `[0, 1]` compares the second arm with the first.
        documents: bool[n_documents]: the held-out documents that the arms are compared on; None for all.
        left_out: A sentence about the other documents; empty if there are none.
        overlap: Overlap of the held-out documents with the training text, if it was measured.
        tuning: For each arm, the choice of its learning rates, if they were tuned.
    """

    arms: Sequence[ScoredArm]
    comparisons: Mapping[tuple[int, int], Comparison]
    documents: NDArray[np.bool_] | None = None
    left_out: str = ""
    overlap: Artifact[Contamination] | None = None
    tuning: Sequence[Tuning] = ()

    @classmethod
    def of(
        cls, arms: Sequence[ScoredArm], budget: BudgetConfig, deployment: Deployment = DEFAULT_DEPLOYMENT, **more: Any
    ) -> Findings:
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
        trained = [arm.record is not None for arm in arms]
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
            if arm.settings.get("corpus.source") != "files" or arm.settings["corpus.heldout_paths"]:
                continue
            pairs = [(arm.training.contents, first.training.contents), (arm.heldout.contents, first.heldout.contents)]
            if len({shards.corpus for pair in pairs for shards in pair}) == 1:
                train, heldout = (other.bytes_per_token / own.bytes_per_token for own, other in pairs)
                points[arm.label] = 100 * (train - heldout)
        return {label: value for label, value in points.items() if value >= SUSPICIOUS}

    @property
    def leader(self) -> ScoredArm | None:
        """The only arm whose models have a lower loss than the reference's, or the reference if all others have a
        higher one, by the tested comparisons; None otherwise.
        """
        lower = [i for i, comparison in self.tested.items() if comparison.decision is Decision.BETTER]
        if len(lower) == 1:
            return self.arms[lower[0]]
        all_worse = self.tested and all(comparison.decision is Decision.WORSE for comparison in self.tested.values())
        return self.arms[0] if all_worse else None

    @property
    def winner(self) -> ScoredArm | None:
        """The tokenizer that the comparisons with the reference single out; None if the verdict is withheld."""
        return None if self.withheld else self.leader


def scored(arm: EncodedArm, lms: Sequence[Artifact[TrainedModel]], artifacts: Sequence[Artifact[Scores]]) -> ScoredArm:
    """Load the evaluations of an arm's models, one per model."""
    evaluations = [Evaluation.load(artifact.path) for artifact in artifacts]
    scores = Scores.load({**aggregate(evaluations), "cost": artifacts[0].contents.cost})
    return ScoredArm(
        **vars(arm), lms=lms, artifacts=artifacts, evaluations=evaluations, compared=evaluations, scores=scores
    )


def _restricted(arm: ScoredArm, documents: NDArray[np.bool_]) -> ScoredArm:
    """The arm, compared on some of the held-out documents."""
    compared = [run.only(documents) for run in arm.evaluations]
    return dataclasses.replace(
        arm, compared=compared, scores=Scores.load({**aggregate(compared), "cost": arm.scores.cost})
    )


def compare_runs(
    context: Context,
    text: Text,
    arms: Mapping[str, EncodedArm],
    models: Mapping[Run, Artifact[TrainedModel]],
    scores: Mapping[Run, Artifact[Scores]],
    budget: BudgetConfig,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> dict[tuple[int, int], Findings]:
    """Compare the arms at every size and budget.

    Args:
        context: Context of the run.
        text: The corpus.
        arms: The tokenizers and their shards by name; the reference comes first.
        models: The models of all runs.
        scores: Their scores.
        budget: The budgets.
        deployment: The model that will be deployed.

    Returns:
        The comparison of each size and budget, in the order of the runs.

    Raises:
        UserError: If held-out text may have been trained on.
    """
    results = {}
    for size, amount in dict.fromkeys((run.size, run.budget) for run in models):
        rung = {
            name: [run for run in models if (run.arm, run.size, run.budget) == (name, size, amount)] for name in arms
        }
        compared = []
        for name, arm in arms.items():
            trained = [models[run] for run in rung[name]]
            check_heldout(text.hash, arm, trained)
            compared.append(scored(arm, trained, [scores[run] for run in rung[name]]))
        result = Findings.of(compared, budget, deployment)
        for (i, j), comparison in result.comparisons.items():
            names = {"a": compared[i].key, "b": compared[j].key, "layers": size, "budget": amount}
            context.tracker.log("comparison", {**names, **comparison.summary()})
        results[size, amount] = result
    return results


def check_heldout(corpus: str, arm: EncodedArm, models: Sequence[Artifact[TrainedModel]]) -> None:
    """Raise a UserError unless the manifests show that no model was trained on the text that it is scored on.

    A tokenizer that was trained elsewhere has no training record, so its training text is unknown.

    Args:
        corpus: Hash of the corpus; it determines which documents are held out.
        arm: The tokenizer of the models and its shards.
        models: The models to check.
    """
    training = [*arm.reading, arm.training]
    for artifact, split in [*((artifact, "train") for artifact in training), (arm.heldout, "heldout")]:
        read: Reading = artifact.contents
        if (read.corpus, read.split) != (corpus, split):
            raise UserError(
                f"{artifact.path} was made from the {read.split} split of corpus {str(read.corpus)[:12]}, not from the "
                f"{split} split of {corpus[:12]}: held-out text may have been trained on; delete it and run again"
            )
    for model in models:
        if model.manifest.inputs["shards"] != arm.training.hash:
            raise UserError(f"{model.path} was trained on other shards than this experiment's; delete it and run again")


def record(result: Findings) -> ComparisonRecord:
    """Return the record of a comparison: the numbers of every arm, with differences from the first."""
    rows = []
    for place, arm in enumerate(result.arms):
        compared = result.comparisons.get((0, place))
        training, counts = arm.record, arm.counts
        rows.append(
            ArmRecord(
                key=arm.key,
                label=arm.label,
                tokenizer=arm.artifact.name,
                training=None if training is None else training.name,
                counts=None if counts is None else counts.name,
                shards=arm.training.name,
                heldout=arm.heldout.name,
                lms=[artifact.name for artifact in arm.lms],
                evaluations=[artifact.name for artifact in arm.artifacts],
                vocab_size=arm.tokenizer.vocab_size,
                bytes_per_token=arm.scores.bytes_per_token,
                bits_per_byte=arm.scores.bits_per_byte,
                interval=arm.scores.bits_per_byte_interval,
                percent=None if compared is None else compared.percent,
                percent_interval=None if compared is None else compared.interval,
                verdict="" if compared is None else compared.verdict,
                withheld=arm.barred if compared is None else compared.withheld,
                settings=arm.settings,
            )
        )
    return ComparisonRecord(arms=rows, confidence=result.arms[0].scores.confidence)
