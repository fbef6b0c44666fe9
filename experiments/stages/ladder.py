"""The arms over a ladder of budgets: measurements of all models, and what they say at a deployment."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from experiments.cli.console import si
from experiments.results import ComparisonRecord
from experiments.stages.comparison import Result
from lm.evaluate.bits_per_byte import SOURCE, Grouping
from lm.scaling.depths import reprice_depths
from lm.scaling.reprice import Measured
from lm.scaling.verdict import flops_text
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from experiments.cli.console import Reporter
    from experiments.results import TrainedModel
    from experiments.stages.context import Context
    from lm.evaluate.bits_per_byte import Evaluation


R = TypeVar("R", Result, ComparisonRecord)


class Measurements(NamedTuple):
    """Everything that is measured on a ladder.

    Attributes:
        depths: The arms, with losses by unit of sampling, for every number of layers in `lm.depths`, or for None; the
            first arm is the reference.
        unit_bytes: int64[n_units], bytes of each unit: a document, or a source if whole sources are resampled.
        sources: Source of each unit.
        cluster: Unit of sampling: "document" or "source".
    """

    depths: dict[int | None, list[Measured]]
    unit_bytes: NDArray[np.int64]
    sources: Grouping
    cluster: str


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


def measurements(rungs: Sequence[Result]) -> Measurements:
    """Return the measurements of all arms.

    Args:
        rungs: The comparison at every budget, smallest first, of every depth, with the same arms in the same order.
    """
    depths = {
        depth: [
            measured(
                found[0].label,
                found[0].tokenizer.vocab_size,
                [list(zip((lm.contents for lm in each.lms), each.evaluations, strict=True)) for each in found],
            )
            for found in zip(*(rung.arms for rung in own), strict=True)
        ]
        for depth, own in by_depth(rungs).items()
    }
    return Measurements(depths, *units(rungs[0].arms[0].evaluations[0]))


def by_depth(rungs: Sequence[R]) -> dict[int | None, list[R]]:
    """Group comparisons by the depth of their models."""
    found: dict[int | None, list[R]] = {}
    for each in rungs:
        found.setdefault(each.depth, []).append(each)
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
    return _depths(found) + [
        f"{gap['arm']} against {gap['reference']}: {statement}."
        for gap in found["gaps"]
        for statement in gap["statements"]
    ]


def _depths(found: Mapping[str, Any]) -> list[str]:
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


def show(context: Context, rungs: Sequence[Result]) -> None:
    """Print the comparison over the ladder: loss by budget, cost of serving, and what the gaps show."""
    depths, unit_bytes, sources, cluster = measurements(rungs)
    confidence = rungs[0].arms[0].scores.confidence
    try:
        found = reprice_depths(
            depths,
            unit_bytes,
            sources,
            context.config.deployment,
            cluster=cluster,
            tolerance=context.config.budget.tolerance,
            confidence=confidence,
        )
    except UserError as error:
        context.reporter.say(f"No curves over compute: {error}", style="yellow")
        return
    print_result(context.reporter, found)


def print_result(reporter: Reporter, found: Mapping[str, Any]) -> None:
    """Print the tables and sentences of a result of `lm.scaling.reprice.reprice`."""
    if "depths" in found:
        reporter.table("Held-out bits per byte by depth and budget (* best depth)", *depth_table(found))
    reporter.table("Held-out bits per byte by budget", *loss_table(found["arms"]))
    reporter.table("Serving the model of deployment, at the largest budget", *cost_table(found))
    for sentence in sentences(found):
        reporter.say(sentence)
