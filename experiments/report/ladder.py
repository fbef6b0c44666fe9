"""The page of a ladder of budgets: bits per byte over training compute, gaps, and the cost of serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.report import page
from experiments.report.figures import Figure, colour, data, shape, spec
from experiments.stages.ladder import cost_table, loss_table, sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.report.figures import Rows


def render(found: Mapping[str, Any]) -> str:
    """Return the page for the result of `lm.scaling.reprice.reprice`, with a `title`."""
    return page.render(
        "ladder.html",
        title=found["title"],
        figures=figures(found),
        found=found,
        loss=loss_table(found["arms"]),
        cost=cost_table(found),
        sentences=sentences(found),
    )


def figures(found: Mapping[str, Any]) -> list[Figure]:
    """Return the charts of the page."""
    labels = [arm["name"] for arm in found["arms"]]
    level = f"{100 * found['confidence']:g} %"
    curves = [
        {"tokenizer": arm["name"], "extrapolated": which == "extrapolated", **row}
        for arm in found["arms"]
        for which, band in arm["bands"].items()
        for row in _band(band)
    ]
    points = [
        {"tokenizer": arm["name"], "flops": flops, "value": bits}
        for arm in found["arms"]
        for flops, bits in zip(arm["curve"]["flops"], arm["curve"]["bits_per_byte"], strict=True)
    ]
    drawn = [
        Figure(
            "curves",
            "Bits per byte over training compute",
            curve_chart(curves, labels, points),
            f"Mean over the seeds, with {level} intervals. Dashed parts are extrapolation.",
        )
    ]
    gaps = [
        {"tokenizer": gap["arm"], "extrapolated": False, **row}
        for gap in found["gaps"]
        if gap["band"] is not None
        for row in _band(gap["band"])
    ]
    if gaps:
        drawn.append(
            Figure(
                "gaps",
                f"Change against {found['reference']}, in percent",
                gap_chart(gaps, labels),
                "Below 0, a tokenizer needs fewer bits per byte at the same training FLOPs. Intervals are corrected "
                "for the number of tokenizers.",
            )
        )
    return drawn


def _band(band: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Rows of a band: FLOPs, value, and the ends of the interval if there is one."""
    if band is None:
        return []
    ends = band["intervals"] or [(None, None)] * len(band["flops"])
    return [
        {"flops": flops, "value": value, "low": low, "high": high}
        for flops, value, (low, high) in zip(band["flops"], band["values"], ends, strict=True)
    ]


def _flops() -> alt.X:
    axis = alt.Axis(format=".1e", tickCount=5)
    return alt.X("flops:Q", title="training FLOPs", scale=alt.Scale(type="log", nice=False), axis=axis)


def _over_compute(labels: Sequence[str], title: str, form: str) -> alt.LayerChart:
    """Bands and lines of all arms over training compute."""
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("flops:Q", title="FLOPs", format=".3e"),
        *(alt.Tooltip(f"{name}:Q", title=name, format=form) for name in ("value", "low", "high")),
    ]
    base = data().encode(x=_flops(), color=colour(labels))
    band = base.mark_area(opacity=0.15).encode(
        y=alt.Y("low:Q", title=title, scale=alt.Scale(zero=False)), y2="high:Q", detail="extrapolated:N"
    )
    dashes = alt.condition("datum.extrapolated", alt.value([5, 4]), alt.value([1, 0]))
    line = base.mark_line(strokeWidth=2.5).encode(y=y, strokeDash=dashes, detail="extrapolated:N", tooltip=tooltip)
    return band + line


def curve_chart(rows: Rows, labels: Sequence[str], points: Rows) -> dict[str, Any]:
    """Curves with their bands, and the measured points."""
    marks = data("points").mark_point(size=60, filled=True).encode(
        x=_flops(), y="value:Q", color=colour(labels), shape=shape(labels)
    )  # fmt: skip
    return spec(_over_compute(labels, "bits per byte (held-out)", ".4f") + marks, rows=rows, points=points)


def gap_chart(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Gaps with their bands, and the line of no difference."""
    zero = data("zero").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(y="value:Q")
    return spec(zero + _over_compute(labels, "change in bits per byte, %", "+.2f"), rows=rows, zero=[{"value": 0}])
