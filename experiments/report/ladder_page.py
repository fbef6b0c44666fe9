"""The page of a ladder of budgets: is a tokenizer worth it, loss over compute, gaps, and the cost of serving.

Everything is computed here, for a small grid of deployments; the page only selects among them.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt

from experiments import deployments
from experiments.findings.verdict import ANSWERS, change_text, flops_text, worth_headline
from experiments.progress import Table
from experiments.report import page
from experiments.report.figures import Figure, colour, data, shape, spec
from experiments.shell import command_text
from lm.evaluate.deployment import Deployment
from lm.scaling.pricing import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lm.evaluate.deployment import Phase
    from lm.scaling.equivalent import Equivalent
    from lm.scaling.pricing import Priced, Study

_RHO = (0.0, 0.5, 1.0, 2.0, 4.5, 10.0)
"""Serving over training, as choices beside the run's own."""
_PHASE_NAMES: dict[Phase, str] = {"decode": "generating text", "prefill": "reading text"}


class _Cell(NamedTuple):
    """The page at one choice of a deployment, a phase of serving and ρ.

    Attributes:
        key: The choice, as the page's controls give it.
        headline: Which tokenizers are worth it.
        rows: For each arm other than the reference: name, answer, its word, why, loss at equal training, cost of
            serving, and loss at equal total cost.
        shape: A sentence about the deployment.
    """

    key: str
    headline: str
    rows: list[tuple[str, ...]]
    shape: str


def render(numbers: Mapping[str, Any], study: Study) -> str:
    """Return the page.

    Args:
        numbers: Result of `experiments.report.over_compute.describe`.
        study: The measurements that it describes.
    """
    deployed = Deployment(**numbers["deployment"])
    models = _models(deployed)
    rhos = sorted({*_RHO, deployed.rho})
    cells = [
        _cell(study, name, dataclasses.replace(model, rho=rho), phase, numbers["reference"])
        for (name, model), rho, phase in itertools.product(models.items(), rhos, PHASES)
    ]
    return page.render(
        "ladder.html",
        title=numbers["title"],
        figures=figures(numbers),
        found=numbers,
        models=list(models),
        phases=_PHASE_NAMES,
        rhos=rhos,
        cells=cells,
        chosen=f"{next(iter(models))}|decode|{deployed.rho:g}",
        loss=loss_table(numbers),
        compute=compute_table(numbers),
        equal_text=all(map(study.on_equal_text, study.arms)),
        measured=[flops_text(numbers["arms"][0]["spent"][i]) for i in (0, -1)],
        command=command_text(["superbpe", "compare", Path(numbers["run"])]),
    )


def _models(deployed: Deployment) -> dict[str, Deployment]:
    """Deployments by name, with this run's context and batch; the run's own comes first."""
    free: dict[str, Any] = {name: getattr(deployed, name) for name in ("context_bytes", "batch", "rho")}
    presets = {name: dataclasses.replace(deployments.read([name]), **free) for name in deployments.presets()}
    name = next((name for name, model in presets.items() if model == deployed), "this run's own")
    return {name: deployed, **presets}


def _cell(study: Study, name: str, deployed: Deployment, phase: Phase, reference: str) -> _Cell:
    priced = study.at(deployed)
    equivalents = {gap.arm: at.equivalents[phase] for gap, at in zip(study.gaps, priced[1:], strict=True)}
    d = deployed
    experts = ""
    if d.n_experts:
        experts = f", {d.active_experts + d.shared_experts} of {d.n_experts + d.shared_experts} experts"
    shape_text = (
        f"A model of {d.n_layers} layers of width {d.hidden_size:,}, {d.n_kv_heads} key-value heads{experts}, at a "
        f"context of {d.context_bytes:,} bytes."
    )
    return _Cell(
        f"{name}|{phase}|{deployed.rho:g}",
        worth_headline(equivalents, reference),
        list(_rows(study, priced, equivalents, phase)),
        shape_text,
    )


def _rows(
    study: Study, priced: Sequence[Priced], equivalents: Mapping[str, Equivalent], phase: Phase
) -> Iterator[tuple[str, ...]]:
    for gap, arm in zip(study.gaps, priced[1:], strict=True):
        at = equivalents[gap.arm]
        equal = "not measured" if at.percent is None else change_text(at.percent, at.interval)
        loss = change_text(gap.percent[-1], gap.intervals[-1] if gap.intervals else None)
        cost = change_text(100 * (arm.relative[phase] - 1))
        yield gap.arm, at.answer, ANSWERS[at.answer], at.reason, loss, cost, equal


def figures(numbers: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [arm["name"] for arm in numbers["arms"]]
    losses = [
        {"tokenizer": arm["name"], "flops": flops, "value": bits}
        for arm in numbers["arms"]
        for flops, bits in zip(arm["spent"], arm["bits_per_byte"], strict=True)
    ]
    gaps = [
        {"tokenizer": gap["arm"], "flops": flops, "value": value, "low": low, "high": high}
        for gap in numbers["gaps"]
        if not gap["barred"]
        for flops, value, (low, high) in zip(
            gap["spent"], gap["percent"], gap["intervals"] or [(None, None)] * len(gap["spent"]), strict=True
        )
    ]
    drawn = [
        Figure(
            "curves",
            "Bits per byte over training compute",
            spec(_lines(labels, labels, "bits per byte (held-out)", ".4f"), rows=losses),
            "Means over the seeds at the measured budgets.",
        )
    ]
    if gaps:
        drawn.append(
            Figure(
                "gaps",
                f"Change against {numbers['reference']}, in percent",
                _gap_chart(gaps, labels),
                "Below 0, a tokenizer needs fewer bits per byte at the same budget. Intervals are corrected "
                "for the number of tokenizers.",
            )
        )
    return drawn


def _lines(labels: Sequence[str], among: Sequence[str], title: str, form: str, *more: alt.Tooltip) -> alt.Chart:
    axis = alt.Axis(labelExpr="datum.label && replace(format(datum.value, '~e'), 'e+', 'e')", tickCount=5)
    return data().mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=60)).encode(
        x=alt.X("flops:Q", title="training FLOPs", scale=alt.Scale(type="log", nice=False, padding=12), axis=axis),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        color=colour(labels, among=among),
        shape=shape(labels, among=among),
        tooltip=[
            alt.Tooltip("tokenizer:N"), alt.Tooltip("flops:Q", title="FLOPs", format=".3e"),
            alt.Tooltip("value:Q", format=form), *more,
        ],
    )  # fmt: skip


def _gap_chart(rows: Sequence[Mapping[str, Any]], among: Sequence[str]) -> dict[str, Any]:
    """Gaps in percent with their intervals, and the line of no difference, in the colours of all tokenizers."""
    labels = list(dict.fromkeys(row["tokenizer"] for row in rows))
    ends = [alt.Tooltip(f"{name}:Q", format="+.2f") for name in ("low", "high")]
    lines = _lines(labels, among, "change in bits per byte, %", "+.2f", *ends)
    colours = colour(labels, among=among)
    whisker = data().mark_rule(strokeWidth=2, opacity=0.5).encode(x="flops:Q", y="low:Q", y2="high:Q", color=colours)
    zero = data("zero").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y="value:Q")
    return spec(zero + whisker + lines, rows=rows, zero=[{"value": 0}])


def loss_table(numbers: Mapping[str, Any]) -> Table:
    """Bits per byte by budget."""
    header = ["training FLOPs", *(flops_text(flops) for flops in numbers["arms"][0]["spent"])]
    rows = [[arm["name"], *(f"{bits:.4f}" for bits in arm["bits_per_byte"])] for arm in numbers["arms"]]
    return Table("Held-out bits per byte by budget", header, rows)


def compute_table(numbers: Mapping[str, Any]) -> Table:
    """Training FLOPs by budget: those spent, and those of the deployed model on the same text."""
    header, rows = ["spent / as if deployed", *loss_table(numbers).header[1:]], []
    for arm in numbers["arms"]:
        if arm["spent"] != arm["deployed_flops"]:
            pairs = zip(arm["spent"], arm["deployed_flops"], strict=True)
            rows.append([arm["name"], *(f"{flops_text(one)} / {flops_text(two)}" for one, two in pairs)])
    return Table("Training FLOPs", header, rows)
