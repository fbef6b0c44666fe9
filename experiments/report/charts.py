"""The charts of pages as Vega-Lite specifications; the page draws them in its light or dark colours."""

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
        transitions: `tokenizer`, `vocab_size` at which phase 2 starts; drawn as dashed lines.
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
    named = lines + rule + text if len(transitions) == 1 else lines + rule  # more names would overlap
    return spec(named, rows=rows, transitions=transitions)


def loss(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Training loss in bits per byte against bytes read.

    Args:
        rows: `tokenizer`, `bytes_seen`, `bits_per_byte`, `smoothed`.
        labels: As for `compression`.
    """
    title, scale = "bits per byte (training)", alt.Scale(zero=False)
    base = data().encode(x=alt.X("bytes_seen:Q", title="bytes of training text seen", axis=si_axis()))
    steps = base.mark_line(strokeWidth=1, opacity=0.4, color="#999").encode(
        y=alt.Y("bits_per_byte:Q", title=title, scale=scale), detail="tokenizer:N"
    )
    average = base.mark_line(strokeWidth=2.5).encode(
        y=alt.Y("smoothed:Q", title=title, scale=scale),
        color=colour(labels),
        strokeDash=dash(labels),
        tooltip=[
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("bytes_seen:Q", title="bytes seen", format=".3s"),
            alt.Tooltip("smoothed:Q", title="bits per byte, average", format=".3f"),
        ],
    )
    return spec(steps + average, rows=rows)


def dots(
    rows: Rows,
    labels: Sequence[str],
    value: str,
    title: str,
    *,
    ends: tuple[str, str],
    groups: Sequence[str] = (),
    line: float | None = None,
    form: str = ".3f",
) -> dict[str, Any]:
    """A number of each tokenizer with its interval, from left to right.

    Args:
        rows: `tokenizer`, the number and the ends of its interval; `group` with `groups`.
        labels: As for `compression`.
        value: Field of the number.
        title: Title of the number.
        ends: Fields of the ends of the interval.
        groups: Groups from top to bottom, each with one dot per tokenizer; without them, one line per tokenizer.
        line: Where to draw a vertical line.
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
    if line is None:
        return spec(whisker + point, height=height, rows=rows)
    rule = data("line").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x=alt.X("value:Q", **x))
    return spec(rule + whisker + point, height=height, rows=rows, line=[{"value": line}])


def transition(rows: Rows, sizes: Sequence[str]) -> dict[str, Any]:
    """Held-out bits per byte against the transition as a share of the vocabulary, with a line for each vocabulary.

    Args:
        rows: `tokenizer`, `vocabulary` (size and other differences, as text), `share`, `transition`, `bits_per_byte`,
            `low`, `high`.
        sizes: All values of `vocabulary`, in order.
    """
    title, scale = "bits per byte (held-out)", alt.Scale(zero=False, padding=12)
    across = alt.Scale(zero=False, padding=12, nice=False)  # the axis must not extend to 105 %
    axis = alt.Axis(format="%", tickCount=5)
    base = data().encode(
        x=alt.X("share:Q", title="transition, share of the vocabulary", axis=axis, scale=across),
        color=colour(sizes, "vocabulary"),
        tooltip=[
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("transition:Q", format=","),
            alt.Tooltip("bits_per_byte:Q", title=title, format=".4f"),
        ],
    )
    line = base.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=60)).encode(
        y=alt.Y("bits_per_byte:Q", title=title, scale=scale), shape=shape(sizes, "vocabulary")
    )
    whisker = base.mark_rule(strokeWidth=2, opacity=0.4).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
    return spec(whisker + line, rows=rows)


def words(rows: Rows) -> dict[str, Any]:
    """Number of superwords by number of words.

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
