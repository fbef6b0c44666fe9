"""Held-out loss of every model, and the comparison."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.cli.console import si
from experiments.stages import budget
from experiments.stages.documents import groupings
from experiments.stages.models import open_shards
from lm.evaluate.cost import FORMULAS, decode_seconds, inference_cost
from lm.evaluate.evaluation import FORMAT_VERSION, Comparison, Evaluation, aggregate, compare_all
from lm.evaluate.shared_evaluation import load_and_evaluate
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import Trained
    from experiments.store.artifacts import Artifact
    from lm.data.shards import Shards
    from lm.model.transformer import Transformer

# Tokens whose decoding is timed: the last eighth of the context, the same text for all tokenizers, and a small part of
# an evaluation's time.
_DECODED_SHARE, _MOST_DECODED = 8, 32


@dataclass(frozen=True)
class Candidate:
    """A tokenizer with everything that was made with it.

    Attributes:
        trained: The tokenizer.
        readers: Artifacts of all stages that read text on the way to the model.
        lms: The trained models, one per seed.
        heldout: The held-out text in its tokens.
    """

    trained: Trained
    readers: Sequence[Artifact]
    lms: Sequence[Artifact]
    heldout: Artifact

    @property
    def lm(self) -> Artifact:
        """The model of the first seed."""
        return self.lms[0]


@dataclass(frozen=True)
class Judged:
    """A candidate and its scores on held-out text.

    Attributes:
        candidate: It.
        artifacts: Of the evaluations, one per seed.
        evaluations: The same, loaded.
        summary: `lm.evaluate.evaluation.aggregate` of them, and `cost` (`lm.evaluate.cost`).
        downstream: Scores on tasks, where `experiments.downstream` measured any.
        series: What its run was told beside size and transition, where that tells tokenizers of several runs apart.
        partner: Place in the result of the BPE tokenizer that its run compared it with, where several runs did so.
    """

    candidate: Candidate
    artifacts: Sequence[Artifact]
    evaluations: Sequence[Evaluation]
    summary: dict[str, Any]
    downstream: Sequence[Mapping[str, Any]] = ()
    series: str = ""
    partner: int | None = None

    @property
    def artifact(self) -> Artifact:
        """The evaluation of the first seed."""
        return self.artifacts[0]


FEWEST_DOCUMENTS = 30
"""With fewer held-out documents (or sources) their resamples say too little about others: no verdict."""
FEWEST_SEEDS = 3
"""With fewer, a verdict is about these models, not about their tokenizers. (Two seeds make intervals of 12.7 standard
errors; three of 4.3.)"""


@dataclass(frozen=True)
class Result:
    """All candidates judged, each compared with each later one: `comparisons[0, 1]` is the second against the first.

    Attributes:
        judged: The candidates.
        comparisons: By their places in `judged`.
        fixed_baseline: Whether the first was chosen to measure the others by.
    """

    judged: Sequence[Judged]
    comparisons: Mapping[tuple[int, int], Comparison]
    fixed_baseline: bool = False

    @property
    def comparison(self) -> Comparison:
        """The second against the first."""
        return self.comparisons[0, 1]

    @property
    def ranked(self) -> list[int]:
        """Places of the candidates, the lowest loss first."""
        return sorted(range(len(self.judged)), key=lambda i: float(self.judged[i].summary["bits_per_byte"]))

    @property
    def pair(self) -> tuple[int, int]:
        """Which two the verdict's numbers are about: the best of all but the first, and what it is measured by.

        That is the baseline if one was chosen, else the BPE tokenizer of its own run, else the first tokenizer of its
        vocabulary's size: what differs beside phase 2 is not compared where it need not be.
        """
        best = next(i for i in self.ranked if i)
        partner = self.judged[best].partner
        if self.fixed_baseline or (partner is not None and partner < best):
            return (0 if self.fixed_baseline or partner is None else partner), best
        sizes = [judged.candidate.trained.tokenizer.vocab_size for judged in self.judged]
        base = sizes.index(sizes[best])
        return (base if base < best else 0), best

    @property
    def shown(self) -> Comparison:
        """The comparison of `pair`."""
        return self.comparisons[self.pair]

    @property
    def too_few(self) -> bool:
        """Whether there are too few documents for a verdict."""
        return min(self.comparison.n_documents, self.comparison.n_clusters) < FEWEST_DOCUMENTS

    @property
    def winner(self) -> Judged | None:
        """Who is better than everyone else, or None if the data cannot tell."""
        if self.too_few:
            return None
        for i, judged in enumerate(self.judged):
            against = [(pair, found.verdict) for pair, found in self.comparisons.items() if i in pair]
            if all(verdict == ("A better" if pair[0] == i else "B better") for pair, verdict in against):
                return judged
        return None


def of_seed(trained: Trained, number: int) -> Trained:
    """The tokenizer as it is called where a stage works on one of several seeds; the first keeps its name."""
    return dataclasses.replace(trained, key=f"{trained.key}-seed{number}") if number else trained


def evaluate(context: Context, text: Text, candidates: Sequence[Candidate], documents: Artifact) -> Result:
    """Score every candidate on the held-out documents, and compare.

    Args:
        context: Of the run.
        text: The corpus.
        candidates: The tokenizers and their models, of equally many seeds.
        documents: What `experiments.stages.documents.describe` found out about the held-out documents.

    Raises:
        UserError: If held-out text may have been trained on, or the models' training is not equal as the budget says.
    """
    for candidate in candidates:
        check_heldout(text.hash, candidate)
    for models in zip(*(candidate.lms for candidate in candidates), strict=True):
        budget.check(context, [budget.Amounts.of(model.contents) for model in models])
    judged = [_judge(context, candidate, documents) for candidate in candidates]
    comparisons = compare_all([each.evaluations for each in judged])
    for (i, j), comparison in comparisons.items():
        keys = [judged[k].candidate.trained.key for k in (i, j)]
        context.tracker.log("comparison", {"a": keys[0], "b": keys[1], **comparison.summary()})
    return Result(judged, comparisons)


def check_heldout(corpus: str, candidate: Candidate) -> None:
    """Raise a UserError unless the manifests show that no model ever saw the text that it is judged on.

    Counts that the user added up (`bpe.counts`) name no corpus: the count stage says that nothing checks them. Other
    text for phase 2 (`superbpe.sources`) names the corpus whose held-out documents were left out.

    Args:
        corpus: Hash of the corpus, which decides what is held out of it.
        candidate: What to check.
    """
    splits = [(artifact, "train") for artifact in candidate.readers] + [(candidate.heldout, "heldout")]
    for artifact, split in splits:
        if "mixture" in artifact.contents and artifact.contents.get("without_heldout_of") in (None, corpus):
            continue
        found = artifact.contents.get("corpus"), artifact.contents.get("split")
        if found != (corpus, split):
            raise UserError(
                f"{artifact.path} says that it read the {found[1]} split of corpus {str(found[0])[:12]}, not the "
                f"{split} split of {corpus[:12]}: held-out text may have been trained on; delete it and run again"
            )
    shards = [artifact.hash for artifact in candidate.readers if artifact.manifest["stage"] == "shards"]
    for model in candidate.lms:
        if [model.manifest["inputs"]["shards"]] != shards:
            raise UserError(f"{model.path} was trained on other shards than this experiment's; delete it and run again")


def _judge(context: Context, candidate: Candidate, documents: Artifact) -> Judged:
    artifacts = [
        _score(context, of_seed(candidate.trained, i), model, candidate.heldout, documents)
        for i, model in enumerate(candidate.lms)
    ]
    evaluations = [Evaluation.load(artifact.path) for artifact in artifacts]
    summary = aggregate(evaluations) | {"cost": artifacts[0].contents["cost"]}
    return Judged(candidate, artifacts, evaluations, summary)


def _score(context: Context, trained: Trained, model: Artifact, heldout: Artifact, documents: Artifact) -> Artifact:
    config = context.config.eval

    def build(folder: Path) -> dict[str, Any]:
        shards = open_shards(heldout, trained)
        transformer, evaluation = load_and_evaluate(
            model.path,
            shards,
            trained.tokenizer.token_byte_lengths(),
            config,
            device=context.config.lm.train.device,
            groups=groupings(documents, shards.document_bytes),
            progress=context.reporter.progress,
        )
        evaluation.save(folder)
        summary = evaluation.summary()
        return summary | {"cost": _cost(transformer, shards, summary["bytes_per_token"], config.context_bytes)}

    stage = f"evaluate {trained.key}"
    with context.reporter.stage(stage):
        artifact = context.store.make(
            "evaluation",
            config={**dataclasses.asdict(config), "version": FORMAT_VERSION},
            inputs={"lm": model.hash, "heldout": heldout.hash, "documents": documents.hash},
            build=build,
        )
    found = artifact.contents
    context.done(stage, artifact, f"{found['bits_per_byte']:.4f} bits per byte on {si(found['n_bytes'])}B", found)
    return artifact


def _cost(model: Transformer, shards: Shards, bytes_per_token: float, context_bytes: int) -> dict[str, Any]:
    """What inference costs, and how long a decoded token takes on this machine at the end of as long a context."""
    counted = inference_cost(model, bytes_per_token=bytes_per_token, context_bytes=context_bytes)
    cost = {**dataclasses.asdict(counted), "formulas": FORMULAS}
    n = min(model.context_tokens, shards.n_tokens, round(cost["context_tokens"]))
    if n < 2:
        return cost
    decoded = min(_MOST_DECODED, max(1, n // _DECODED_SHARE))
    seconds = decode_seconds(model, shards.tokens(0, n), tokens=decoded)
    device = next(model.parameters()).device
    return cost | {"decode_seconds_per_byte": seconds / bytes_per_token, "decode_device": str(device)}
