"""Charts of training diagnostics: gradients, activations, weights, token frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.report.figures import Figure, Rows, colour, dash, data, si_axis, spec

_GROUPS = ("embedding", "head", "attention", "mlp", "norms")


def figures(training: dict[str, Any], among: Sequence[str], source: str) -> list[Figure]:
    """Return the charts of the diagnostics that were measured.

    Args:
        training: Output of `experiments.report.diagnostics.gather`.
        among: Labels of all tokenizers of the page, in the order of their colours.
        source: Source of the numbers.
    """
    labels = list(dict.fromkeys(row["tokenizer"] for row in training["frequency"]))
    found = []
    if training["grad_norm"]:
        found.append(
            Figure(
                "grad_norm",
                "Gradient norm",
                over_training(training["grad_norm"], labels, among, "norm of the gradient, before clipping"),
                "Mean over the steps since the previous point.",
                source,
            )
        )
    if training["residual"]:
        found.append(
            Figure(
                "residual",
                "Residual stream",
                residual(training["residual"], labels, among),
                "Root mean square at the input of each layer (thin) and of the output head (thick).",
                source,
            )
        )
    if training["weights"]:
        groups = [group for group in _GROUPS if any(row["group"] == group for row in training["weights"])]
        found.append(
            Figure(
                "weights",
                "Weight norms",
                weights(training["weights"], labels, among, groups),
                "Euclidean norms. For embeddings and heads, they are comparable only between vocabularies of equal "
                "size. The data also contains root mean squares.",
                source,
            )
        )
    if training["frequency"]:
        texts = sorted({row["text"] for row in training["frequency"]})
        found.append(
            Figure(
                "frequency",
                "Token frequencies",
                frequency(training["frequency"], labels, among),
                f"Tokens ordered by their frequency in {' or '.join(texts)} text; both axes are logarithmic.",
                source,
            )
        )
    return found


def over_training(rows: Rows, labels: Sequence[str], among: Sequence[str], title: str) -> dict[str, Any]:
    """A quantity against the bytes of training text seen.

    Args:
        rows: `tokenizer`, `step`, `bytes_seen`, `value`.
        labels: Labels of the tokenizers.
        among: Labels of all tokenizers of the page, in the order of their colours.
        title: Title of the quantity.
    """
    return spec(
        _lines(labels, among, title).mark_line(strokeWidth=2).encode(strokeDash=dash(labels, among=among)), rows=rows
    )


def residual(rows: Rows, labels: Sequence[str], among: Sequence[str]) -> dict[str, Any]:
    """Root mean square of the residual stream, by place.

    Args:
        rows: `tokenizer`, `step`, `bytes_seen`, `place` (`LL/attention`, `LL/mlp`, `final`), `value`.
        labels: As for `over_training`.
        among: As for `over_training`.
    """
    base = _lines(labels, among, "root mean square", alt.Tooltip("place:N"))
    final = alt.datum.place == "final"
    inside = base.transform_filter(alt.datum.place != "final").mark_line(strokeWidth=1, opacity=0.45)
    head = base.transform_filter(final).mark_line(strokeWidth=2.5).encode(strokeDash=dash(labels, among=among))
    return spec(inside.encode(detail="place:N") + head, rows=rows)


def weights(rows: Rows, labels: Sequence[str], among: Sequence[str], groups: Sequence[str]) -> dict[str, Any]:
    """Norms of the weights, with a dash for each group.

    Args:
        rows: `tokenizer`, `step`, `bytes_seen`, `group`, `value` (norm), `rms`.
        labels: As for `over_training`.
        among: As for `over_training`.
        groups: Groups of weights, in order.
    """
    base = _lines(labels, among, "norm", alt.Tooltip("group:N"), alt.Tooltip("rms:Q", format=".4~g"))
    scale = alt.Scale(domain=list(groups), range=[[1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [14, 4]])
    legend = alt.Legend(title=None, orient="bottom", symbolStrokeWidth=3, symbolSize=160, columns=3)
    kinds = alt.StrokeDash("group:N", scale=scale, legend=legend)
    return spec(base.mark_line(strokeWidth=2).encode(strokeDash=kinds), rows=rows)


def frequency(rows: Rows, labels: Sequence[str], among: Sequence[str]) -> dict[str, Any]:
    """Share of all tokens against rank, both on a logarithmic scale.

    Args:
        rows: `tokenizer`, `text`, `rank`, `count`, `share`.
        labels: As for `over_training`.
        among: As for `over_training`.
    """
    x = alt.X("rank:Q", title="rank of the token", scale=alt.Scale(type="log", nice=False), axis=si_axis())
    y = alt.Y(
        "share:Q", title="share of all tokens", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e", tickCount=5)
    )
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("rank:Q", format=","),
        alt.Tooltip("count:Q", format=","),
        alt.Tooltip("share:Q", format=".3~g"),
    ]
    base = data().encode(
        x=x, y=y, color=colour(labels, among=among), strokeDash=dash(labels, among=among), tooltip=tooltip
    )
    return spec(base.mark_line(strokeWidth=2), rows=rows)


def _lines(labels: Sequence[str], among: Sequence[str], title: str, *more: alt.Tooltip) -> alt.Chart:
    tooltip = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("step:Q", format=","),
        *more,
        alt.Tooltip("value:Q", title=title, format=".4~g"),
    ]
    return data().encode(
        x=alt.X("bytes_seen:Q", title="bytes of training text seen", axis=si_axis()),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        color=colour(labels, among=among),
        tooltip=tooltip,
    )
