"""The page of a ladder of budgets: is a tokenizer worth it, loss over compute, gaps, and the cost of serving.

`scaling.js` computes all numbers again when the reader changes an assumption, and `ladder.js` shows them.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
from typing import TYPE_CHECKING, Any

import altair as alt
from omegaconf import OmegaConf

from experiments.report import page
from experiments.report.figures import Figure, colour, data, shape, spec
from lm.evaluate.deployment import Deployment
from lm.scaling.worth import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIRECT_LABELS, _DIRECT_CHARACTERS = 5, 16
"""With at most this many arms and short names, names stand beside the points of the frontier instead of in a legend."""


def render(found: Mapping[str, Any], replayed: Mapping[str, Any], depths: Sequence[str] = ()) -> str:
    """Return the page.

    Args:
        found: Result of `experiments.stages.ladder.compare`.
        replayed: Result of `lm.scaling.replay.replay` for the same measurements.
        depths: Sentences about the depths of the budgets, if there are several.
    """
    about = {
        "found": found,
        "data": replayed,
        "presets": {name: dataclasses.asdict(each) for name, each in presets().items()},
        "answers": ANSWERS,
    }
    return page.render(
        "ladder.html",
        title=found["title"],
        figures=figures(found),
        found=found,
        depths=depths,
        about=page.script_json(about),
    )


def presets() -> dict[str, Deployment]:
    """Return the deployments of `configs/deployment` by name."""
    folder = importlib.resources.files("configs") / "deployment"
    texts = {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in folder.iterdir()}
    settings: dict[str, Any] = {name: OmegaConf.create(text) for name, text in sorted(texts.items())}
    return {name: Deployment(**found) for name, found in settings.items()}


def figures(found: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of the page, whose data sets `ladder.js` computes."""
    labels = [arm["name"] for arm in found["arms"]]
    level = f"{100 * found['confidence']:g} %"
    drawn = [
        Figure("frontier", "Loss and cost of serving", frontier_chart(labels)),
        Figure(
            "curves",
            "Bits per byte over training compute",
            curve_chart(labels),
            f"Mean over the seeds, with {level} intervals. Dashed parts are extrapolation.",
        ),
    ]
    if any(gap["band"] for gap in found["gaps"]):
        drawn.append(
            Figure(
                "gaps",
                f"Change against {found['reference']}, in percent",
                gap_chart(labels),
                "Below 0, a tokenizer needs fewer bits per byte at the same training FLOPs. Intervals are corrected "
                "for the number of tokenizers.",
            )
        )
    return drawn


def frontier_chart(labels: Sequence[str]) -> dict[str, Any]:
    """Change in bits per byte over change in serving cost, with intervals; the arms of the frontier are connected."""
    direct = len(labels) <= _DIRECT_LABELS and max(map(len, labels)) <= _DIRECT_CHARACTERS
    axis = alt.Axis(labelExpr="format(datum.value, '~g') + '×'", tickCount=5, labelOverlap="greedy")
    scale = alt.Scale(type="log", nice=False, padding=50)
    x = alt.X("cost:Q", title="relative cost of serving", scale=scale, axis=axis)
    y_title = "bits per byte, change in %"

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=y_title, scale=alt.Scale(nice=True, padding=24))

    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("cost:Q", format=".3f"),
        *(alt.Tooltip(f"{name}:Q", title=name, format="+.2f") for name in ("change", "low", "high")),
    ]
    axes = [
        data("origin").mark_rule(strokeDash=[4, 4], opacity=0.5).encode(x=x),
        data("origin").mark_rule(strokeDash=[4, 4], opacity=0.5).encode(y=y("change")),
    ]
    corner = data("origin").mark_text(align="left", baseline="bottom", opacity=0.7, fontStyle="italic").encode(
        x=alt.value(8), y=alt.value(_FRONTIER_HEIGHT - 6), text=alt.value("cheaper and better")
    )  # fmt: skip
    line = data("line").mark_line(strokeWidth=2, opacity=0.45).encode(x=x, y=y("change"), order="order:Q")
    base = data().encode(x=x, color=colour(labels, shown=not direct))
    bars = data("bars").mark_rule(strokeWidth=2.5, opacity=0.6).encode(
        x=x, color=colour(labels, shown=not direct), y=y("low"), y2="high:Q"
    )  # fmt: skip
    marks = base.mark_point(size=130, filled=True, opacity=1).encode(y=y("change"), tooltip=tooltip)
    if not direct:
        marks = marks.encode(shape=shape(labels))
    layers = [*axes, corner, line, bars, marks]
    if direct:
        layers.append(
            base.mark_text(align="left", dx=10, dy=-11, fontWeight=600, fontSize=13, limit=220).encode(
                y=y("change"), text="tokenizer:N"
            )
        )
    chart = alt.layer(*layers)
    return spec(chart, _FRONTIER_HEIGHT, rows=[], bars=[], line=[], origin=[{"cost": 1, "change": 0}])


_FRONTIER_HEIGHT = 300


def _flops() -> alt.X:
    axis = alt.Axis(labelExpr="datum.label && replace(format(datum.value, '~e'), 'e+', 'e')", tickCount=5)
    return alt.X("flops:Q", title="training FLOPs", scale=alt.Scale(type="log", nice=False), axis=axis)


def _over_compute(labels: Sequence[str], title: str, form: str) -> alt.LayerChart:
    """Bands and lines of all arms over training compute."""
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("flops:Q", title="FLOPs", format=".3e"),
        *(alt.Tooltip(f"{name}:Q", title=name, format=form) for name in ("value", "low", "high")),
    ]
    band = data("bands").mark_area(opacity=0.15).encode(
        x=_flops(), color=colour(labels), y=alt.Y("low:Q", title=title, scale=alt.Scale(zero=False)), y2="high:Q",
        detail="extrapolated:N",
    )  # fmt: skip
    dashes = alt.condition("datum.extrapolated", alt.value([5, 4]), alt.value([1, 0]))
    line = data().mark_line(strokeWidth=2.5).encode(
        x=_flops(), color=colour(labels), y=y, strokeDash=dashes, detail="extrapolated:N", tooltip=tooltip
    )  # fmt: skip
    return band + line


def curve_chart(labels: Sequence[str]) -> dict[str, Any]:
    """Curves with their bands, and the measured points."""
    marks = data("points").mark_point(size=60, filled=True).encode(
        x=_flops(), y="value:Q", color=colour(labels), shape=shape(labels)
    )  # fmt: skip
    return spec(_over_compute(labels, "bits per byte (held-out)", ".4f") + marks, rows=[], bands=[], points=[])


def gap_chart(labels: Sequence[str]) -> dict[str, Any]:
    """Gaps with their bands, and the line of no difference."""
    zero = data("zero").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y="value:Q")
    return spec(
        zero + _over_compute(labels, "change in bits per byte, %", "+.2f"), rows=[], bands=[], zero=[{"value": 0}]
    )
