"""Held-out loss of every model, and the comparison."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lm.evaluation
from experiments.console import duration, si
from experiments.stages import budget
from experiments.stages.models import open_shards
from lm.evaluation import Comparison, Evaluation
from lm.training import load_model
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from experiments.artifacts import Artifact
    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import Trained


@dataclass(frozen=True)
class Candidate:
    """A tokenizer with everything that was made with it.

    Attributes:
        trained: The tokenizer.
        readers: Artifacts of all stages that read text on the way to the model.
        lm: The trained model.
        heldout: The held-out text in its tokens.
    """

    trained: Trained
    readers: Sequence[Artifact]
    lm: Artifact
    heldout: Artifact


@dataclass(frozen=True)
class Judged:
    """A candidate and its scores on held-out text."""

    candidate: Candidate
    artifact: Artifact
    evaluation: Evaluation
    summary: dict[str, Any]


FEWEST_DOCUMENTS = 30
"""With fewer held-out documents their resamples say too little about others: no verdict."""


@dataclass(frozen=True)
class Result:
    """All candidates judged; the comparison is the second against the first."""

    judged: Sequence[Judged]
    comparison: Comparison

    @property
    def too_few(self) -> bool:
        """Whether there are too few documents for a verdict."""
        return self.comparison.n_documents < FEWEST_DOCUMENTS

    @property
    def winner(self) -> Judged | None:
        """Who is better, or None if the data cannot tell."""
        if self.too_few:
            return None
        return {"A better": self.judged[0], "B better": self.judged[1]}.get(self.comparison.verdict)


def evaluate(context: Context, text: Text, candidates: Sequence[Candidate]) -> Result:
    """Score every candidate on the held-out documents, and compare.

    Raises:
        UserError: If held-out text may have been trained on, or the models' training is not equal as the budget says.
    """
    for candidate in candidates:
        check_heldout(text.hash, candidate)
    models = [candidate.lm.contents for candidate in candidates]
    budget.check(context, [budget.Amounts.of(model) for model in models])
    judged = [_score(context, candidate) for candidate in candidates]
    comparison = lm.evaluation.compare(judged[0].evaluation, judged[1].evaluation)
    context.tracker.log("comparison", comparison.summary())
    return Result(judged, comparison)


def check_heldout(corpus: str, candidate: Candidate) -> None:
    """Raise a UserError unless the manifests show that a model never saw the text that it is judged on.

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
    if [candidate.lm.manifest["inputs"]["shards"]] != shards:
        raise UserError(
            f"{candidate.lm.path} was trained on other shards than this experiment's; delete it and run again"
        )


def show(context: Context, result: Result) -> None:
    """Print the result: the table, the verdict and what it is worth."""
    for judged in result.judged:
        flops = judged.candidate.lm.contents["flops"]
        context.tracker.log(f"result/{judged.candidate.trained.key}", {**judged.summary, "flops": flops})
    context.reporter.say("")
    labels = [judged.candidate.trained.label for judged in result.judged]
    context.reporter.table(f"Held-out text, {equal(context)}", ["", *labels, "change"], _table(result))
    context.reporter.say(verdict(result), style="bold")
    context.reporter.say(detail(result))
    if is_demonstration(context):
        context.reporter.say(
            "A demonstration, not evidence: models this small, trained for minutes, say nothing about yours.",
            style="yellow",
        )
    context.tracker.summary(
        {f"{j.candidate.trained.key}/bits_per_byte": j.summary["bits_per_byte"] for j in result.judged}
    )


def _table(result: Result) -> list[list[str]]:
    """One row per quantity, so that the table fits a narrow terminal."""
    summaries = [judged.summary for judged in result.judged]
    models = [judged.candidate.lm.contents for judged in result.judged]
    tokenizers = [judged.candidate.trained.tokenizer for judged in result.judged]

    def row(name: str, values: Sequence[float], form: Callable[[float], str], *, compared: bool = True) -> list[str]:
        return [name, *map(form, values), percent(values[1], values[0]) if compared else ""]

    intervals = [summary["bits_per_byte_interval"] for summary in summaries]
    return [
        row("vocabulary", [t.vocab_size for t in tokenizers], "{:,}".format, compared=False),
        row("superwords", [len(t.superword_ids()) for t in tokenizers], "{:,}".format, compared=False),
        row("bytes per token", [s["bytes_per_token"] for s in summaries], "{:.3f}".format),
        row("bits per byte", [s["bits_per_byte"] for s in summaries], "{:.4f}".format),
        [
            f"{100 * result.comparison.confidence:g} % interval",
            *(f"{i[0]:.4f}–{i[1]:.4f}" if i else "–" for i in intervals),
            "",
        ],
        row("training bytes", [m["bytes"] for m in models], si),
        row("training steps", [m["steps"] for m in models], "{:,}".format),
        row("training tokens", [m["tokens"] for m in models], si),
        row("training FLOPs", [m["flops"] for m in models], si),
        row("training time", [m["seconds"] for m in models], duration),
    ]


def equal(context: Context) -> str:
    """Return what the models' training has in common, in words."""
    what = context.config.budget.mode.removeprefix("equal_")
    return f"equal {'FLOPs' if what == 'flops' else what} of training" + (" text" if what == "bytes" else "")


def percent(value: float, base: float) -> str:
    """Format a relative change with its sign."""
    return f"{100 * (value / base - 1):+.1f} %".replace("-", "−")


def is_demonstration(context: Context) -> bool:
    """Return whether the result is no evidence: as configured, or by how little text the models read."""
    configured = context.config.report.demonstration
    return context.config.budget.train_bytes < 100_000_000 if configured is None else configured


def verdict(result: Result) -> str:
    """Return the result in a sentence."""
    first, second = (judged.candidate.trained.label for judged in result.judged)
    if result.too_few:
        return (
            f"Too few held-out documents to tell {first} and {second} apart: {result.comparison.n_documents}, "
            f"and it takes {FEWEST_DOCUMENTS}."
        )
    if result.winner is None:
        return f"No significant difference between {first} and {second} in how well they predict held-out text."
    other = next(judged for judged in result.judged if judged is not result.winner)
    difference = abs(result.comparison.difference) / other.summary["bits_per_byte"]
    winner, loser = result.winner.candidate.trained.label, other.candidate.trained.label
    return f"{winner} predicts held-out text better than {loser}: {difference:.2%} fewer bits per byte."


def detail(result: Result) -> str:
    """Return the difference with its uncertainty."""
    first, second = (judged.candidate.trained.label for judged in result.judged)
    sizes = [judged.candidate.trained.tokenizer.vocab_size for judged in result.judged]
    unequal = "" if sizes[0] == sizes[1] else f" The vocabularies differ: {sizes[0]:,} and {sizes[1]:,} tokens."
    compared = result.comparison
    shown = f"{second} − {first} = {signed(compared.difference)} bits per byte"
    if compared.interval is None:
        return f"{shown}; one document allows no interval.{unequal}"
    low, high = compared.interval
    return (
        f"{shown}, {100 * compared.confidence:g} % interval {signed(low)} to {signed(high)} (paired bootstrap "
        f"over {compared.n_documents:,} held-out documents; one training run each, so the spread between seeds is "
        f"not in it).{unequal}"
    )


def signed(value: float) -> str:
    """Format a difference of bits per byte with its sign."""
    return f"{value:+.4f}".replace("-", "−")


def _score(context: Context, candidate: Candidate) -> Judged:
    trained, config = candidate.trained, context.config.eval

    def build(folder: Path) -> dict[str, Any]:
        evaluation = lm.evaluation.evaluate(
            load_model(candidate.lm.path, context.config.lm.train.device),
            open_shards(candidate.heldout, trained),
            trained.tokenizer.token_byte_lengths(),
            config,
            progress=context.reporter.progress,
        )
        evaluation.save(folder)
        return evaluation.summary()

    stage = f"evaluate {trained.key}"
    with context.reporter.stage(stage):
        artifact = context.store.make(
            "evaluation",
            config=dataclasses.asdict(config),
            inputs={"lm": candidate.lm.hash, "heldout": candidate.heldout.hash},
            build=build,
        )
    evaluation = Evaluation.load(artifact.path)
    summary = evaluation.summary()
    context.done(stage, artifact, f"{summary['bits_per_byte']:.4f} bits per byte on {si(summary['n_bytes'])}B", summary)
    return Judged(candidate, artifact, evaluation, summary)
