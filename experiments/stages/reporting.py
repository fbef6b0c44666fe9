"""The report as an artifact: one HTML page, and its numbers as JSON."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.config import recorded
from experiments.report.comparison_page import render, version
from experiments.report.data import gather
from experiments.report.figures import to_csv
from experiments.results import ReportFolder
from experiments.stages.comparison import ArmResult, Result, of_seed
from experiments.store.artifacts import Artifact
from experiments.store.manifest import command_line
from tokenizer.durable import write_json, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.text import Text

PAGE, NUMBERS, DIFFERENCES = "report.html", "report.json", "differences.csv"


def report(context: Context, text: Text, result: Result) -> Artifact[ReportFolder]:
    """Write `report.html`, `report.json` and `differences.csv`."""

    def build(folder: Path) -> ReportFolder:
        origin = provenance(
            result,
            [("corpus", text.artifact)] if text.artifact else [],
            corpus=[list(fact) for fact in text.facts],
            config=OmegaConf.to_yaml(OmegaConf.create(recorded(context.config))),
        )
        numbers = gather(
            result,
            context.config.report,
            provenance=origin,
            command=command_line(),
            threads=context.config.runner.threads,
        )
        write_json(folder / NUMBERS, numbers)
        write_whole(folder / DIFFERENCES, to_csv(numbers["differences"]))
        write_whole(folder / PAGE, render(numbers))
        return ReportFolder(verdict=numbers["verdict"])

    settings = dataclasses.asdict(context.config.report)
    arms = [[each.key, each.label] for each in result.arms]  # their order, too: differences are from the first
    inputs = {
        f"evaluation {of_seed(each.arm, i).key}": artifact.hash
        for each in result.arms
        for i, artifact in enumerate(each.artifacts)
    }
    tuning = {"tuning": [each.save() for each in result.tuning]} if result.tuning else {}
    overlap = {} if result.overlap is None else {"contamination": result.overlap.hash}
    with context.reporter.stage("report"):
        artifact = context.store.make(
            ReportFolder,
            "report",
            config={**settings, "arms": arms, "looks": version(), **tuning},
            inputs={**inputs, "corpus": text.hash, **overlap},
            build=build,
        )
    context.done("report", artifact, PAGE)
    return artifact


def provenance(
    result: Result, first: Iterable[tuple[str, Artifact[Any]]], *, corpus: list[list[str]], config: str
) -> dict[str, Any]:
    """Describe how everything on a page was made.

    Args:
        result: The comparison.
        first: Artifacts made before the tokenizers, with the names of their stages.
        corpus: Facts about the corpus, as (name, value).
        config: Configuration of the run or runs, shown verbatim.
    """
    rows: dict[str, dict[str, Any]] = {}
    for stage, artifact in [*first, *(made for each in result.arms for made in _made(each))]:
        manifest = artifact.manifest
        row = {
            "stage": stage,
            "kind": manifest.stage,
            "name": artifact.name,
            "hash": artifact.hash,
            "seconds": manifest.seconds,
            "peak_memory_bytes": manifest.peak_memory_bytes,
            "made": manifest.made,
            "command": manifest.command,
        }
        rows.setdefault(artifact.name, row)  # an artifact that several arms share is shown once
    origin = result.arms[0].artifacts[0].manifest
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "corpus": corpus,
        "artifacts": list(rows.values()),
        "versions": origin.versions,
        "platform": origin.platform,
        "config": config,
    }


def _made(each: ArmResult) -> list[tuple[str, Artifact[Any]]]:
    """All artifacts of one arm, with the names of their stages."""
    arm, key = each.arm, each.key
    found: list[tuple[str, Artifact[Any] | None]] = [
        ("count", arm.counts),
        (f"{key} training", arm.record),
        (f"{key} tokenizer", arm.artifact),
        (f"{key} shards, training", each.training),
        (f"{key} shards, held-out", each.heldout),
    ]
    for i, (model, evaluation) in enumerate(zip(each.lms, each.artifacts, strict=True)):
        name = of_seed(arm, i).key
        found += [(f"{name} language model", model), (f"{name} evaluation", evaluation)]
    return [(stage, artifact) for stage, artifact in found if artifact is not None]
