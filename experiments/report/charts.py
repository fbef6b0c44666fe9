"""The charts of pages as Vega-Lite specifications; the page draws them in its light or dark colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.report.figures import Rows, colour, data, shape, spec, vocabulary_axis


def compression(rows: Rows, labels: Sequence[str], transitions: Rows) -> dict[str, Any]:
    """Bytes per token against vocabulary size.

    Args:
        rows: `tokenizer` (label), `vocab_size`, `bytes_per_token`.
        labels: Labels of all tokenizers, in the order of their colours.
        transitions: `tokenizer`, `vocab_size` at which phase 2 starts; drawn as dashed lines.
    """
    y = alt.Y("bytes_per_token:Q", title="bytes per token", scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("vocab_size:Q", title="vocabulary", format=","),
        alt.Tooltip("bytes_per_token:Q", title="bytes per token", format=".3f"),
    ]
    lines = data().mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=45)).encode(
        x=vocabulary_axis(rows), y=y, color=colour(labels), shape=shape(labels), tooltip=tooltip
    )  # fmt: skip
    rule = data("transitions").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x="vocab_size:Q", color=colour(labels))
    if not transitions:
        return spec(lines, rows=rows)
    return spec(lines + rule, rows=rows, transitions=transitions)


def learning(rows: Rows, labels: Sequence[str], amount: str, title: str) -> dict[str, Any]:
    """Learning curves, one line per model.

    Args:
        rows: `tokenizer` (label), `model`, the amount and `bits_per_byte`.
        labels: As for `compression`.
        amount: Field of what was spent.
        title: Its title.
    """
    y = alt.Y("bits_per_byte:Q", title="bits per byte (training text)", scale=alt.Scale(type="log", nice=False))
    lines = data().mark_line(strokeWidth=1.5, opacity=0.8).encode(
        x=alt.X(f"{amount}:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~s")),
        y=y,
        color=colour(labels),
        detail="model:N",
        tooltip=[
            *(alt.Tooltip(f"{field}:N") for field in ("tokenizer", "model")),
            alt.Tooltip(f"{amount}:Q", title=title, format=".3s"),
            alt.Tooltip("bits_per_byte:Q", title="bits per byte", format=".4f"),
        ],
    )  # fmt: skip
    return spec(lines, rows=rows)


def dots(
    rows: Rows,
    labels: Sequence[str],
    value: str,
    title: str,
    *,
    ends: tuple[str, str],
    line: float,
    groups: Sequence[str] = (),
    form: str = ".3f",
) -> dict[str, Any]:
    """A number of each tokenizer with its interval, from left to right.

    Args:
        rows: `tokenizer`, the number and the ends of its interval; `group` with `groups`.
        labels: As for `compression`.
        value: Field of the number.
        title: Title of the number.
        ends: Fields of the ends of the interval.
        line: Where to draw a vertical line.
        groups: Groups from top to bottom, each with one dot per tokenizer; without them, one line per tokenizer.
        form: Format of the numbers.
    """
    x = {"title": title, "scale": alt.Scale(zero=False, padding=20), "axis": alt.Axis(format=form, tickCount=6)}
    named, order = ("group", groups) if groups else ("tokenizer", labels)
    axis = alt.Axis(ticks=False, domain=False, labelLimit=240)
    base = data().encode(
        y=alt.Y(f"{named}:N", title=None, sort=list(order), axis=axis),
        color=colour(labels, shown=bool(groups)),
        tooltip=[
            *(alt.Tooltip(f"{field}:N") for field in dict.fromkeys(("tokenizer", named))),
            *(alt.Tooltip(f"{field}:Q", format=form) for field in (value, *ends)),
        ],
    )
    point = base.mark_point(filled=True, size=50 if groups else 110, opacity=1).encode(x=alt.X(f"{value}:Q", **x))
    whisker = base.mark_rule(strokeWidth=2.5, opacity=0.55).encode(x=alt.X(f"{ends[0]}:Q", **x), x2=f"{ends[1]}:Q")
    height = max(100, 36 * len(order) + 20)
    if groups:
        offset = alt.YOffset("tokenizer:N", sort=list(labels))
        point, whisker = point.encode(yOffset=offset, shape=shape(labels)), whisker.encode(yOffset=offset)
        height = len(groups) * max(26, 8 * len(labels) + 10) + 20
    rule = data("line").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x=alt.X("value:Q", **x))
    return spec(rule + whisker + point, height=height, rows=rows, line=[{"value": line}])
