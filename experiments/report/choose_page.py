"""The page of `superbpe choose`: the frontier of cost against vocabulary, the finalists, and where they differ."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.fertility.choosing import CHEAPEST
from experiments.numbers import si
from experiments.progress import Lines, Table
from experiments.report import page
from experiments.report.fertility_page import premium
from experiments.report.figures import Figure, colour, data, shape, spec, vocabulary_axis
from experiments.shell import command_text
from tokenizer.errors import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUFFIX = r"\.(txt|jsonl?|csv|parquet)(\.(gz|zst))?$"
LEAST_COUNT = 10
"""A vocabulary whose last merge is rarer than this in the training text is noted: the text is too small for it."""

SAMPLES = {1.0: 6.71, 7.9: 1.86, 32.0: 0.58, 131.0: 0.29}
"""More tokens, in percent, by MB of training text: 32,768 tokens of BPE on English against 514 MB (docs/scale.md)."""


def render(report: Mapping[str, Any]) -> str:
    """Return the page for the numbers of `choose.json`."""
    kinds = [row for row in report["rows"] if row["by"] == "kind"]
    grouped = kinds or [row for row in report["rows"] if row["by"] == "source"]
    groups = list(dict.fromkeys(row["group"] for row in grouped))
    every = sorted(report["tokenizers"], key=lambda one: one["relative"])
    return page.render(
        "choose.html",
        title="Which tokenizer for this text",
        figures=[_frontier(report)],
        report=report,
        headline=headline(report),
        notes=notes(report),
        groups=groups if len(groups) > 1 else [],
        short=[re.sub(_SUFFIX, "", group) for group in groups] if len(groups) > 1 else [],
        cells={(row["tokenizer"], row["group"]): row for row in grouped},
        names=[one["name"] for one in every],
        table_of_all=table(report, every),
        premium=premium,
        shade=_shade,
        bakeoff=command_text(["superbpe", *report["bakeoff"]["command"]]),
    )


def table(report: Mapping[str, Any], tokenizers: Sequence[Mapping[str, Any]]) -> Table:
    """The table of some tokenizers, for the page and the terminal."""
    chosen = {one["name"] for one in report["finalists"]}
    rows = []
    for one in tokenizers:
        place = "loses text" if one["lossy"] else "cheapest up to this size" if one["frontier"] else ""
        remark = "finalist" if one["name"] in chosen else place
        rows.append(
            [
                Lines(one["name"], remark),
                f"{one['vocab_size']:,}",
                f"{one['bytes_per_token']:.3f}",
                premium(one, "relative"),
                si(one["cache_bytes_per_byte"]),
                f"{one['superwords']:,}",
                si(one["parameters"]),
                "" if one["last_count"] is None else f"{one['last_count']:,}",
            ]
        )
    header = ["tokenizer", "vocabulary", Lines("bytes per", "token"), Lines("cost against", report["reference"])]
    header += [Lines("KV cache,", "bytes per byte"), "superwords", Lines("parameters of", "embedding, head")]
    header.append(Lines("count of the", "last merge"))
    return Table("All tokenizers", header, rows)


def short_table(report: Mapping[str, Any]) -> Table:
    """The main columns of the tokenizers on the frontier, the finalists and the existing ones, by size."""
    chosen = {one["name"] for one in report["finalists"]} | {*report["existing"]}
    rows = [one for one in report["tokenizers"] if one["frontier"] or one["name"] in chosen]
    title = (
        f"{len(report['tokenizers'])} tokenizers on {si(report['text']['bytes'])}B of held-out text: finalists, and "
    )
    title += f"the cheapest up to a size; costs of serving {report['deployment']['name']}"
    return table(report, sorted(rows, key=lambda one: one["vocab_size"])).cut(columns=5)._replace(title=title)


def headline(report: Mapping[str, Any]) -> str:
    """The cheapest finalist against the reference."""
    best = next((one for one in report["finalists"] if one["why"].startswith(CHEAPEST)), None)
    if best is None:
        return (
            f"No tokenizer is certainly cheaper to serve than {report['reference']}: a saving counts from "
            f"{100 * report['smallest_saving']:.1f} % on, because other training text can change the cost as much."
        )
    too_small = not {one["name"] for one in report["finalists"]}.isdisjoint(_rare(report))
    hint = " The text is too small for some of these vocabularies (see below)." if too_small else ""
    return f"{best['name']} is {best['why']}.{hint}"


def _rare(report: Mapping[str, Any]) -> list[str]:
    """Names of the tokenizers for whose vocabulary the text is too small."""
    return [one["name"] for one in report["tokenizers"] if (one["last_count"] or LEAST_COUNT) < LEAST_COUNT]


def notes(report: Mapping[str, Any]) -> list[str]:
    """Limits of the comparison: too little text, tokenizers that lose text or were measured on a sample."""
    every = report["tokenizers"]
    rare = listed(_rare(report))
    missing, lossy = listed(report["missing"]), listed(one["name"] for one in every if one["lossy"])
    limits = {
        f"the last merges of {rare} occur fewer than {LEAST_COUNT} times in the training text: it is too small": rare,
        f"the text has too few pairs for {missing}": missing,
        f"text is lost by {lossy}, which cannot be finalists": lossy,
        "; ".join(report["unknown"]): report["unknown"],
        "the text has too few sources for a verdict by sources, so the next command takes documents to be independent "
        "(eval.cluster=document); for files of different kinds of text its intervals are too narrow": (
            "eval.cluster=document" in report["bakeoff"]["command"]
        ),
    }
    n_bytes = report["training_bytes"]
    size = min(SAMPLES, key=lambda size: abs(math.log(1e6 * size / max(n_bytes, 1))))
    saved = f"far more would save about {SAMPLES[size]:.1g} % of the tokens, judging by BPE"
    other = [one for one in every if one["software"]]
    return [
        *(note for note, reason in limits.items() if reason),
        *(f"{one['name']} is run by {one['software']}, on {counted(one['documents'], 'document')}" for one in other),
        f"trained on {si(n_bytes)}B of text; {saved} of 32,768 tokens on English",
        "a name says the recipe, the size of the vocabulary and, after -t, the size at which superwords start",
    ]


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
    points = data().mark_point(strokeWidth=2).encode(
        x=vocabulary_axis(rows),
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
        f"{counted(report['text']['documents'], 'document')} ({si(report['text']['bytes'])}B), {report['made']}",
    )
