"""Charts of training diagnostics: gradient norms and activation norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.report.figures import Figure, Rows, colour, dash, data, si_axis, spec


def figures(training: dict[str, Any], among: Sequence[str], source: str) -> list[Figure]:
    """Return the charts of the diagnostics that were measured.

    Args:
        training: Output of `experiments.report.diagnostics.gather`.
        among: Labels of all tokenizers of the page, in the order of their colours.
        source: Source of the numbers.
    """
    found = []
    if rows := training["grad_norm"]:
        chart = over_training(rows, among, "norm of the gradient, before clipping")
        found.append(
            Figure("grad_norm", "Gradient norm", chart, "Mean over the steps since the previous point.", source)
        )
    if rows := training["activations"]:
        chart = over_training(rows, among, "root mean square", alt.Tooltip("layer:Q"))
        note = "Root mean square of the pre-activations of each layer's MLP, one line per layer."
        found.append(Figure("activations", "Pre-activation norms", chart, note, source))
    return found


def over_training(rows: Rows, among: Sequence[str], title: str, *more: alt.Tooltip) -> dict[str, Any]:
    """A quantity against the bytes of training text seen.

    Args:
        rows: `tokenizer`, `step`, `bytes_seen`, `value`, and `layer` for one line per layer.
        among: Labels of all tokenizers of the page, in the order of their colours.
        title: Title of the quantity.
        more: More entries of the tooltip.
    """
    labels = list(dict.fromkeys(row["tokenizer"] for row in rows))
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("step:Q", format=","),
        *more,
        alt.Tooltip("value:Q", title=title, format=".4~g"),
    ]
    base = data().encode(
        x=alt.X("bytes_seen:Q", title="bytes of training text seen", axis=si_axis()),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        color=colour(labels, among=among),
        strokeDash=dash(labels, among=among),
        tooltip=tooltip,
    )
    return spec(base.mark_line(strokeWidth=1.5).encode(detail="layer:N"), rows=rows)
