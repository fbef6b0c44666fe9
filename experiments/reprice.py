"""Compares the arms of a ladder of budgets under other assumptions: `superbpe compare RUN KEY=VALUE...`.

Nothing is trained or scored again. Settings are those of the model that will be deployed (`deployment=dense-70b`,
`deployment.rho=4.5`, `deployment.context_bytes=262144`), `average=macro` for equal shares of all sources, and
`shares.NAME=0.4` for the share of one source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from experiments.cli.console import Reporter
from experiments.config import check_choice
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.stages.ladder import Measurements
    from experiments.store.runs import Run
    from lm.evaluate.deployment import Deployment
    from lm.scaling.ladder import Average


def reprice(
    folder: Path, settings: Sequence[str], out: Path, *, artifacts: str | None = None, tolerance: float | None = None
) -> None:
    """Compare the arms of a ladder of budgets under other assumptions; write the page and print the result.

    Args:
        folder: Folder of a run with `budget.ladder`.
        settings: `KEY=VALUE`, see `assumptions`.
        out: Folder for `ladder.html`, `ladder.json` and `ladder.csv`.
        artifacts: Folder of the artifacts; None for the folder where the run stored them.
        tolerance: Accepted relative difference in training FLOPs at a budget; None for that of the run.

    Raises:
        UserError: If the run has no ladder, or a setting is wrong.
    """
    from experiments.stages import ladder

    record = find(folder)
    own = {key: text for text in record.overrides for key in [text.partition("=")[0].lstrip("+")]}
    given = {_divided(text)[0] for text in settings}
    # The run's own deployment, unless another one is chosen.
    usual = [text for key, text in own.items() if key.partition(".")[0] == "deployment" and "deployment" not in given]
    chosen = assumptions([*(text for text in usual if text.partition("=")[0] not in given), *settings])
    ladder.compare(
        Reporter(),
        out,
        load(record, artifacts),
        chosen.deployment,
        origin=ladder.Origin(folder, record.command),
        average=chosen.average,
        shares=chosen.shares,
        tolerance=tolerance or float(own.get("budget.tolerance", "=0.01").partition("=")[2]),
        confidence=record.rungs[0].confidence,
    )


def _divided(text: str) -> tuple[str, str, str]:
    """Divide `KEY=VALUE`; the name of a source may contain `=`."""
    return text.rpartition("=") if text.startswith("shares.") else text.partition("=")


class Assumptions(NamedTuple):
    """What can be changed after the measurements."""

    deployment: Deployment
    average: Average
    shares: dict[str, float]


def assumptions(settings: Sequence[str]) -> Assumptions:
    """Read `KEY=VALUE` settings.

    Raises:
        UserError: If a key or a value is wrong.
    """
    from experiments.cli.compose import load as compose
    from lm.scaling.ladder import Average

    average, shares, deployment = "micro", {}, []
    for text in settings:
        key, equals, value = _divided(text)
        group, _, name = key.partition(".")
        if not equals or group not in ("deployment", "average", "shares"):
            raise UserError(f"{text}: write deployment=NAME, deployment.KEY=VALUE, average=macro or shares.SOURCE=0.4")
        if group == "deployment":
            deployment.append(text)
        elif group == "average":
            check_choice("average", value, get_args(Average))
            average = value
        else:
            try:
                shares[name] = float(value)
            except ValueError:
                raise UserError(f"{text}: the share of a source is a number between 0 and 1") from None
    return Assumptions(compose(deployment).deployment, cast("Average", average), shares)


def find(folder: Path) -> Run:
    """Return the record of a finished run with a ladder of budgets.

    Raises:
        UserError: If the folder has no such run.
    """
    from experiments.store import runs

    if not (folder / runs.RECORD).is_file():
        raise UserError(f"{folder / runs.RECORD} does not exist; name the folder of a run under outputs/")
    record = runs.load(folder / runs.RECORD)
    if not record.rungs:
        raise UserError(f"{folder} has no finished ladder of budgets; run it with budget.ladder=[0.1,0.3]")
    return record


def load(record: Run, artifacts: str | None = None) -> Measurements:
    """Return the measurements of a run.

    Args:
        record: Result of `find`.
        artifacts: Folder of the artifacts; None for the folder where the run stored them.

    Raises:
        UserError: If an artifact is missing.
    """
    from experiments.results import Scores, TrainedModel
    from experiments.stages.advice import cost_of
    from experiments.stages.ladder import Measurements, by_depth, measured, units
    from experiments.store.artifacts import Store
    from lm.evaluate.bits_per_byte import Evaluation

    store = Store.at(artifacts or record.store)
    depths: dict[int | None, list[Any]] = {}
    first: Evaluation | None = None
    summaries: list[list[Any]] = []
    for depth, own in by_depth(record.rungs).items():
        depths[depth] = []
        summaries.append([])
        for place, arm in enumerate(own[0].arms):
            rungs = []
            for rung in own:
                models = store.open_all(rung.arms[place].lms, TrainedModel)
                scores = store.open_all(rung.arms[place].evaluations, Scores)
                evaluations = [Evaluation.load(each.path) for each in scores]
                first = first or evaluations[0]
                rungs.append(list(zip((model.contents for model in models), evaluations, strict=True)))
            depths[depth].append(measured(arm.label, arm.vocab_size, rungs))
            summaries[-1].append([[model.summary for model, _ in rung] for rung in rungs])
    assert first is not None
    cost = cost_of(summaries, record.rungs[0].arms[0].settings, record.budgets, record.budget_unit)
    return Measurements(depths, *units(first), cost)
