"""Held-out loss of every model, and the comparison of the arms."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from experiments.cli.console import si
from experiments.config import part
from experiments.results import InferenceCost, Scores
from experiments.stages import budget
from experiments.stages.comparison import ArmModels, ArmResult, Result, of_seed, scored
from experiments.stages.documents import groupings
from experiments.stages.models import open_shards
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.config import EvalConfig
from lm.evaluate.deployment import inference_cost
from lm.evaluate.distributed import load_and_evaluate
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.results import HeldoutDocuments, Reading, ShardsFolder, TrainedModel
    from experiments.stages.context import Context
    from experiments.stages.text import Text
    from experiments.stages.tokenizers import ArmTokenizer
    from experiments.store.artifacts import Artifact


def evaluate(
    context: Context, text: Text, arms: Sequence[ArmModels], documents: Artifact[HeldoutDocuments], rung: str = ""
) -> Result:
    """Score every arm's models on the held-out documents, and compare the arms.

    Args:
        context: Context of the run.
        text: The corpus.
        arms: The tokenizers and their models, with the same number of seeds each; the reference comes first.
        documents: Sources and scripts of the held-out documents.
        rung: Name of the rung of the ladder of budgets, if there are several.

    Raises:
        UserError: If held-out text may have been trained on, or the models were not trained on equal budgets.
    """
    for arm in arms:
        check_heldout(text.hash, arm)
    for models in zip(*(arm.lms for arm in arms), strict=True):
        budget.check(context, [budget.Amounts.of(model.contents.summary) for model in models])
    results = [_score_seeds(context, arm, documents, rung) for arm in arms]
    result = Result.of(results, fixed_reference=True)
    for (i, j), comparison in result.comparisons.items():
        names = {"a": results[i].key, "b": results[j].key, "train_bytes": context.config.budget.train_bytes}
        context.tracker.log(f"comparison/{rung}" if rung else "comparison", {**names, **comparison.summary()})
    return result


def check_heldout(corpus: str, arm: ArmModels) -> None:
    """Raise a UserError unless the manifests show that no model was trained on the text that it is scored on.

    Counts from files (`bpe.counts`) name no corpus: the count stage warns that they are not checked. Separate text for
    phase 2 (`superbpe.sources`) names the corpus whose held-out documents were excluded. A tokenizer that was trained
    elsewhere has no training record, so its training text is unknown.

    Args:
        corpus: Hash of the corpus; it determines which documents are held out.
        arm: The arm to check.
    """
    for artifact, split in [*((artifact, "train") for artifact in arm.reading), (arm.heldout, "heldout")]:
        read: Reading = artifact.contents
        if read.mixture is not None and read.without_heldout_of in (None, corpus):
            continue
        if (read.corpus, read.split) != (corpus, split):
            raise UserError(
                f"{artifact.path} was made from the {read.split} split of corpus {str(read.corpus)[:12]}, not from the "
                f"{split} split of {corpus[:12]}: held-out text may have been trained on; delete it and run again"
            )
    for model in arm.lms:
        if model.manifest.inputs["shards"] != arm.training.hash:
            raise UserError(f"{model.path} was trained on other shards than this experiment's; delete it and run again")


def _score_seeds(context: Context, arm: ArmModels, documents: Artifact[HeldoutDocuments], rung: str) -> ArmResult:
    artifacts = [
        score(context, of_seed(arm.arm, i), model, arm.heldout, documents, rung) for i, model in enumerate(arm.lms)
    ]
    return scored(arm, artifacts)


def score(
    context: Context,
    arm: ArmTokenizer,
    model: Artifact[TrainedModel],
    heldout: Artifact[ShardsFolder],
    documents: Artifact[HeldoutDocuments],
    rung: str = "",
) -> Artifact[Scores]:
    """Score a model on the held-out documents.

    Args:
        context: Context of the run.
        arm: The model's tokenizer.
        model: The model.
        heldout: The held-out documents, encoded by the tokenizer.
        documents: Their sources and scripts.
        rung: As for `evaluate`.
    """
    config = part(EvalConfig, context.config.eval)

    def build(folder: Path) -> Scores:
        shards = open_shards(heldout, arm)
        transformer, evaluation = load_and_evaluate(
            model.path,
            shards,
            arm.tokenizer.token_byte_lengths(),
            config,
            device=context.config.lm.train.device,
            groups=groupings(documents, shards.document_bytes),
            progress=context.reporter.progress,
        )
        evaluation.save(folder)
        counted = inference_cost(
            transformer, bytes_per_token=heldout.contents.bytes_per_token, context_bytes=config.context_bytes
        )
        cost = InferenceCost(**dataclasses.asdict(counted))
        return Scores.load({**evaluation.summary(), "cost": cost})

    stage = f"evaluate {arm.key} {rung}".rstrip()
    with context.reporter.stage(stage):
        artifact = context.store.make(
            Scores,
            "evaluation",
            config={**dataclasses.asdict(config), "version": FORMAT_VERSION},
            inputs={"lm": model.hash, "heldout": heldout.hash, "documents": documents.hash},
            build=build,
        )
    found = artifact.contents
    context.done(stage, artifact, f"{found.bits_per_byte:.4f} bits per byte on {si(found.n_bytes)}B", found.save())
    return artifact
