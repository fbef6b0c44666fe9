"""The report as an artifact: one HTML page, and its numbers as JSON."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.findings.compared import Findings
from experiments.report.comparison_page import version, write
from experiments.report.data import gather
from experiments.results import Folder
from experiments.store.artifacts import Artifact
from experiments.store.manifest import command_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.corpus import Text
    from lm.evaluate.deployment import Deployment

PAGE, NUMBERS = "report.html", "report.json"


def report(
    context: Context, deployment: Deployment, text: Text, result: Findings, config: Mapping[str, Any]
) -> Artifact[Folder]:
    """Write `report.html`, `report.json` and `differences.csv`.

    Args:
        context: Context of the run.
        deployment: The model that will be deployed.
        text: The corpus.
        result: The comparison.
        config: The configuration of the run, which the report shows.
    """

    def build(folder: Path) -> Folder:
        origin = provenance(
            result,
            [text.artifact] if text.artifact else [],
            corpus=[list(fact) for fact in text.facts],
            config=OmegaConf.to_yaml(OmegaConf.create(dict(config))),
        )
        numbers = gather(
            result, deployment=deployment, provenance=origin, command=command_line(), threads=context.runner.threads
        )
        write(folder, "report", numbers)
        return Folder()

    arms = [[arm.key, arm.label] for arm in result.arms]  # their order, too: differences are from the first
    inputs = {
        f"evaluation {arm.key}, model {i}": artifact.hash
        for arm in result.arms
        for i, artifact in enumerate(arm.artifacts)
    }
    tuning = {"tuning": [of_arm and of_arm.save() for of_arm in result.tuning]} if any(result.tuning) else {}
    luck = {"luck": [of_arm and of_arm.save() for of_arm in result.luck]} if any(result.luck) else {}
    rate = {} if result.exchange is None else {"rate": list(result.exchange.measure(result.arms[0].compared))}
    overlap = {} if result.overlap is None else {"contamination": result.overlap.hash}
    return context.make(
        "report",
        Folder,
        "report",
        config={
            "arms": arms,
            "deployment": dataclasses.asdict(deployment),
            "looks": version(),
            **tuning,
            **luck,
            **rate,
        },
        inputs={**inputs, "corpus": text.hash, **overlap},
        build=build,
        describe=lambda _: PAGE,
    )


def provenance(
    result: Findings, first: Sequence[Artifact[Any]], *, corpus: list[list[str]], config: str
) -> dict[str, Any]:
    """Describe how everything on a page was made.

    Args:
        result: The comparison.
        first: Artifacts made before the tokenizers.
        corpus: Facts about the corpus, as (name, value).
        config: Configuration of the run or runs, shown verbatim.
    """
    artifacts = {artifact.name: ("", artifact) for artifact in first}
    for arm in result.arms:
        shards = [arm.heldout] if arm.training is None else [arm.training, arm.heldout]
        for artifact in (*arm.reading, arm.artifact, *shards, *arm.lms, *arm.artifacts):
            artifacts.setdefault(artifact.name, (arm.key, artifact))  # one that several arms share is shown once
    origin = result.arms[0].artifacts[0].manifest
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "corpus": corpus,
        "artifacts": [
            {
                "arm": arm,
                "name": name,
                "hash": artifact.hash,
                "made": artifact.manifest.made,
                "seconds": artifact.manifest.seconds,
                "peak_memory_bytes": artifact.manifest.peak_memory_bytes,
            }
            for name, (arm, artifact) in artifacts.items()
        ],
        "versions": origin.versions,
        "platform": origin.platform,
        "config": config,
    }
