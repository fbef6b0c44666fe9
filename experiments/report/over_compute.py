"""The arms over several budgets of training compute, priced at a deployment: measurements, tables, and the page."""

from __future__ import annotations

import dataclasses
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.config import BudgetConfig
from experiments.fertility.measures import deployment
from experiments.findings.compared import rate_changes
from experiments.findings.further import luck_of
from experiments.findings.next_step import Step, next_step
from experiments.findings.verdict import at_scale, decisions, statements, worth_headline
from experiments.progress import Reporter
from experiments.report.combining import tolerance_of
from experiments.results import Folder, Luck, Scores, TrainedModel, Tuning, plain
from experiments.store import records
from experiments.store.artifacts import Store
from experiments.store.manifest import command_line
from lm.bits import bits
from lm.evaluate.bits_per_byte import SOURCE, Evaluation, Grouping, sampling_units
from lm.evaluate.comparison import eligible
from lm.evaluate.config import EvalConfig
from lm.evaluate.deployment import training_flops
from lm.scaling.measured import read_points
from lm.scaling.points import HeldOut, Points
from lm.scaling.pricing import Study
from lm.train.config import TrainConfig, trained_steps
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError
from tokenizer.external.load import load_saved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from experiments.results import ComparisonRecord
    from experiments.stages.context import Context
    from experiments.store.records import Record
    from lm.evaluate.deployment import Deployment

PAGE, NUMBERS = "ladder.html", "ladder.json"
DEPLOYED = "equal_deployed_flops"
"""The budget mode whose budgets are equal at the deployment."""


class ArmRuns(NamedTuple):
    """Models of one arm.

    Attributes:
        label: Label of the arm.
        vocab_size: Size of its vocabulary.
        budgets: For every budget, smallest first, the model of each seed and its evaluation.
        trained: Whether its tokenizer was trained here, so that the variance of its seeds may be pooled.
        superwords: Whether its tokenizer has superwords.
        tuning: The choice of its learning rates; None if they were not tuned.
        luck: Its recipe on halves of the training text; None if that was not measured.
        stated: For every budget, what is stated of the training of models from elsewhere: `train_flops` and, if it is
            known, `train_bytes`.
    """

    label: str
    vocab_size: int
    budgets: Sequence[Sequence[tuple[TrainedModel, Evaluation]]]
    trained: bool = False
    superwords: bool = False
    tuning: Tuning | None = None
    luck: Luck | None = None
    stated: Sequence[Mapping[str, float]] = ()


class Assumptions(NamedTuple):
    """Assumptions that can change after the measurements.

    Attributes:
        deployment: The model that will be deployed.
        shares: Shares of sources that are set by hand.
    """

    deployment: Deployment
    shares: Mapping[str, float] | None = None


def study(
    arms: Sequence[ArmRuns],
    chosen: Assumptions,
    *,
    tolerance: float,
    confidence: float,
    equal_at: Deployment | None = None,
) -> tuple[Study, str]:
    """Compare arms that may take part in verdicts over their budgets, and show the others.

    Args:
        arms: The arms; the first is the reference.
        chosen: Assumptions that can change after the measurements.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        confidence: Confidence level.
        equal_at: The deployment whose training FLOPs the arms' budgets equalize; None if these are the models' own.

    Returns:
        The comparison, and sentences about documents that are left out for all arms and about the budgets, or "".

    Raises:
        UserError: If the arms cannot be compared.
    """
    evaluations = [[evaluation for budget in arm.budgets for _, evaluation in budget] for arm in arms]
    eligibility = eligible(evaluations, [arm.label for arm in arms], [arm.trained for arm in arms])

    def points(arm: ArmRuns, barred: str) -> Points:
        rungs = [[evaluation.only(eligibility.documents) for _, evaluation in budget] for budget in arm.budgets]
        tokens = rungs[0][0]
        proxy, read = _spent(arm, tokens.bytes_per_token)
        flops = proxy
        if equal_at is not None and read is not None:
            flops = [training_flops(equal_at, vocab_size=arm.vocab_size, tokens=t, n_bytes=b) for t, b in read]
        return Points(
            name=arm.label,
            vocab_size=arm.vocab_size,
            flops=flops,
            seeds=[place if model.seed is None else model.seed for place, (model, _) in enumerate(arm.budgets[0])],
            document_tokens=base.clustered(tokens.document_tokens).astype(np.int64),
            nats=np.array([[base.clustered(run.text_nats) for run in rung] for rung in rungs]).swapaxes(0, 1),
            barred=barred,
            pooled=arm.trained,
            superwords=arm.superwords,
            read=read,
            proxy_flops=proxy,
        )

    # One division into units for all arms: a tokenizer that loses text may give equal tokens to different texts.
    base = evaluations[0][0].only(eligibility.documents)
    sizes, sources, cluster = _units(base)
    heldout = HeldOut.of(sizes, sources, fixed=chosen.shares, cluster=cluster, units=base.units())
    measured = [points(arm, barred) for arm, barred in zip(arms, eligibility.reasons, strict=True)]
    rates = rate_changes([arm.tuning for arm in arms])
    further = luck_of([arm.luck for arm in arms], base.config.weights)._replace(rates=rates)
    compared = Study(measured, heldout, tolerance, confidence, further)
    priced = ""
    if equal_at is not None:
        priced = "The budgets are equal in the FLOPs of training the deployed model."
    elif all(map(compared.on_equal_text, measured)):
        priced = "At each budget, all models read the same amount of text; FLOPs are the reference's."
    return compared, " ".join(filter(None, [eligibility.note, priced]))


def _spent(arm: ArmRuns, bytes_per_token: float) -> tuple[list[float], list[tuple[float, float]] | None]:
    """Training FLOPs of each budget, and the tokens and bytes that its models read; None if these are unknown."""
    if arm.stated:
        flops = [stated["train_flops"] for stated in arm.stated]
        read = [stated["train_bytes"] for stated in arm.stated if "train_bytes" in stated]
        return flops, [(size / bytes_per_token, size) for size in read] if len(read) == len(flops) else None
    budgets = [[model.trained for model, _ in budget] for budget in arm.budgets]
    return (
        [fmean(run.flops for run in budget) for budget in budgets],
        [(fmean(run.tokens for run in budget), fmean(run.bytes for run in budget)) for budget in budgets],
    )


def _units(evaluation: Evaluation) -> tuple[NDArray[np.int64], Grouping, str]:
    """Bytes and source of every unit of sampling, and which unit that is."""
    cluster = evaluation.cluster()[0]
    sizes = evaluation.clustered(evaluation.document_bytes).astype(np.int64)
    sources = evaluation.groups.get(SOURCE)
    if sources is None:
        return sizes, Grouping(("all",), np.zeros(len(sizes), np.int32)), cluster
    if cluster == SOURCE:
        return sizes, Grouping(sources.names, np.arange(len(sizes), dtype=np.int32)), cluster
    first = np.unique(sampling_units(evaluation.document_hashes, None), return_index=True)[1]
    return sizes, Grouping(sources.names, sources.index[first]), cluster


def _seed_seconds(arm: ArmRuns) -> float:
    """Time to train the models of one seed at all budgets, which may share a trunk; 0 if that is unknown."""
    if any(model.summary is None for budget in arm.budgets for model, _ in budget):
        return 0.0
    configs = [TrainConfig(**budget[0][0].trained.run["train"]) for budget in arm.budgets]
    longest = fmean(model.trained.seconds for model, _ in arm.budgets[-1])
    return longest * trained_steps(configs) / configs[-1].steps


def _stored(rungs: Sequence[ComparisonRecord], store: Store) -> list[ArmRuns]:
    """Models and evaluations of the arms of a run at its budgets."""
    arms = []
    for place, arm in enumerate(rungs[0].arms):
        budgets = []
        for rung in rungs:
            models = store.open_all(rung.arms[place].lms, TrainedModel)
            scores = store.open_all(rung.arms[place].evaluations, Scores)
            pairs = zip(models, scores, strict=True)
            budgets.append([(model.contents, Evaluation.load(score.path)) for model, score in pairs])
        (tokenizer,) = store.open_all([arm.tokenizer], Folder)
        superwords = len(load_saved(tokenizer.path).superword_ids()) > 0
        trained = arm.training is not None
        stated = [rung.arms[place].settings for rung in rungs if "train_flops" in rung.arms[place].settings]
        known = all(model.summary is not None for budget in budgets for model, _ in budget)
        if not known and len(stated) < len(rungs):
            raise UserError(f"the training compute of {arm.label} is unknown; add the column train_flops to the table")
        more = (trained, superwords, arm.tuning, arm.luck, [] if known else stated)
        arms.append(ArmRuns(arm.label, arm.vocab_size, budgets, *more))
    return arms


def assumptions(settings: Sequence[str]) -> Assumptions:
    """Read settings: `deployment=NAME`, `deployment.KEY=VALUE`, `shares.SOURCE=0.4`.

    Raises:
        UserError: If a key or a value is wrong.
    """
    shares: dict[str, float] = {}
    deployed: list[str] = []
    for text in settings:
        key, equals, value = _divided(text)
        group, _, name = key.partition(".")
        if not equals or group not in ("deployment", "shares"):
            raise UserError(f"{text}: write deployment=NAME, deployment.KEY=VALUE or shares.SOURCE=0.4")
        if group == "deployment":
            deployed.append(text)
        else:
            try:
                shares[name] = float(value)
            except ValueError:
                raise UserError(f"{text}: the share of a source is a number between 0 and 1") from None
    return Assumptions(_deployment(deployed), shares)


def deployment_of(run: Record) -> Deployment:
    """Deployment that the command of a run chose. A record is data: it is not composed, and names no variables."""
    return _deployment([text for text in run.overrides if text.lstrip("+").startswith("deployment")])


def _deployment(settings: Sequence[str]) -> Deployment:
    """The deployment of `deployment=NAME` and `deployment.KEY=VALUE`, in any order."""
    words = [text.lstrip("+").removeprefix("deployment")[1:] for text in settings]
    return deployment(sorted(words, key=lambda word: "=" in word))


def _divided(text: str) -> tuple[str, str, str]:
    """Divide `KEY=VALUE`; the name of a source may contain `=`."""
    return text.rpartition("=") if text.startswith("shares.") else text.partition("=")


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
    values = {_divided(text)[0].lstrip("+"): text for text in run.overrides}
    replaced = {_divided(text)[0] for text in settings}
    # The run's own deployment, unless another one is chosen.
    keys = [] if "deployment" in replaced else [key for key in values if key.partition(".")[0] == "deployment"]
    chosen = assumptions([*(values[key] for key in keys if key not in replaced), *settings])
    accepted = tolerance or tolerance_of(run)
    store = Store.at(artifacts or run.store)
    return _compare(Reporter(), store, run.rungs, chosen, deployment_of(run), accepted, run.command, folder, out)


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
    heldout = HeldOut.of(sizes, sources, fixed=chosen.shares, cluster=SOURCE)
    compared = Study(arms, heldout, tolerance or BudgetConfig.tolerance, EvalConfig().confidence)
    _write(Reporter(), out, path, compared, "", chosen, None)


def show(
    context: Context, rungs: Sequence[ComparisonRecord], deployment: Deployment, tolerance: float, folder: Path
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
    reporter, chosen = context.reporter, Assumptions(deployment)
    try:
        return _compare(reporter, context.store, rungs, chosen, deployment, tolerance, command_line(), folder, folder)
    except UserError as error:
        reporter.say(f"No comparison over compute: {error}", style="yellow")
        return None


def _compare(
    reporter: Reporter,
    store: Store,
    rungs: Sequence[ComparisonRecord],
    chosen: Assumptions,
    configured: Deployment,
    tolerance: float,
    command: str,
    run: Path,
    out: Path,
) -> Step | None:
    """Compare the arms of a run under assumptions; `configured` is the deployment at which they were trained."""
    arms, settings = _stored(rungs, store), rungs[0].arms[0].settings
    compared, note = study(
        arms,
        chosen,
        tolerance=tolerance,
        confidence=rungs[0].confidence,
        equal_at=configured if settings.get("budget.mode") == DEPLOYED else None,
    )
    step = next_step(compared.gaps, settings, command, sum(map(_seed_seconds, arms)))
    _write(reporter, out, run, compared, note, chosen, step)
    return step


def _write(
    reporter: Reporter, out: Path, run: Path, compared: Study, note: str, chosen: Assumptions, step: Step | None
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
    for sentence in (note, numbers["worth"]):
        if sentence:
            reporter.say(sentence, style="bold")
    if numbers["at_scale"]:
        reporter.say(numbers["at_scale"])
    reporter.say(f"over compute: {out / PAGE}")


def describe(
    study: Study, chosen: Assumptions, *, note: str = "", step: Step | None = None, run: str = ""
) -> dict[str, Any]:
    """All numbers and sentences at a deployment, JSON-able."""
    priced = study.at(chosen.deployment)
    reference = study.arms[0].name
    losses = [bits(study.heldout.average(arm.nats).mean(axis=0)) for arm in study.arms]
    pairs = list(zip(study.gaps, priced[1:], strict=True))
    return {
        "title": f"{len(study.arms)} tokenizers over compute",
        "run": run,
        "reference": reference,
        "deployment": dataclasses.asdict(chosen.deployment),
        "shares": dict(study.heldout.shares),
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
                "relative_cost": plain(price.relative),
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
