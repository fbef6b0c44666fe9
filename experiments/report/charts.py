"""The report's charts as Vega-Lite specifications; the page draws them in its light or dark colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

_HEIGHT = 260
Rows = Sequence[Mapping[str, Any]]


def compression(rows: Rows, labels: Sequence[str], transitions: Rows) -> dict[str, Any]:
    """Bytes per token against vocabulary size.

    Args:
        rows: `tokenizer` (label), `vocab_size`, `bytes_per_token`.
        labels: Labels of all tokenizers, in the order of their colours.
        transitions: `tokenizer`, `vocab_size` where phase 2 takes over; a dashed line each.
    """
    x = alt.X("vocab_size:Q", title="vocabulary size", scale=alt.Scale(type="log", nice=False), axis=_si_axis())
    y = alt.Y("bytes_per_token:Q", title="bytes per token", scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("vocab_size:Q", title="vocabulary", format=","),
        alt.Tooltip("bytes_per_token:Q", title="bytes per token", format=".3f"),
    ]
    lines = _chart(rows).mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=45)).encode(
        x=x, y=y, color=_color(labels), shape=_shape(labels), tooltip=tooltip
    )  # fmt: skip
    rule = _chart(transitions).mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x="vocab_size:Q", color=_color(labels))
    text = _chart(transitions).mark_text(align="right", dx=-6, y=8, text="transition").encode(
        x="vocab_size:Q", color=_color(labels)
    )  # fmt: skip
    return _spec(lines + rule + text if transitions else lines)


def loss(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Training loss in bits per byte against bytes of text seen.

    Args:
        rows: `tokenizer`, `bytes_seen`, `bits_per_byte`, `smoothed`.
        labels: As for `compression`.
    """
    x = alt.X("bytes_seen:Q", title="bytes of training text seen", axis=_si_axis())
    title, scale = "bits per byte (training)", alt.Scale(zero=False)
    y = alt.Y("bits_per_byte:Q", title=title, scale=scale)
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("bytes_seen:Q", title="bytes seen", format=".3s"),
        alt.Tooltip("smoothed:Q", title="bits per byte, average", format=".3f"),
    ]
    # Dashes as well as colours: the lines often lie on each other.
    dash = alt.StrokeDash(
        "tokenizer:N",
        scale=alt.Scale(domain=list(labels), range=[[1, 0], [7, 3], [2, 2], [9, 3, 2, 3]]),
        legend=_legend(),
    )
    base = _chart(rows).encode(x=x)
    steps = base.mark_line(strokeWidth=1, opacity=0.4, color="#999").encode(y=y, detail="tokenizer:N")
    average = base.mark_line(strokeWidth=2.5).encode(
        y=alt.Y("smoothed:Q", title=title, scale=scale), color=_color(labels), strokeDash=dash, tooltip=tooltip
    )
    return _spec(steps + average)


def interval(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Held-out bits per byte of each tokenizer with its confidence interval.

    Args:
        rows: `tokenizer`, `bits_per_byte`, `low`, `high`.
        labels: As for `compression`.
    """
    y = alt.Y("tokenizer:N", title=None, sort=list(labels), axis=alt.Axis(ticks=False, domain=False))
    title, scale, axis = "bits per byte (held-out)", alt.Scale(zero=False, padding=20), alt.Axis(tickCount=6)
    base = _chart(rows).encode(
        y=y,
        color=_color(labels, legend=False),
        tooltip=[
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("bits_per_byte:Q", title="bits per byte", format=".4f"),
            alt.Tooltip("low:Q", format=".4f"),
            alt.Tooltip("high:Q", format=".4f"),
        ],
    )
    whisker = base.mark_rule(strokeWidth=3, opacity=0.55).encode(
        x=alt.X("low:Q", title=title, scale=scale, axis=axis), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=120, opacity=1).encode(
        x=alt.X("bits_per_byte:Q", title=title, scale=scale, axis=axis)
    )
    return _spec(whisker + point, height=40 * len(labels) + 20)


def words(rows: Rows) -> dict[str, Any]:
    """How many superwords have how many words.

    Args:
        rows: `words`, `superwords`, `count`.
    """
    base = _chart(rows).encode(
        x=alt.X("words:O", title="words in a superword", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("superwords:Q", title="superwords in the vocabulary"),
        tooltip=[
            alt.Tooltip("words:O"),
            alt.Tooltip("superwords:Q", format=","),
            alt.Tooltip("count:Q", title="held-out occurrences", format=","),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=3, size=42)
    return _spec(bars + base.mark_text(dy=-8).encode(text=alt.Text("superwords:Q", format=",")))


def _chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.Data(values=[dict(row) for row in rows]))


def _color(labels: Sequence[str], *, legend: bool = True) -> alt.Color:
    # No range: the page sets the category colours, light or dark.
    return alt.Color(
        "tokenizer:N",
        scale=alt.Scale(domain=list(labels)),
        legend=_legend() if legend else None,
    )


def _legend() -> alt.Legend:
    # The same for every channel, so that Vega-Lite merges them into one.
    return alt.Legend(title=None, orient="top", symbolStrokeWidth=3, symbolSize=160)


def _shape(labels: Sequence[str]) -> alt.Shape:
    return alt.Shape("tokenizer:N", scale=alt.Scale(domain=list(labels)), legend=_legend())


def _si_axis() -> alt.Axis:
    return alt.Axis(format="~s", tickCount=6, labelFlush=False)


def _spec(chart: Any, height: int = _HEIGHT) -> dict[str, Any]:
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    spec.pop("config", None)  # altair's defaults; the page brings its own
    return spec
