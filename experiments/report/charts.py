"""The report's charts as Vega-Lite specifications; the page draws them in its light or dark colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.report.figures import Rows, colour, dash, data, shape, si_axis, spec


def compression(rows: Rows, labels: Sequence[str], transitions: Rows) -> dict[str, Any]:
    """Bytes per token against vocabulary size.

    Args:
        rows: `tokenizer` (label), `vocab_size`, `bytes_per_token`.
        labels: Labels of all tokenizers, in the order of their colours.
        transitions: `tokenizer`, `vocab_size` where phase 2 takes over; a dashed line each.
    """
    x = alt.X("vocab_size:Q", title="vocabulary size", scale=alt.Scale(type="log", nice=False), axis=si_axis())
    y = alt.Y("bytes_per_token:Q", title="bytes per token", scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("vocab_size:Q", title="vocabulary", format=","),
        alt.Tooltip("bytes_per_token:Q", title="bytes per token", format=".3f"),
    ]
    lines = data().mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=45)).encode(
        x=x, y=y, color=colour(labels), shape=shape(labels), tooltip=tooltip
    )  # fmt: skip
    rule = data("transitions").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x="vocab_size:Q", color=colour(labels))
    text = data("transitions").mark_text(align="right", dx=-6, y=8, text="transition").encode(
        x="vocab_size:Q", color=colour(labels)
    )  # fmt: skip
    if not transitions:
        return spec(lines, rows=rows)
    return spec(lines + rule + text, rows=rows, transitions=transitions)


def loss(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Training loss in bits per byte against bytes of text seen.

    Args:
        rows: `tokenizer`, `bytes_seen`, `bits_per_byte`, `smoothed`.
        labels: As for `compression`.
    """
    x = alt.X("bytes_seen:Q", title="bytes of training text seen", axis=si_axis())
    title, scale = "bits per byte (training)", alt.Scale(zero=False)
    y = alt.Y("bits_per_byte:Q", title=title, scale=scale)
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("bytes_seen:Q", title="bytes seen", format=".3s"),
        alt.Tooltip("smoothed:Q", title="bits per byte, average", format=".3f"),
    ]
    base = data().encode(x=x)
    steps = base.mark_line(strokeWidth=1, opacity=0.4, color="#999").encode(y=y, detail="tokenizer:N")
    average = base.mark_line(strokeWidth=2.5).encode(
        y=alt.Y("smoothed:Q", title=title, scale=scale), color=colour(labels), strokeDash=dash(labels), tooltip=tooltip
    )
    return spec(steps + average, rows=rows)


def interval(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Held-out bits per byte of each tokenizer with its confidence interval.

    Args:
        rows: `tokenizer`, `bits_per_byte`, `low`, `high`.
        labels: As for `compression`.
    """
    y = alt.Y("tokenizer:N", title=None, sort=list(labels), axis=alt.Axis(ticks=False, domain=False))
    title, scale, axis = "bits per byte (held-out)", alt.Scale(zero=False, padding=20), alt.Axis(tickCount=6)
    base = data().encode(
        y=y,
        color=colour(labels, shown=False),
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
    return spec(whisker + point, height=40 * len(labels) + 20, rows=rows)


def words(rows: Rows) -> dict[str, Any]:
    """How many superwords have how many words.

    Args:
        rows: `words`, `superwords`, `count`.
    """
    base = data().encode(
        x=alt.X("words:O", title="words in a superword", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("superwords:Q", title="superwords in the vocabulary"),
        tooltip=[
            alt.Tooltip("words:O"),
            alt.Tooltip("superwords:Q", format=","),
            alt.Tooltip("count:Q", title="held-out occurrences", format=","),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=3, size=42)
    return spec(bars + base.mark_text(dy=-8).encode(text=alt.Text("superwords:Q", format=",")), rows=rows)
