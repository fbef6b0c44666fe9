"""The page of `superbpe choose`: the frontier of cost against vocabulary, the finalists, and where they differ."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.cli.console import si, signed
from experiments.report import page
from experiments.report.fertility_page import PLUS_MINUS, premium
from experiments.report.figures import Figure, colour, data, shape, si_axis, spec
from tokenizer.errors import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_COUNT = 10
"""A vocabulary whose last merge is rarer than this in the training text is noted: the text is too small for it."""


def render(report: Mapping[str, Any]) -> str:
    """Return the page for the numbers of `choose.json`."""
    kinds = [row for row in report["rows"] if row["by"] == "kind"]
    grouped = kinds or [row for row in report["rows"] if row["by"] == "source"]
    groups = list(dict.fromkeys(row["group"] for row in grouped))
    return page.render(
        "choose.html",
        title="Which tokenizer for this text",
        figures=[_frontier(report)],
        report=report,
        headline=headline(report),
        notes=notes(report),
        groups=groups if len(groups) > 1 else [],
        cells={(row["tokenizer"], row["group"]): row for row in grouped},
        change=change,
        premium=premium,
        shade=_shade,
        bakeoff="superbpe " + shlex.join(report["bakeoff"]["command"]),
    )


def shown(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tokenizers on the frontier, and the finalists, by size."""
    chosen = {one["name"] for one in report["finalists"]}
    rows = [one for one in report["tokenizers"] if one["frontier"] or one["name"] in chosen]
    return sorted(rows, key=lambda one: one["vocab_size"])


def headline(report: Mapping[str, Any]) -> str:
    """The cheapest finalist against the reference."""
    if len(report["finalists"]) == 1:
        return f"No tokenizer is cheaper to serve than {report['reference']} beyond chance."
    best = report["finalists"][1]
    return f"{best['name']} is {best['why']}."


def change(one: Mapping[str, Any]) -> str:
    """The cost of a tokenizer against the reference's, and half its interval."""
    text = f"{signed(100 * (one['relative'] - 1), 1)}\N{NO-BREAK SPACE}%"
    return text if one["low"] is None else f"{text}{PLUS_MINUS}{50 * (one['high'] - one['low']):.1f}"


def notes(report: Mapping[str, Any]) -> list[str]:
    """Limits of the comparison: vocabularies that the text is too small for, and tokenizers that lose text."""
    every = report["tokenizers"]
    rare = listed(one["name"] for one in every if (one["last_count"] or LEAST_COUNT) < LEAST_COUNT)
    missing, lossy = listed(report["missing"]), listed(one["name"] for one in every if one["lossy"])
    limits = {
        f"the last merges of {rare} occur fewer than {LEAST_COUNT} times in the training text: it is too small": rare,
        f"the text has too few pairs for {missing}": missing,
        f"text is lost by {lossy}, which cannot be finalists": lossy,
    }
    others = [f"{one['name']} is run by {one['software']}" for one in every if one["software"]]
    return [note for note, names in limits.items() if names] + others


def _shade(row: Mapping[str, Any]) -> str:
    """Background of a cell of the heat map: the colour says who needs fewer tokens, and its strength how many."""
    change = 100 * ((row["parity"] or 1) - 1)
    return f"color-mix(in srgb, var(--c{2 if change < 0 else 0}) {min(abs(change) * 2, 60):.0f}%, transparent)"


def _frontier(report: Mapping[str, Any]) -> Figure:
    chosen = [one["name"] for one in report["finalists"]]
    fields = ("name", "vocab_size", "relative")
    rows = [
        {"tokenizer": one["recipe"], "chosen": one["name"] in chosen, **{field: one[field] for field in fields}}
        for one in report["tokenizers"]
    ]
    labels = list(dict.fromkeys(row["tokenizer"] for row in rows))
    points = data().mark_point(filled=True, opacity=0.9).encode(
        x=alt.X("vocab_size:Q", title="vocabulary size", scale=alt.Scale(type="log", nice=False), axis=si_axis()),
        y=alt.Y("relative:Q", title="cost over the reference's", scale=alt.Scale(zero=False)),
        color=colour(labels),
        shape=shape(labels),
        size=alt.condition("datum.chosen", alt.value(190), alt.value(60)),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("vocab_size:Q"), alt.Tooltip("relative:Q", format=".3f")],
    )  # fmt: skip
    return Figure(
        "frontier",
        "Cost of serving against the size of the vocabulary",
        spec(points, 340, rows=rows),
        "Lower is cheaper; large marks are the finalists. The cost is FLOPs of reading a byte and generating a byte.",
        f"{report['documents']:,} documents ({si(report['bytes'])}B), {report['made']}",
    )
