"""The arms over several budgets of training compute, priced at a deployment: measurements, tables, and the page."""

from __future__ import annotations

import dataclasses
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from experiments import deployments
from experiments.config import BudgetConfig
from experiments.findings.compared import rate_changes
from experiments.findings.further import luck_of
from experiments.findings.next_step import Step, next_step
from experiments.findings.verdict import at_scale, decisions, statements, worth_headline
from experiments.progress import Reporter
from experiments.report.combining import stored_rungs, tolerance_of
from experiments.results import plain
from experiments.shell import with_plain_keys
from experiments.stages.heldout import check_weights
from experiments.store import records
from experiments.store.artifacts import Store
from experiments.store.manifest import command_line
from lm.bits import bits
from lm.evaluate.bits_per_byte import KIND, SOURCE, SamplingUnits
from lm.evaluate.comparison import eligible
from lm.evaluate.config import EvalConfig
from lm.evaluate.deployment import training_flops
from lm.scaling.measured import read_points
from lm.scaling.points import Points
from lm.scaling.pricing import Study
from lm.train.config import TrainConfig, trained_steps
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.findings.compared import Findings, ScoredArm
    from experiments.stages.context import Context
    from experiments.store.records import Record
    from lm.evaluate.deployment import Deployment

PAGE, NUMBERS = "ladder.html", "ladder.json"
DEPLOYED = "equal_deployed_flops"
"""The budget mode whose budgets are equal at the deployment."""


class Assumptions(NamedTuple):
    """Assumptions that can change after the measurements.

    Attributes:
        deployment: The model that will be deployed.
        weights: Weights of the kinds of text, as `EvalConfig.weights`; empty for those of the run.
    """

    deployment: Deployment
    weights: Mapping[str, float] = MappingProxyType({})


def study(
    rungs: Sequence[Findings],
    chosen: Assumptions,
    *,
    tolerance: float,
    equal_at: Deployment | None = None,
) -> tuple[Study, str]:
    """Compare arms that may take part in verdicts over their budgets, and show the others.

    Args:
        rungs: The arms at every budget, smallest first; the first arm is the reference.
        chosen: Assumptions that can change after the measurements.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        equal_at: The deployment whose training FLOPs the arms' budgets equalize; None if these are the models' own.

    Returns:
        The comparison, and sentences about documents that are left out for all arms and about the budgets, or "".

    Raises:
        UserError: If the arms cannot be compared.
    """
    arms = list(zip(*(result.arms for result in rungs), strict=True))
    trained = [arm[0].record is not None for arm in arms]
    evaluations = [[evaluation for budget in arm for evaluation in budget.evaluations] for arm in arms]
    eligibility = eligible(evaluations, rungs[0].labels, trained)

    def points(arm: Sequence[ScoredArm], barred: str) -> Points:
        losses = [[evaluation.only(eligibility.documents) for evaluation in budget.evaluations] for budget in arm]
        tokens, vocab_size = losses[0][0], arm[0].tokenizer.vocab_size
        proxy, read = _spent(arm, tokens.bytes_per_token)
        flops = proxy
        if equal_at is not None and read is not None:
            flops = [training_flops(equal_at, vocab_size=vocab_size, tokens=t, n_bytes=b) for t, b in read]
        seeds = [model.contents.seed for model in arm[0].lms]
        return Points(
            name=arm[0].label,
            vocab_size=vocab_size,
            flops=flops,
            seeds=[place if seed is None else seed for place, seed in enumerate(seeds)],
            unit_tokens=base.clustered(tokens.document_tokens).astype(np.int64),
            nats=np.array([[base.clustered(run.text_nats) for run in budget] for budget in losses]).swapaxes(0, 1),
            barred=barred,
            pooled=arm[0].record is not None,
            superwords=len(arm[0].tokenizer.superword_ids()) > 0,
            read=read,
            proxy_flops=proxy,
        )

    # One division into units for all arms: a tokenizer that loses text may give equal tokens to different texts.
    base = evaluations[0][0].only(eligibility.documents)
    if chosen.weights:
        check_weights(base.groups.get(KIND), chosen.weights)
        base = dataclasses.replace(base, config=dataclasses.replace(base.config, weights=dict(chosen.weights)))
    measured = [points(arm, barred) for arm, barred in zip(arms, eligibility.reasons, strict=True)]
    rates = rate_changes(rungs[0].tuning)
    further = luck_of(rungs[0].luck, base.config.weights)._replace(rates=rates)
    compared = Study(measured, base.units(), base.cluster()[0], tolerance, base.config.confidence, further)
    priced = ""
    if equal_at is not None:
        priced = "The budgets are equal in the FLOPs of training the deployed model."
    elif all(map(compared.on_equal_text, measured)):
        priced = "At each budget, all models read the same amount of text; FLOPs are the reference's."
    return compared, " ".join(filter(None, [eligibility.note, priced]))


def _spent(arm: Sequence[ScoredArm], bytes_per_token: float) -> tuple[list[float], list[tuple[float, float]] | None]:
    """Training FLOPs of each budget, and the tokens and bytes that its models read; None if these are unknown.

    They are measured, or as stated for models from elsewhere.
    """
    if all(budget.trained_here for budget in arm):
        budgets = [[model.contents.trained for model in budget.lms] for budget in arm]
        return (
            [fmean(run.flops for run in budget) for budget in budgets],
            [(fmean(run.tokens for run in budget), fmean(run.bytes for run in budget)) for budget in budgets],
        )
    if not all("train_flops" in budget.settings for budget in arm):
        raise UserError(f"the training compute of {arm[0].label} is unknown; add the column train_flops to the table")
    read = [budget.settings["train_bytes"] for budget in arm if "train_bytes" in budget.settings]
    flops = [budget.settings["train_flops"] for budget in arm]
    return flops, [(size / bytes_per_token, size) for size in read] if len(read) == len(flops) else None


def _seed_seconds(arm: Sequence[ScoredArm]) -> float:
    """Time to train the models of one seed at all budgets, which may share a trunk; 0 if that is unknown."""
    if not all(budget.trained_here for budget in arm):
        return 0.0
    configs = [TrainConfig(**budget.lm.contents.trained.run["train"]) for budget in arm]
    longest = fmean(model.contents.trained.seconds for model in arm[-1].lms)
    return longest * trained_steps(configs) / configs[-1].steps


def assumptions(settings: Sequence[str]) -> Assumptions:
    """Read settings: `deployment=NAME`, `deployment.KEY=VALUE`, `eval.weights={KIND: 0.4}`.

    Raises:
        UserError: If a key or a value is wrong.
    """
    deployed: list[str] = []
    weights: dict[str, float] = {}
    for text in settings:
        if text.startswith(("deployment=", "deployment.")):
            deployed.append(text)
        elif text.startswith(("eval.weights=", "eval.weights.")):
            try:
                override = OverridesParser.create().parse_override(with_plain_keys(text))
                kind, value = override.key_or_group.removeprefix("eval.weights")[1:], cast("Any", override.value())
                weights |= {str(name): float(weight) for name, weight in ({kind: value} if kind else value).items()}
            except (HydraException, AttributeError, TypeError, ValueError):
                raise UserError(f"{text}: write eval.weights={{KIND: NUMBER}}, with ASCII names") from None
        else:
            raise UserError(f"{text}: write deployment=NAME, deployment.KEY=VALUE or eval.weights={{KIND: 0.4}}")
    return Assumptions(_deployment(deployed), EvalConfig(weights=weights).weights)


def deployment_of(run: Record) -> Deployment:
    """Deployment that the command of a run chose. A record is data: it is not composed, and names no variables."""
    return _deployment([text for text in run.overrides if text.lstrip("+").startswith("deployment")])


def _deployment(settings: Sequence[str]) -> Deployment:
    """The deployment of `deployment=NAME` and `deployment.KEY=VALUE`, in any order."""
    words = [text.lstrip("+").removeprefix("deployment")[1:] for text in settings]
    return deployments.read(sorted(words, key=lambda word: "=" in word))


def reprice(
    folder: Path, settings: Sequence[str], out: Path, *, artifacts: str | None = None, tolerance: float | None = None
) -> Step | None:
    """Compare the arms of a finished run under other assumptions, as `show` does. Nothing is trained or scored.

    Returns what would settle what is open.

    Args:
        folder: Folder of a run with `budget.ladder`.
        settings: Assumptions that replace those of the run, see `assumptions`.
        out: Folder of the page and its numbers.
        artifacts: Folder of the artifacts; None for the folder where the run stored them.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget; None for that of the run.

    Raises:
        UserError: If the settings are wrong, or the run has no measurements at several budgets.
    """
    if not (folder / records.FILE).is_file():
        raise UserError(f"{folder / records.FILE} does not exist; name the folder of a run under outputs/")
    run = records.load(folder / records.FILE)
    if not run.rungs:
        raise UserError(f"{folder} has no finished ladder of budgets; run it with budget.ladder=[0.1,0.3]")
    values = {text.partition("=")[0].lstrip("+"): text for text in run.overrides}
    replaced = {text.partition("=")[0] for text in settings}
    # The run's own deployment, unless another one is chosen.
    keys = [] if "deployment" in replaced else [key for key in values if key.partition(".")[0] == "deployment"]
    chosen = assumptions([*(values[key] for key in keys if key not in replaced), *settings])
    accepted = tolerance or tolerance_of(run)
    store = Store.at(artifacts or run.store)
    rungs = stored_rungs(run.rungs, store)
    return _compare(Reporter(), rungs, chosen, deployment_of(run), accepted, command=run.command, run=folder, out=out)


def compare_points(path: Path, settings: Sequence[str], out: Path, *, tolerance: float | None = None) -> None:
    """Compare arms that were measured elsewhere, from a table (`lm.scaling.measured`), on the page of a ladder.

    Args:
        path: The table.
        settings: Assumptions, see `assumptions`.
        out: Folder of the page and its numbers.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.

    Raises:
        UserError: If the table or the settings are wrong.
    """
    arms, sizes, sources = read_points(path)
    chosen = assumptions(settings)
    check_weights(sources, chosen.weights)
    # Nothing says which of the columns are kinds of text, so all are drawn from the same text.
    units = SamplingUnits.of(sizes, sources, chosen.weights)._replace(strata=np.zeros(len(sizes), np.int64))
    compared = Study(arms, units, SOURCE, tolerance or BudgetConfig.tolerance, EvalConfig().confidence)
    _write(Reporter(), out, path, compared, chosen)


def show(
    context: Context, rungs: Sequence[Findings], deployment: Deployment, tolerance: float, folder: Path
) -> Step | None:
    """Compare the arms of a run: tables and sentences, and the page in the folder of the run.

    Returns the change to the run that would settle what is open; None if nothing is open or comparable.

    Args:
        context: Context of the run.
        rungs: The comparison at every budget, smallest first.
        deployment: The model that will be deployed.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        folder: Folder of the run.
    """
    reporter = context.reporter
    chosen = Assumptions(deployment)
    try:
        return _compare(reporter, rungs, chosen, deployment, tolerance, command=command_line(), run=folder, out=folder)
    except UserError as error:
        reporter.say(f"No comparison over compute: {error}", style="yellow")
        return None


def _compare(
    reporter: Reporter,
    rungs: Sequence[Findings],
    chosen: Assumptions,
    configured: Deployment,
    tolerance: float,
    *,
    command: str,
    run: Path,
    out: Path,
) -> Step | None:
    """Compare the arms of a run under assumptions; `configured` is the deployment at which they were trained."""
    settings = rungs[0].arms[0].settings
    equal_at = configured if settings.get("budget.mode") == DEPLOYED else None
    compared, note = study(rungs, chosen, tolerance=tolerance, equal_at=equal_at)
    seconds = sum(map(_seed_seconds, zip(*(result.arms for result in rungs), strict=True)))
    step = next_step(compared.gaps, settings, command, seconds)
    _write(reporter, out, run, compared, chosen, note=note, step=step)
    return step


def _write(
    reporter: Reporter,
    out: Path,
    run: Path,
    compared: Study,
    chosen: Assumptions,
    *,
    note: str = "",
    step: Step | None = None,
) -> None:
    """Write the page and its numbers, and print the result."""
    from experiments.report import ladder_page  # imports Altair, which is slow

    numbers = describe(compared, chosen, note=note, step=step, run=str(run))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / NUMBERS, numbers)
    write_whole(out / PAGE, ladder_page.render(numbers, compared))
    reporter.table(ladder_page.loss_table(numbers))
    for gap in numbers["gaps"]:
        for statement in gap["statements"]:
            reporter.say(f"{gap['arm']} against {gap['reference']}: {statement}.")
    for sentence in (note, _deployment_text(chosen.deployment), numbers["worth"]):
        if sentence:
            reporter.say(sentence, style="bold")
    if numbers["at_scale"]:
        reporter.say(numbers["at_scale"])
    reporter.say(f"over compute: {out / PAGE}")


def _deployment_text(deployed: Deployment) -> str:
    """The deployment whose serving decides what is worth it."""
    return (
        f"Deployed: {deployed.n_layers} layers of width {deployed.hidden_size:,} at a context of "
        f"{deployed.context_bytes:,} bytes, with {deployed.rho:g} times the FLOPs of training for serving."
    )


def describe(
    study: Study, chosen: Assumptions, *, note: str = "", step: Step | None = None, run: str = ""
) -> dict[str, Any]:
    """All numbers and sentences at a deployment, JSON-able."""
    priced = study.at(chosen.deployment)
    reference = study.arms[0].name
    losses = [bits(study.units.average(arm.nats).mean(axis=0)) for arm in study.arms]
    pairs = list(zip(study.gaps, priced[1:], strict=True))
    return {
        "title": f"{len(study.arms)} tokenizers over compute",
        "run": run,
        "reference": reference,
        "deployment": dataclasses.asdict(chosen.deployment),
        "weights": dict(chosen.weights),
        "confidence": study.confidence,
        "note": note,
        "at_scale": at_scale(max(study.arms[0].spent), superwords=any(arm.superwords for arm in study.arms)),
        "pooled": list(next((gap.pooled for gap in study.gaps if gap.pooled), ())),
        "arms": [
            {
                "name": arm.name,
                "barred": arm.barred,
                "tokens_per_byte": tokens,
                "flops": list(map(float, arm.flops)),
                "bits_per_byte": loss.tolist(),
                "spent": list(map(float, arm.spent)),
                "deployed_flops": list(map(float, price.training)),
                "cost": plain(price.cost),
                "relative_cost": dict(price.relative),
                "equivalent": plain(dict(price.equivalents)),
            }
            for arm, tokens, loss, price in zip(study.arms, study.tokens_per_byte(), losses, priced, strict=True)
        ],
        "gaps": [
            {**plain(gap), "withheld": gap.withheld, "statements": statements(gap), "decisions": decisions(gap)}
            for gap, _ in pairs
        ],
        "worth": worth_headline({gap.arm: price.equivalents["decode"] for gap, price in pairs}, reference) + ".",
        "next": None if step is None else step._asdict(),
    }
