"""The report as an artifact: one page, and the same numbers as JSON."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.report.comparison import render, version
from experiments.report.data import gather
from experiments.stages.evaluation import Result, of_seed
from experiments.stages.verdict import is_demonstration
from experiments.store.artifacts import Artifact, command_line
from tokenizer.durable import write_json, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.text import Text

PAGE, NUMBERS = "report.html", "report.json"


def report(context: Context, text: Text, counts: Artifact, result: Result) -> Artifact:
    """Write `report.html` and `report.json`."""

    def build(folder: Path) -> dict[str, Any]:
        first = [("corpus", text.artifact)] if text.artifact else []
        origin = provenance(
            result,
            [*first, ("count", counts)],
            corpus=[list(fact) for fact in text.facts],
            config=OmegaConf.to_yaml(OmegaConf.create(dataclasses.asdict(context.config))),
        )
        numbers = gather(
            result,
            context.config.report,
            demonstration=is_demonstration(context),
            provenance=origin,
            threads=context.config.runner.threads,
        )
        write_json(folder / NUMBERS, numbers)
        write_whole(folder / PAGE, render(numbers))
        return {"verdict": numbers["verdict"]}

    settings = dataclasses.asdict(context.config.report)
    inputs = {
        f"evaluation {of_seed(judged.candidate.trained, i).key}": artifact.hash
        for judged in result.judged
        for i, artifact in enumerate(judged.artifacts)
    }
    with context.reporter.stage("report"):
        artifact = context.store.make(
            "report",
            config={**settings, "demonstration": is_demonstration(context), "looks": version()},
            inputs={**inputs, "corpus": text.hash},
            build=build,
        )
    context.done("report", artifact, PAGE)
    return artifact


def provenance(
    result: Result, first: Iterable[tuple[str, Artifact]], *, corpus: list[list[str]], config: str
) -> dict[str, Any]:
    """Say where everything on a page came from.

    Args:
        result: The comparison.
        first: What was made before the tokenizers, with the names of the stages.
        corpus: Facts about it: names and values.
        config: Of the run or the runs, to be shown as it is.
    """
    stages = list(first)
    for judged in result.judged:
        candidate, key = judged.candidate, judged.candidate.trained.key
        training = [artifact for artifact in candidate.readers if artifact.manifest["stage"] == "shards"]
        stages += [
            (f"{key} training", candidate.trained.record),
            (f"{key} tokenizer", candidate.trained.artifact),
            *((f"{key} shards, training", artifact) for artifact in training),
            (f"{key} shards, held-out", candidate.heldout),
        ]
        for i, (model, evaluation) in enumerate(zip(candidate.lms, judged.artifacts, strict=True)):
            name = of_seed(candidate.trained, i).key
            stages += [(f"{name} language model", model), (f"{name} evaluation", evaluation)]
    rows: dict[str, dict[str, Any]] = {}
    for stage, artifact in stages:  # what several share is shown once
        rows.setdefault(
            artifact.name,
            {
                "stage": stage,
                "name": artifact.name,
                "hash": artifact.hash,
                **{key: artifact.manifest[key] for key in ("seconds", "peak_memory_bytes", "made", "command")},
            },
        )
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "corpus": corpus,
        "artifacts": list(rows.values()),
        "versions": result.judged[0].artifact.manifest["versions"],
        "platform": result.judged[0].artifact.manifest["platform"],
        "config": config,
    }
