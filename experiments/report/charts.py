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


def loss(rows: Rows, labels: Sequence[str], against: str = "bytes_seen") -> dict[str, Any]:
    """Training loss in bits per byte against bytes read or FLOPs.

    Args:
        rows: `tokenizer`, `bytes_seen`, `flops`, `bits_per_byte`, `smoothed`.
        labels: As for `compression`.
        against: `bytes_seen` or `flops`.
    """
    titles = {"bytes_seen": "bytes of training text seen", "flops": "training FLOPs"}
    x = alt.X(f"{against}:Q", title=titles[against], axis=si_axis())
    title, scale = "bits per byte (training)", alt.Scale(zero=False)
    y = alt.Y("bits_per_byte:Q", title=title, scale=scale)
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("bytes_seen:Q", title="bytes seen", format=".3s"),
        alt.Tooltip("flops:Q", title="FLOPs", format=".3s"),
        alt.Tooltip("smoothed:Q", title="bits per byte, average", format=".3f"),
    ]
    base = data().encode(x=x)
    steps = base.mark_line(strokeWidth=1, opacity=0.4, color="#999").encode(y=y, detail="tokenizer:N")
    average = base.mark_line(strokeWidth=2.5).encode(
        y=alt.Y("smoothed:Q", title=title, scale=scale), color=colour(labels), strokeDash=dash(labels), tooltip=tooltip
    )
    return spec(steps + average, rows=rows)


def differences(rows: Rows, labels: Sequence[str], reference: str) -> dict[str, Any]:
    """Difference in bits per byte of each tokenizer from the reference, with its confidence interval.

    Args:
        rows: `tokenizer`, `difference`, `corrected_low`, `corrected_high`, `decision`.
        labels: As for `compression`.
        reference: Label of the reference.
    """
    y = alt.Y("tokenizer:N", title=None, sort=list(labels), axis=alt.Axis(ticks=False, domain=False, labelLimit=240))
    title, scale = f"bits per byte (held-out) minus those of {reference}", alt.Scale(padding=20)
    x = {"title": title, "scale": scale, "axis": alt.Axis(format="+.3f", tickCount=6)}
    base = data().encode(
        y=y,
        color=colour(labels, shown=False),
        tooltip=[
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("difference:Q", format="+.4f"),
            alt.Tooltip("corrected_low:Q", title="low", format="+.4f"),
            alt.Tooltip("corrected_high:Q", title="high", format="+.4f"),
            alt.Tooltip("decision:N", title="better"),
        ],
    )
    zero = data("zero").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x=alt.X("value:Q", **x))
    whisker = base.mark_rule(strokeWidth=3, opacity=0.55).encode(x=alt.X("corrected_low:Q", **x), x2="corrected_high:Q")
    point = base.mark_point(filled=True, size=120, opacity=1).encode(x=alt.X("difference:Q", **x))
    return spec(zero + whisker + point, height=40 * len(rows) + 30, rows=rows, zero=[{"value": 0}])


def tuning(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Bits per byte of the tuning runs by the factor on the learning rates; chosen factors are larger points.

    Args:
        rows: `tokenizer`, `factor`, `bits_per_byte`, `chosen`.
        labels: As for `compression`.
    """
    base = data().encode(
        x=alt.X(
            "factor:Q",
            title="factor on the learning rates",
            scale=alt.Scale(type="log", nice=False, padding=20),
            axis=alt.Axis(values=sorted({row["factor"] for row in rows}), format="~g"),
        ),
        y=alt.Y("bits_per_byte:Q", title="bits per byte (held-in)", scale=alt.Scale(zero=False)),
        color=colour(labels),
        tooltip=[
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("factor:Q"),
            alt.Tooltip("bits_per_byte:Q", title="bits per byte", format=".4f"),
        ],
    )
    size = alt.condition("datum.chosen", alt.value(160), alt.value(40))
    points = base.mark_point(filled=True, opacity=1).encode(shape=shape(labels), size=size)
    return spec(base.mark_line(strokeWidth=2) + points, rows=rows)


def tradeoff(rows: Rows, labels: Sequence[str], against: str = "train_flops") -> dict[str, Any]:
    """Held-out bits per byte against the cost of training: further left is cheaper, further down is better.

    Args:
        rows: `tokenizer`, `train_flops` or `train_bytes`, `bits_per_byte`, `low`, `high`.
        labels: As for `compression`.
        against: `train_flops` or `train_bytes`.
    """
    scale = alt.Scale(zero=False, padding=20)
    title = {"train_flops": "training FLOPs", "train_bytes": "bytes of training text"}[against]
    x = alt.X(f"{against}:Q", title=title, scale=scale, axis=si_axis())
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip(f"{against}:Q", title=title, format=".3s"),
        alt.Tooltip("bits_per_byte:Q", title="bits per byte", format=".4f"),
    ]
    title = "bits per byte (held-out)"
    base = data().encode(x=x, color=colour(labels), tooltip=tooltip)
    whisker = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
    point = base.mark_point(filled=True, size=110, opacity=1).encode(
        y=alt.Y("bits_per_byte:Q", title=title, scale=scale), shape=shape(labels)
    )
    return spec(whisker + point, rows=rows)


def transition(rows: Rows, measure: str, title: str, sizes: Sequence[str]) -> dict[str, Any]:
    """A measure against the transition as a share of the vocabulary, with a line for each vocabulary.

    Args:
        rows: `vocabulary` (size and other differences, as text), `share`, `transition` and the measure; `low` and
            `high` if it has an interval.
        measure: `bits_per_byte` or `bytes_per_token`.
        title: Title of the axis.
        sizes: All values of `vocabulary`, in order.
    """
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("transition:Q", format=","),
        alt.Tooltip(f"{measure}:Q", title=title, format=".4f"),
    ]
    scale = alt.Scale(zero=False, padding=12)
    axis = alt.Axis(format="%", tickCount=5)
    across = alt.Scale(zero=False, padding=12, nice=False)  # the axis must not extend to 105 %
    x = alt.X("share:Q", title="transition, share of the vocabulary", axis=axis, scale=across)
    base = data().encode(x=x, color=colour(sizes, "vocabulary"), tooltip=tooltip)
    line = base.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=60)).encode(
        y=alt.Y(f"{measure}:Q", title=title, scale=scale), shape=shape(sizes, "vocabulary")
    )
    if not all("low" in row for row in rows):
        return spec(line, rows=rows)
    whisker = base.mark_rule(strokeWidth=2, opacity=0.4).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
    return spec(whisker + line, rows=rows)


def length(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Share of the total loss by the length of the predicted token.

    Args:
        rows: `tokenizer`, `n_bytes`, `share_of_nats`, `share_of_bytes`, `bits_per_byte`.
        labels: As for `compression`.
    """
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("n_bytes:Q", title="bytes of the token"),
        alt.Tooltip("share_of_nats:Q", title="of the loss", format=".1%"),
        alt.Tooltip("share_of_bytes:Q", title="of the bytes", format=".1%"),
        alt.Tooltip("bits_per_byte:Q", title="bits per byte", format=".3f"),
    ]
    base = data().encode(
        x=alt.X("n_bytes:Q", title="bytes of the token", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("share_of_nats:Q", title="share of the loss", axis=alt.Axis(format="%")),
        color=colour(labels),
        shape=shape(labels),
        tooltip=tooltip,
    )
    return spec(base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=40)), rows=rows)


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
