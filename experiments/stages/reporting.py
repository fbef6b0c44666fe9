"""The report as an artifact: one page, and the same numbers as JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from experiments.artifacts import Artifact, write_json
from experiments.report.comparison import render, version
from experiments.report.comparison import render, version
from experiments.report.data import gather
from experiments.stages.evaluation import Result, of_seed
from experiments.stages.verdict import is_demonstration

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.stages.context import Context
    from experiments.stages.text import Text

PAGE, NUMBERS = "report.html", "report.json"


def report(context: Context, text: Text, counts: Artifact, result: Result) -> Artifact:
    """Write `report.html` and `report.json`."""

    def build(folder: Path) -> dict[str, Any]:
        numbers = gather(context, text, counts, result)
        write_json(folder / NUMBERS, numbers)
        (folder / PAGE).write_text(render(numbers), encoding="utf-8")
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
