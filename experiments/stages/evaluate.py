"""Held-out loss of every run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from experiments.numbers import si
from experiments.results import Scores
from experiments.stages.heldout import groupings
from experiments.stages.shards import open_shards
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.deployment import inference_cost
from lm.evaluate.distributed import load_and_evaluate

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.results import HeldoutDocuments, TrainedModel
    from experiments.runs import Run
    from experiments.stages.context import Context
    from experiments.stages.shards import EncodedArm
    from experiments.store.artifacts import Artifact
    from lm.evaluate.config import EvalConfig


def score(
    context: Context,
    settings: EvalConfig,
    device: str,
    run: Run,
    model: Artifact[TrainedModel],
    arm: EncodedArm,
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
        shards = open_shards(arm.heldout, arm)
        transformer, evaluation = load_and_evaluate(
            model.path,
            shards,
            arm.tokenizer.token_byte_lengths(),
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
