"""Held-out loss of every run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from experiments.numbers import si
from experiments.results import Scores
from experiments.stages.heldout import groupings
from experiments.stages.shards import open_shards
from lm.evaluate.bits_per_byte import FORMAT_VERSION
from lm.evaluate.deployment import inference_cost, shape_of
from lm.evaluate.distributed import load_and_evaluate
from lm.evaluate.evaluation import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from experiments.results import HeldoutDocuments, TrainedModel
    from experiments.stages.context import Context
    from experiments.stages.shards import EncodedArm
    from experiments.store.artifacts import Artifact
    from lm.evaluate.config import EvalConfig
    from lm.evaluate.deployment import Deployment
    from lm.evaluate.forward import ScorableModel


def score(
    context: Context,
    settings: EvalConfig,
    model: Artifact[TrainedModel],
    arm: EncodedArm,
    documents: Artifact[HeldoutDocuments],
    *,
    name: str,
    device: str,
    opened: Callable[[], tuple[ScorableModel, Deployment]] | None = None,
) -> Artifact[Scores]:
    """Score a model on the held-out documents.

    Args:
        context: Context of the run.
        settings: How text is scored.
        model: The model.
        arm: Its tokenizer, and the held-out text that the tokenizer encoded.
        documents: Sources and scripts of the held-out documents.
        name: Name of the model as shown to the user.
        device: Device of the model.
        opened: Loads a model from elsewhere, with its shape; None for a model that was trained here.
    """

    def build(folder: Path) -> Scores:
        shards = open_shards(arm.heldout, arm)
        lengths = arm.tokenizer.token_byte_lengths()
        progress = context.reporter.progress
        groups = groupings(documents, shards.document_bytes)
        if opened is None:
            transformer, evaluation = load_and_evaluate(
                model.path, shards, lengths, settings, device=device, groups=groups, progress=progress
            )
            shape = shape_of(transformer, settings.context_bytes)
            n_rows = transformer.lm_head.weight.shape[0]
        else:
            scorable, shape = opened()
            shape = dataclasses.replace(shape, context_bytes=settings.context_bytes)
            n_rows = scorable.vocab_size
            evaluation = evaluate(
                scorable, shards, lengths, settings, groups=groups, progress=progress, note=context.reporter.note
            )
        evaluation.save(folder)
        cost = inference_cost(shape, vocab_size=n_rows, bytes_per_token=arm.heldout.contents.bytes_per_token)
        return Scores.load({**evaluation.summary(), "cost": cost})

    return context.make(
        f"evaluate {name}",
        Scores,
        "evaluation",
        config={**dataclasses.asdict(settings), "version": FORMAT_VERSION, "token_nats": True},
        inputs={"lm": model.hash, "heldout": arm.heldout.hash, "documents": documents.hash},
        build=build,
        describe=lambda scores: f"{scores.bits_per_byte:.4f} bits per byte on {si(scores.n_bytes)}B",
        row=Scores.save,
    )
