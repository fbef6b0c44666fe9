"""Held-out loss of every run, and the comparison of the arms at every size and budget."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from experiments.cli.console import si
from experiments.results import Scores
from experiments.stages.comparison import Result, scored
from experiments.stages.heldout import groupings
from experiments.stages.plan import DEFAULT_DEPLOYMENT
from experiments.stages.shards import open_shards
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.deployment import inference_cost
from lm.evaluate.distributed import load_and_evaluate
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.config import BudgetConfig
    from experiments.results import HeldoutDocuments, Reading, TrainedModel
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from experiments.stages.shards import Encoded
    from experiments.store.artifacts import Artifact
    from lm.evaluate.config import EvalConfig
    from lm.evaluate.deployment import Deployment


def score(
    context: Context,
    settings: EvalConfig,
    device: str,
    run: Run,
    model: Artifact[TrainedModel],
    arm: Encoded,
    documents: Artifact[HeldoutDocuments],
) -> Artifact[Scores]:
    """Score a model on the held-out documents.

    Args:
        context: Context of the run.
        settings: How text is scored.
        device: Device of the model.
        run: The run.
        model: Its model.
        arm: Its tokenizer, and the held-out text that the tokenizer encoded.
        documents: Sources and scripts of the held-out documents.
    """
    scoring = dataclasses.asdict(settings)
    if not settings.weights:
        del scoring["weights"]  # evaluations that were made before this setting existed stay valid

    def build(folder: Path) -> Scores:
        shards = open_shards(arm.heldout, arm.arm)
        transformer, evaluation = load_and_evaluate(
            model.path,
            shards,
            arm.arm.tokenizer.token_byte_lengths(),
            settings,
            device=device,
            groups=groupings(documents, shards.document_bytes),
            progress=context.reporter.progress,
        )
        evaluation.save(folder)
        cost = inference_cost(
            transformer, bytes_per_token=arm.heldout.contents.bytes_per_token, context_bytes=settings.context_bytes
        )
        return Scores.load({**evaluation.summary(), "cost": cost})

    return context.make(
        f"evaluate {run}",
        Scores,
        "evaluation",
        config={**scoring, "version": FORMAT_VERSION},
        inputs={"lm": model.hash, "heldout": arm.heldout.hash, "documents": documents.hash},
        build=build,
        describe=lambda scores: f"{scores.bits_per_byte:.4f} bits per byte on {si(scores.n_bytes)}B",
        row=Scores.save,
    )


def compare(
    context: Context,
    text: Text,
    arms: Mapping[str, Encoded],
    models: Mapping[Run, Artifact[TrainedModel]],
    scores: Mapping[Run, Artifact[Scores]],
    budget: BudgetConfig,
    deployment: Deployment = DEFAULT_DEPLOYMENT,
) -> dict[tuple[int, int], Result]:
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
        result = Result.of(compared, budget, deployment)
        for (i, j), comparison in result.comparisons.items():
            names = {"a": compared[i].key, "b": compared[j].key, "layers": size, "budget": amount}
            context.tracker.log("comparison", {**names, **comparison.summary()})
        results[size, amount] = result
    return results


def check_heldout(corpus: str, arm: Encoded, models: Sequence[Artifact[TrainedModel]]) -> None:
    """Raise a UserError unless the manifests show that no model was trained on the text that it is scored on.

    A tokenizer that was trained elsewhere has no training record, so its training text is unknown.

    Args:
        corpus: Hash of the corpus; it determines which documents are held out.
        arm: The tokenizer of the models and its shards.
        models: The models to check.
    """
    training = [*arm.arm.reading, arm.training]
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
