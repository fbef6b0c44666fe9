"""The charts of the vocabulary report."""

from __future__ import annotations

from typing import Any

import altair as alt

from experiments.report import charts
from experiments.report.figures import Figure, Rows, colour, dash, data, si_axis, spec


def figures(report: dict[str, Any]) -> list[Figure]:
    """Return the charts for the numbers of `experiments.report.vocabulary.gather`."""
    labels = [row["label"] for row in report["tokenizers"]]
    source = " and ".join(labels)
    on_text = f"{source} on {report['text']}"
    series = list(dict.fromkeys(row["tokenizer"] for row in report["lengths"]))
    found = [
        Figure(
            "lengths",
            "Lengths in the vocabulary",
            lengths(report["lengths"], series, "tokens", "tokens of a length"),
            "Longer tokens are averaged over ranges of lengths.",
            source,
        )
    ]
    if report["frequencies"]:
        found.append(
            Figure(
                "text-lengths",
                "Lengths in the text",
                lengths(
                    [row for row in report["lengths"] if row["occurrences"]],
                    series,
                    "occurrences",
                    "occurrences of a length",
                ),
                "How often tokens of each length occur, averaged in the same way.",
                on_text,
            )
        )
        found.append(
            Figure(
                "frequencies",
                "Frequency against rank",
                frequencies(report["frequencies"], labels),
                "Share of the text's tokens, most frequent token first. The curve is straight where Zipf's law holds.",
                on_text,
            )
        )
    if report["superwords"]["by_words"]:
        words = charts.words(report["superwords"]["by_words"])
        found.append(Figure("words", "Words in a superword", words, source=on_text if report["text"] else source))
    return found


def lengths(rows: Rows, series: list[str], field: str, title: str) -> dict[str, Any]:
    """Number of tokens by length, log-log.

    Args:
        rows: `tokenizer` (one of the series), `bytes` (the middle of the range `from`, `to`), the field, and its
            average over the range, `<field>_per_length`.
        series: Names of the series, in the order of their colours.
        field: Field that is counted.
        title: Title of the field.
    """
    lines = data().mark_line(strokeWidth=2.5).encode(
        x=alt.X("bytes:Q", title="bytes in a token", scale=alt.Scale(type="log", nice=False), axis=si_axis()),
        y=alt.Y(f"{field}_per_length:Q", title=title, scale=alt.Scale(type="log"), axis=si_axis()),
        color=colour(series),
        strokeDash=dash(series),
        tooltip=[
            alt.Tooltip("tokenizer:N"), alt.Tooltip("from:Q", title="from bytes"), alt.Tooltip("to:Q", title="to"),
            alt.Tooltip(f"{field}:Q", title=field, format=",")
        ],
    )  # fmt: skip
    return spec(lines, rows=rows)


def frequencies(rows: Rows, labels: list[str]) -> dict[str, Any]:
    """Share of a text's tokens against rank, log-log.

    Args:
        rows: `tokenizer`, `rank`, `count`, `share`.
        labels: Labels of all tokenizers, in the order of their colours.
    """
    lines = data().mark_line(strokeWidth=2.5).encode(
        x=alt.X("rank:Q", title="rank by frequency", scale=alt.Scale(type="log", nice=False), axis=si_axis()),
        y=alt.Y(
            "share:Q", title="share of all tokens", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e", tickCount=6)
        ),
        color=colour(labels),
        strokeDash=dash(labels),
        tooltip=[
            alt.Tooltip("tokenizer:N"), alt.Tooltip("rank:Q", format=","), alt.Tooltip("count:Q", format=","),
            alt.Tooltip("share:Q", format=".2e"),
        ],
    )  # fmt: skip
    return spec(lines, rows=rows)
