"""Arms with their models and scores, and the comparisons between them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from experiments.findings.further import luck_of
from experiments.findings.next_step import FROM_ELSEWHERE
from experiments.results import ArmRecord, ComparisonRecord, Scores
from experiments.stages.plan import DEFAULT_DEPLOYMENT, Amounts, reasons_unequal
from experiments.stages.shards import EncodedArm
from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.comparison import (
    Comparison,
    Decision,
    Exchange,
    Trade,
    aggregate,
    compare_all,
    eligible,
)
from lm.train.summary import load_learned
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.config import BudgetConfig
    from experiments.results import Contamination, Luck, Reading, TrainedModel, Tuning
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.store.artifacts import Artifact
    from lm.evaluate.deployment import Deployment

SUSPICIOUS = 3.0
"""Points by which an arm may save more tokens on held-out than on training text, relative to the reference."""
ABOUT_AS_GOOD = 0.01
"""Learning rates whose loss is higher than the best one's by at most this share may as well have been chosen."""
NO_DIFFERENCE = 1e-3
"""Relative difference between amounts of training that no loss shows."""
LARGEST_SMALLER = 0.5
"""Largest share of a budget at which the reference shows what training compute is worth."""
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
        untraced: Why it is unknown whether its tokenizer was trained on the held-out text; empty if it is known.
    """

    lms: Sequence[Artifact[TrainedModel]]
    artifacts: Sequence[Artifact[Scores]]
    evaluations: Sequence[Evaluation]
    compared: Sequence[Evaluation]
    scores: Scores
    barred: str = ""
    untraced: str = ""

    @property
    def trained_here(self) -> bool:
        """Whether the models were trained by this program, so that their training is known."""
        return all(model.contents.summary is not None for model in self.lms)

    def untrained(self) -> NDArray[np.bool_]:
        """bool[vocab_size], tokens of text that were never a target in the training of one of its models."""
        found = np.zeros(self.tokenizer.vocab_size, bool)
        for model in self.lms:
            learned = load_learned(model.folder)  # without verifying the weights beside it
            if learned is not None:
                found |= ~learned
        found[np.setdiff1d(np.arange(len(found)), self.tokenizer.text_ids())] = False
        return found

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
        tuning: For each arm, the choice of its learning rates; None if they were not tuned.
        luck: For each arm, its recipe on halves of the training text, if that was measured.
        at_text: The comparisons at equal training text, keyed alike; empty if they are not measured.
        at_compute: Those at equal FLOPs of training the deployed model; empty if they are not measured.
        exchange: What training compute is worth, by which one follows from the other; None if it is not measured.
        deployment: The model that will be deployed.
    """

    arms: Sequence[ScoredArm]
    comparisons: Mapping[tuple[int, int], Comparison]
    documents: NDArray[np.bool_] | None = None
    left_out: str = ""
    overlap: Artifact[Contamination] | None = None
    tuning: Sequence[Tuning | None] = ()
    luck: Sequence[Luck | None] = ()
    at_text: Mapping[tuple[int, int], Comparison] = field(default_factory=dict)
    at_compute: Mapping[tuple[int, int], Comparison] = field(default_factory=dict)
    exchange: Exchange | None = None
    deployment: Deployment = DEFAULT_DEPLOYMENT

    @classmethod
    def of(
        cls,
        arms: Sequence[ScoredArm],
        budget: BudgetConfig | None,
        deployment: Deployment = DEFAULT_DEPLOYMENT,
        *,
        smaller: ScoredArm | None = None,
        tuning: Sequence[Tuning | None] = (),
        luck: Sequence[Luck | None] = (),
        overlap: Artifact[Contamination] | None = None,
    ) -> Findings:
        """Compare all arms that may take part in verdicts, and show the others.

        These are arms of equal budgets (`reasons_unequal`) that `lm.evaluate.comparison.eligible` admits.

        Args:
            arms: The arms, as returned by `scored`.
            budget: What is equal between the models, within which tolerance; None if that is not known.
            deployment: The model that will be deployed.
            smaller: The reference at a smaller budget, which shows what training compute is worth; None without one.
            tuning: For each arm, the choice of its learning rates; None if they were not tuned.
            luck: For each arm, its recipe on halves of the training text, if that was measured.
            overlap: Overlap of the held-out documents with the training text, if it was measured.
        """
        alone = cls(arms, {}, overlap=overlap, tuning=tuning, luck=luck, deployment=deployment)
        if len(arms) < 2:
            return alone
        # Bytes and tokenizers from elsewhere keep their own variance between seeds.
        trained = [arm.record is not None for arm in arms]
        known = all(arm.trained_here for arm in arms)
        unequal: Sequence[str] = ()
        if known and budget is not None:
            models = [(arm.label, arm.tokenizer.vocab_size, [lm.contents.trained for lm in arm.lms]) for arm in arms]
            unequal = reasons_unequal(models, budget, deployment)
        eligibility = eligible([arm.evaluations for arm in arms], [arm.label for arm in arms], trained, unequal)
        arms = [dataclasses.replace(arm, barred=reason) for arm, reason in zip(arms, eligibility.reasons, strict=True)]
        exchange = _exchange(arms[0], smaller, deployment) if known and budget is not None else None
        if eligibility.note:
            arms = [_restricted(arm, eligibility.documents) for arm in arms]
            exchange = exchange and exchange.only(eligibility.documents)
        weights = arms[0].evaluations[0].config.weights
        further = luck_of(luck, weights)._replace(rates=rate_changes(tuning))
        runs = [arm.compared for arm in arms]
        measured = compare_all(runs, eligibility, further=further)

        def traded(quantity: str) -> Mapping[tuple[int, int], Comparison]:
            """The comparisons where this quantity of training is equal for all arms."""
            if budget is None:
                return {}
            if not known:
                return measured if budget.mode == f"equal_{quantity}" else {}
            amounts = [_mean_amount(arm, deployment, quantity) for arm in arms]
            e_folds = [math.log(amount / amounts[0]) for amount in amounts]
            if budget.mode == f"equal_{quantity}" or max(map(abs, e_folds)) < NO_DIFFERENCE:
                return measured
            if exchange is None:
                return {}
            return compare_all(runs, eligibility, further=further, trade=Trade(exchange, e_folds))

        return dataclasses.replace(
            alone,
            arms=arms,
            comparisons=measured,
            documents=eligibility.documents if eligibility.note else None,
            left_out=eligibility.note,
            at_text=traded("bytes"),
            at_compute=traded("deployed_flops"),
            exchange=exchange,
        )

    def compute_e_folds(self, arm: int) -> float:
        """The ln of the FLOPs of training the deployed model with an arm over the reference's, on equal text."""
        costs = [
            _mean_amount(self.arms[i], self.deployment, "deployed_flops")
            / _mean_amount(self.arms[i], self.deployment, "bytes")
            for i in (0, arm)
        ]
        return math.log(costs[1] / costs[0])

    @property
    def trained_here(self) -> bool:
        """Whether all models were trained by this program, so that their training is known."""
        return all(arm.trained_here for arm in self.arms)

    @property
    def as_given(self) -> bool:
        """Whether models are compared as given: then serving is priced by the shape of each, not the deployed one."""
        return not self.trained_here or any(arm.settings.get("recipe") == FROM_ELSEWHERE for arm in self.arms)

    @property
    def demonstration(self) -> bool:
        """Whether the models are known to have read too little text for evidence about tokenizers."""
        return self.trained_here and any(arm.lm.contents.trained.bytes < LEAST_EVIDENCE for arm in self.arms)

    @property
    def seed_seconds(self) -> float:
        """Time to train the models of one seed of all arms; 0 if it is unknown."""
        return self.trained_here and sum(
            fmean(model.contents.trained.seconds for model in arm.lms) for arm in self.arms
        )

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
            pairs = [
                (arm.trained_on.contents, first.trained_on.contents),
                (arm.heldout.contents, first.heldout.contents),
            ]
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


def _mean_amount(arm: ScoredArm, deployment: Deployment, quantity: str) -> float:
    """A quantity (attribute of `Amounts`) that the arm's models trained on, on average over the seeds."""
    vocab_size = arm.tokenizer.vocab_size
    amounts = [Amounts.of(model.contents.trained, deployment, vocab_size) for model in arm.lms]
    return fmean(getattr(amount, quantity) for amount in amounts)


def _exchange(reference: ScoredArm, smaller: ScoredArm | None, deployment: Deployment) -> Exchange | None:
    """The exchange rate of the reference's models: as stated, or between two budgets; None if it is unknown."""
    if deployment.rate is not None:
        return Exchange(stated=deployment.rate)
    if smaller is None or len(smaller.lms) != len(reference.lms):
        return None
    flops = [fmean(model.contents.trained.flops for model in arm.lms) for arm in (reference, smaller)]
    return Exchange(smaller.evaluations, math.log(flops[0] / flops[1]))


def rate_changes(tuning: Sequence[Tuning | None]) -> dict[tuple[int, int], float]:
    """Largest change of each difference, in points, over factors with which both arms are about as good as at best."""
    runs = [[] if arm is None else arm.runs for arm in tuning]
    losses = [{run.factor: run.bits_per_byte for run in arm if run.bits_per_byte is not None} for arm in runs]
    changes = {}
    for (i, one), (j, other) in itertools.combinations(enumerate(losses), 2):
        if not one or not other:
            continue
        best = min(one.values()), min(other.values())
        near = [
            (one[factor] / best[0], other[factor] / best[1])
            for factor in one.keys() & other.keys()
            if one[factor] <= best[0] * (1 + ABOUT_AS_GOOD) and other[factor] <= best[1] * (1 + ABOUT_AS_GOOD)
        ]
        changes[i, j] = max((100 * abs(math.log(b / a)) for a, b in near), default=0.0)
    return changes


def _restricted(arm: ScoredArm, documents: NDArray[np.bool_]) -> ScoredArm:
    """The arm, compared on some of the held-out documents."""
    compared = [run.only(documents) for run in arm.evaluations]
    return dataclasses.replace(
        arm, compared=compared, scores=Scores.load({**aggregate(compared), "cost": arm.scores.cost})
    )


def compare_rungs(
    context: Context,
    text: Text,
    arms: Mapping[str, EncodedArm],
    models: Mapping[Run, Artifact[TrainedModel]],
    scores: Mapping[Run, Artifact[Scores]],
    budget: BudgetConfig,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
    tuning: Mapping[int, Sequence[Tuning]] | None = None,
    luck: Mapping[str, Luck] | None = None,
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
        tuning: For each size, the choices of the arms' learning rates, if they were tuned.
        luck: The recipes of the arms on halves of the training text, where that was measured.

    Returns:
        The comparison of each size and budget, in the order of the runs.

    Raises:
        UserError: If held-out text may have been trained on.
    """
    results: dict[tuple[int, int], Findings] = {}
    for size, amount in dict.fromkeys((run.size, run.budget) for run in models):
        rung = {
            name: [run for run in models if (run.arm, run.size, run.budget) == (name, size, amount)] for name in arms
        }
        compared = []
        for name, arm in arms.items():
            trained = [models[run] for run in rung[name]]
            check_heldout(text.hash, arm, trained)
            compared.append(scored(arm, trained, [scores[run] for run in rung[name]]))
        below = [other for of_size, other in results if of_size == size and other <= amount * LARGEST_SMALLER]
        result = Findings.of(
            compared,
            budget,
            deployment,
            smaller=results[size, max(below)].arms[0] if below else None,
            tuning=(tuning or {}).get(size, ()),
            luck=[luck.get(name) for name in arms] if luck else (),
        )
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
    training = [*arm.reading, arm.trained_on]
    for artifact, split in [*((artifact, "train") for artifact in training), (arm.heldout, "heldout")]:
        read: Reading = artifact.contents
        if (read.corpus, read.split) != (corpus, split):
            raise UserError(
                f"{artifact.path} was made from the {read.split} split of corpus {str(read.corpus)[:12]}, not from the "
                f"{split} split of {corpus[:12]}: held-out text may have been trained on; delete it and run again"
            )
    for model in models:
        if model.manifest.inputs["shards"] != arm.trained_on.hash:
            raise UserError(f"{model.path} was trained on other shards than this experiment's; delete it and run again")


def record(result: Findings) -> ComparisonRecord:
    """Return the record of a comparison: the numbers of every arm, with differences from the first."""
    rows = []
    none = [None] * len(result.arms)
    for (place, arm), tuning, luck in zip(
        enumerate(result.arms), result.tuning or none, result.luck or none, strict=True
    ):
        compared = result.comparisons.get((0, place))
        training, counts = arm.record, arm.counts
        rows.append(
            ArmRecord(
                key=arm.key,
                label=arm.label,
                tokenizer=arm.artifact.name,
                training=None if training is None else training.name,
                counts=None if counts is None else counts.name,
                shards=None if arm.training is None else arm.training.name,
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
                untraced=arm.untraced,
                tuning=tuning,
                luck=luck,
            )
        )
    return ComparisonRecord(arms=rows, confidence=result.arms[0].scores.confidence)
