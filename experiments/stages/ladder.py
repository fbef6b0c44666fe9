"""The arms over a ladder of budgets: measurements of all models, what they say at a deployment, and their page."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from experiments.cli.console import duration, si, signed
from experiments.results import ComparisonRecord
from experiments.stages.advice import Spent, cost_of, next_runs
from experiments.stages.comparison import Result
from experiments.store.manifest import command_line
from lm.evaluate.bits_per_byte import SOURCE, Grouping
from lm.scaling.depths import envelope
from lm.scaling.replay import replay
from lm.scaling.reprice import Measured, prepare, price
from lm.scaling.verdict import flops_text
from lm.scaling.worth import ANSWERS
from tokenizer.durable import write_json, write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.cli.console import Reporter
    from experiments.config import BudgetConfig
    from experiments.results import TrainedModel
    from experiments.stages.context import Context
    from lm.evaluate.bits_per_byte import Evaluation
    from lm.evaluate.deployment import Deployment
    from lm.scaling.ladder import Average

PAGE, NUMBERS, TABLE = "ladder.html", "ladder.json", "ladder.csv"


class Origin(NamedTuple):
    """The run that measured.

    Attributes:
        folder: Its folder.
        command: Its command line.
    """

    folder: Path
    command: str


R = TypeVar("R", Result, ComparisonRecord)


class Measurements(NamedTuple):
    """Everything that is measured on a ladder.

    Attributes:
        depths: The arms, with losses by unit of sampling, for every number of layers in `lm.depths`, or for None; the
            first arm is the reference.
        unit_bytes: int64[n_units], bytes of each unit: a document, or a source if whole sources are resampled.
        sources: Source of each unit.
        cluster: Unit of sampling: "document" or "source".
        cost: What the models cost.
    """

    depths: dict[int | None, list[Measured]]
    unit_bytes: NDArray[np.int64]
    sources: Grouping
    cluster: str
    cost: Spent


def measured(name: str, vocab_size: int, rungs: Sequence[Sequence[tuple[TrainedModel, Evaluation]]]) -> Measured:
    """Return the measurements of one arm.

    Args:
        name: Name of the arm.
        vocab_size: Size of its vocabulary.
        rungs: For every budget, smallest first, the model of each seed and its evaluation.
    """
    tokens = rungs[0][0][1]
    return Measured(
        name=name,
        vocab_size=vocab_size,
        flops=[fmean(model.summary.flops for model, _ in rung) for rung in rungs],
        seeds=[model.seed for model, _ in rungs[0]],
        document_tokens=tokens.clustered(tokens.document_tokens).astype(np.int64),
        nats=np.array([[found.clustered(found.text_nats) for _, found in rung] for rung in rungs]).swapaxes(0, 1),
    )


def units(evaluation: Evaluation) -> tuple[NDArray[np.int64], Grouping, str]:
    """Bytes and source of every unit of sampling, and which unit that is."""
    cluster = evaluation.cluster()[0]
    sizes = evaluation.clustered(evaluation.document_bytes).astype(np.int64)
    known = evaluation.groups.get(SOURCE)
    if known is None:
        return sizes, Grouping(("all",), np.zeros(len(sizes), np.int32)), cluster
    if cluster == SOURCE:
        return sizes, Grouping(known.names, np.arange(len(sizes), dtype=np.int32)), cluster
    return sizes, known, cluster


def measurements(rungs: Sequence[Result], budget: BudgetConfig) -> Measurements:
    """Return the measurements of all arms.

    Args:
        rungs: The comparison at every budget, smallest first, of every depth, with the same arms in the same order.
        budget: The budgets as configured.
    """
    # By depth and arm, the results of all budgets.
    depths = {depth: list(zip(*(rung.arms for rung in own), strict=True)) for depth, own in by_depth(rungs).items()}
    found = {
        depth: [
            measured(
                rungs_of[0].label,
                rungs_of[0].tokenizer.vocab_size,
                [list(zip((lm.contents for lm in each.lms), each.compared, strict=True)) for each in rungs_of],
            )
            for rungs_of in arms
        ]
        for depth, arms in depths.items()
    }
    summaries = [
        [[[lm.contents.summary for lm in each.lms] for each in rungs_of] for rungs_of in arms]
        for arms in depths.values()
    ]
    first = rungs[0].arms[0]
    cost = cost_of(summaries, first.arm.settings, budget.rungs(), budget.unit)
    return Measurements(found, *units(first.compared[0]), cost)


def by_depth(rungs: Sequence[R]) -> dict[int | None, list[R]]:
    """Group comparisons by the depth of their models."""
    found: dict[int | None, list[R]] = {}
    for each in rungs:
        found.setdefault(each.depth, []).append(each)
    return found


def compare(
    reporter: Reporter,
    out: Path,
    measured: Measurements,
    deployment: Deployment,
    *,
    origin: Origin,
    average: Average = "micro",
    shares: Mapping[str, float] | None = None,
    tolerance: float,
    confidence: float,
) -> dict[str, Any]:
    """Compare the arms, write the page, its numbers and the verdicts into a folder, and print the result.

    Args:
        reporter: Where to print.
        out: The folder.
        measured: The measurements.
        deployment: The model that will be deployed.
        origin: The run that measured.
        average: How sources are averaged.
        shares: Shares of sources that are set by hand.
        tolerance: Accepted relative difference of two arms' training FLOPs at a budget.
        confidence: Confidence level.

    Returns:
        The result of `lm.scaling.reprice.reprice`, with `title`, `run` and `next`.

    Raises:
        UserError: If the arms cannot be compared.
    """
    from experiments.report import ladder as page  # imports Altair, which is slow

    depths, unit_bytes, sources, cluster, cost = measured
    assume: Any = {
        "average": average,
        "shares": shares,
        "cluster": cluster,
        "tolerance": tolerance,
        "confidence": confidence,
    }
    best = envelope(depths, unit_bytes, sources, **assume)
    prepared = prepare(best.arms, unit_bytes, sources, **assume)
    found = price(prepared, deployment)
    best.describe(found)
    found |= {
        "title": f"{len(best.arms)} tokenizers over compute",
        "run": str(origin.folder),
        "next": next_runs(found, cost, origin.command),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / NUMBERS, found)
    write_whole(out / TABLE, verdicts_csv(found).encode())
    write_whole(out / PAGE, page.render(found, replay(prepared), depth_sentences(found)))
    print_result(reporter, found)
    reporter.say(f"over compute: {out / PAGE}")
    return found


def loss_table(arms: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table of bits per byte by budget, from the arms of `lm.scaling.reprice.reprice`."""
    columns = ["training FLOPs", *(f"{flops_text(flops)}" for flops in arms[0]["curve"]["flops"])]
    return columns, [[arm["name"], *(f"{bits:.4f}" for bits in arm["curve"]["bits_per_byte"])] for arm in arms]


def depth_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table of bits per byte by depth and budget; the best depth of a budget is marked."""
    chosen = {arm["name"]: arm["depths"] for arm in found["arms"]}
    columns, _ = loss_table(found["arms"])
    rows = []
    for place, arm in enumerate(found["arms"]):
        for depth in found["depths"]:
            values = depth["arms"][place]["bits_per_byte"]
            marks = ["*" if best == depth["n_layers"] else " " for best in chosen[arm["name"]]]
            cells = [f"{bits:.4f}{mark}" for bits, mark in zip(values, marks, strict=True)]
            rows.append([f"{arm['name']}, depth {depth['n_layers']}", *cells])
    return columns, rows


def cost_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table of serving costs, from the result of `lm.scaling.reprice.reprice`."""
    rho = found["deployment"]["rho"]
    columns = ["", "tokens per byte", "decoding: FLOPs per byte", "relative", f"equivalent bits per byte, ρ = {rho:g}"]
    rows = []
    for arm in found["arms"]:
        last = arm["equivalent"]["decode"][-1]
        value = "–" if last["bits_per_byte"] is None else f"{last['bits_per_byte']:.4f}"
        note = " (cannot be matched)" if last["flops"] is None else " (extrapolated)" if last["extrapolated"] else ""
        cost = arm["cost"]["decode"]["flops_per_byte"]
        rows.append(
            [
                arm["name"],
                f"{arm['tokens_per_byte']:.4f}",
                si(cost),
                f"{arm['relative_cost']['decode']:.3f}",
                value + note,
            ]
        )
    return columns, rows


def sentences(found: Mapping[str, Any]) -> list[str]:
    """What the gaps of all arms to the reference show, one sentence per arm and statement, and the chosen depths."""
    return depth_sentences(found) + [
        f"{gap['arm']} against {gap['reference']}: {statement}."
        for gap in found["gaps"]
        for statement in gap["statements"]
    ]


def depth_sentences(found: Mapping[str, Any]) -> list[str]:
    """The depth of every budget, if there are several depths."""
    if "depths" not in found:
        return []
    tried = [depth["n_layers"] for depth in found["depths"]]
    chosen = "; ".join(f"{arm['name']} {', '.join(map(str, arm['depths']))}" for arm in found["arms"])
    said = f"Depths of the budgets, smallest budget first: {chosen}. They have the lowest loss, mean over the seeds."
    said += " They are chosen on the text that they are scored on, so the losses are slightly too low."
    if {tried[0], tried[-1]} & {depth for arm in found["arms"] for depth in arm["depths"]}:
        said += f" Where they are {tried[0]} or {tried[-1]}, the best depth may be outside of lm.depths."
    return [said]


def worth_sentences(found: Mapping[str, Any]) -> list[str]:
    """Whether each arm is worth it at the deployment, one sentence per arm, from the result of `reprice`."""
    return [_worth(gap, arm, found) for gap, arm in zip(found["gaps"], found["arms"][1:], strict=True)]


def _worth(gap: Mapping[str, Any], arm: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    worth, rho = gap["worth"]["decode"], found["deployment"]["rho"]
    reason = f" ({worth['reason']})" if worth["reason"] else ""
    quality = percent(gap["percent"][-1], gap["intervals"] and gap["intervals"][-1])
    reading, generating = (percent(100 * (arm["relative_cost"][phase] - 1)) for phase in ("prefill", "decode"))
    parts = [
        f"{arm['name']} instead of {found['reference']}: {ANSWERS[worth['answer']]}{reason}",
        f"{quality} bits per byte at {flops_text(gap['flops'][-1])} training FLOPs",
        f"{reading} FLOPs to read a byte, {generating} to generate one",
    ]
    if worth["rung"] is not None:
        equal = gap["equivalent"]["decode"][worth["rung"]]
        extrapolated = ", extrapolated" if arm["equivalent"]["decode"][worth["rung"]]["extrapolated"] else ""
        parts.append(
            f"{percent(equal['percent'], equal['interval'])} bits per byte where training and serving together cost "
            f"the same (ρ = {rho:g}{extrapolated})"
        )
    return "; ".join(parts) + "."


def percent(value: float, interval: Sequence[float] | None = None) -> str:
    """A change in percent, with its interval.

    >>> percent(-0.84), percent(0.3, (-0.1, 0.7))
    ('−0.8 %', '+0.3 % (−0.1 to +0.7)')
    """
    ends = "" if interval is None else f" ({signed(interval[0], 1)} to {signed(interval[1], 1)})"
    return f"{signed(value, 1)} %{ends}"


def verdicts_csv(found: Mapping[str, Any]) -> str:
    """The verdict about every arm at every budget, as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["arm", "reference", "flops", "gap_percent", "low", "high", "level", "decision", "withheld"])
    for gap in found["gaps"]:
        ends = gap["intervals"] or [("", "")] * len(gap["flops"])
        for flops, value, (low, high), decision in zip(
            gap["flops"], gap["percent"], ends, gap["decisions"], strict=True
        ):
            writer.writerow(
                [gap["arm"], gap["reference"], flops, value, low, high, gap["level"], decision, gap["withheld"]]
            )
    return text.getvalue()


def show(context: Context, rungs: Sequence[Result], folder: Path) -> None:
    """Compare the arms over the ladder: tables and sentences, and the page in the folder of the run."""
    try:
        compare(
            context.reporter,
            folder,
            measurements(rungs, context.config.budget),
            context.config.deployment,
            origin=Origin(folder, command_line()),
            tolerance=context.config.budget.tolerance,
            confidence=rungs[0].arms[0].scores.confidence,
        )
    except UserError as error:
        context.reporter.say(f"No curves over compute: {error}", style="yellow")


def print_result(reporter: Reporter, found: Mapping[str, Any]) -> None:
    """Print the tables and sentences of a result of `compare`."""
    if "depths" in found:
        reporter.table("Held-out bits per byte by depth and budget (* best depth)", *depth_table(found))
    reporter.table("Held-out bits per byte by budget", *loss_table(found["arms"]))
    reporter.table("Serving the model of deployment, at the largest budget", *cost_table(found))
    for sentence in sentences(found):
        reporter.say(sentence)
    for sentence in worth_sentences(found):
        reporter.say(sentence, style="bold")
    for each in found["next"]:
        time = f"; about {duration(each['seconds'])} of training" if each["seconds"] else ""
        how = f": {each['command']}" if each["command"] else ""
        reporter.say(f"To be surer: {each['what']} ({each['why']}{time}){how}")
