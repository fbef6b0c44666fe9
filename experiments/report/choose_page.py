"""The page of `superbpe choose`: the frontier of cost against vocabulary, the finalists, and where they differ."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.numbers import percent, si, signed
from experiments.progress import Lines, Table
from experiments.report import page
from experiments.report.fertility_page import ABOUT_STRR, difference, with_interval
from experiments.report.figures import Figure, colour, data, shape, spec
from experiments.shell import command_text
from tokenizer.corpus.text_files import without_ending
from tokenizer.errors import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MUCH_SHARED = 0.01
"""Share of the measured words that occur in the training text from which on it is said."""
SAMPLES = {1.0: 6.71, 7.9: 1.86, 32.0: 0.58, 131.0: 0.29}
"""More tokens, in percent, by MB of training text: 32,768 tokens of BPE on English against 514 MB (docs/scale.md)."""


def render(report: Mapping[str, Any]) -> str:
    """Return the page for the numbers of `choose.json`."""
    kinds = [row for row in report["rows"] if row["by"] == "kind"]
    grouped = kinds or [row for row in report["rows"] if row["by"] == "source"]
    groups = list(dict.fromkeys(row["group"] for row in grouped))
    finalists = report["finalists"]
    every = sorted(report["tokenizers"], key=lambda one: one["flops_per_byte"])
    return page.render(
        "choose.html",
        title="Which tokenizer for this text",
        figures=[_frontier(report)],
        report=report,
        against=against(report),
        headline=headline(report),
        notes=notes(report),
        groups=groups if len(groups) > 1 else [],
        short=[without_ending(group) for group in groups] if len(groups) > 1 else [],
        cells={(row["tokenizer"], row["group"]): row for row in grouped},
        names=[one["name"] for one in every],
        table_of_all=table(report, every),
        commands={one["name"]: command_text(["superbpe", *one["command"]]) for one in finalists if one["command"]},
        difference=difference,
        shade=partial(_shade, max((abs(_change(row)) for row in grouped), default=0.0)),
        bakeoff=command_text(["superbpe", *report["bakeoff"]["command"]]),
    )


def table(report: Mapping[str, Any], tokenizers: Sequence[Mapping[str, Any]]) -> Table:
    """The table of some tokenizers, for the page and the terminal."""
    chosen, with_losses = {one["name"] for one in report["finalists"]}, has_losses(report)
    rows = []
    for one in tokenizers:
        remark = ""
        if one["name"] in chosen:
            remark = "finalist"
        elif one["lossy"]:
            remark = "loses text"
        elif one["frontier"]:
            remark = "cheapest up to this size"
        rows.append(
            [
                Lines(one["name"], remark),
                f"{one['vocab_size']:,}",
                f"{one['bytes_per_token']:.3f}",
                difference(one, "relative") if one["reference"] != one["name"] else "reference",
                si(one["flops_per_byte"]),
                *([_loss(one)] if with_losses else []),
                with_interval(one, "strr"),
                with_interval(one, "gini"),
                si(one["cache_bytes_per_byte"]),
                f"{one['superwords']:,}",
                si(one["parameters"]),
                "" if one["last_count"] is None else f"{one['last_count']:,}",
            ]
        )
    header = ["tokenizer", "vocabulary", Lines("bytes per", "token"), Lines("cost against", against(report))]
    header.append(Lines("FLOPs", "per byte"))
    if with_losses:
        header.append(Lines("bits", "per byte"))
    header += ["STRR", "Gini", Lines("KV cache,", "bytes per byte"), "superwords"]
    header += [Lines("parameters of", "embedding, head"), Lines("count of the", "last merge")]
    return Table("All tokenizers", header, rows)


def has_losses(report: Mapping[str, Any]) -> bool:
    """Whether models of some tokenizers were measured."""
    return any(one["bits_per_byte"] is not None for one in report["tokenizers"])


def _loss(one: Mapping[str, Any]) -> str:
    """Loss of the models of a tokenizer, and its difference to that of the run's first tokenizer as a remark."""
    if one["bits_per_byte"] is None:
        return "–"
    change = one["loss_percent"]
    return Lines(f"{one['bits_per_byte']:.4f}", f"{signed(change, 2)} %" if change is not None else "")


def against(report: Mapping[str, Any]) -> str:
    """The tokenizer with which each is compared, in words."""
    references = {one["reference"] for one in report["tokenizers"]}
    return "BPE of its size" if len(references) > 1 else report["reference"]


def short_table(report: Mapping[str, Any]) -> Table:
    """The main columns of the tokenizers on the frontier, the finalists, the existing ones and their references."""
    chosen = {one["name"] for one in report["finalists"]} | {*report["existing"]}
    rows = [one for one in report["tokenizers"] if one["frontier"] or one["name"] in chosen]
    references = {one["reference"] for one in rows}
    rows += [one for one in report["tokenizers"] if one["name"] in references and one not in rows]
    rows.sort(key=lambda one: (one["vocab_size"], one["name"] not in references))
    of_held_out = f"{len(report['tokenizers'])} tokenizers on {si(report['text']['bytes'])}B of held-out text"
    title = f"{of_held_out}: finalists, the cheapest up to a size, and BPE of these sizes"
    shown = table(report, rows).cut(columns=8 if has_losses(report) else 7)
    return shown._replace(title=f"{title}; costs of serving {report['deployment']['name']}")


def headline(report: Mapping[str, Any]) -> str:
    """The cheapest finalist against the reference."""
    best = next((one for one in report["finalists"] if one["cheapest"]), None)
    made_here = [one for one in report["tokenizers"] if one["last_count"] is not None]
    if not any(one["supported"] for one in made_here):
        smallest = min(one["vocab_size"] for one in made_here)
        return (
            f"The text is too small to choose by: it has {si(report['training_bytes'])}B to train on, and even with "
            f"{smallest:,} tokens, the last merges of BPE occur fewer than {report['least_count']} times. Use more "
            "text, or smaller vocabularies."
        )
    if best is None:
        # Others are in the table, too, but their last merges are chance.
        which = "tokenizer" if all(one["supported"] for one in made_here) else "tokenizer with enough text for its size"
        return (
            f"No {which} is reliably cheaper to serve than {against(report)}: savings below "
            f"{100 * report['smallest_saving']:.1f} % are within the noise of retraining on other text."
        )
    compared = next(one["reference"] for one in report["tokenizers"] if one["name"] == best["name"])
    size = {one["name"]: one["vocab_size"] for one in report["tokenizers"]}
    equal = f" {compared} is BPE of the same size." if size[best["name"]] == size[compared] else ""
    return f"{best['name']} is {best['why']}.{equal}"


def overlap_sentence(report: Mapping[str, Any]) -> str:
    """How much of the measured text occurs in the training text, and how long the tokens of the cheapest are."""
    overlap, best = report["overlap"], report["finalists"][min(1, len(report["finalists"]) - 1)]
    longest, n_words = best["longest"], overlap["ngram_words"]
    near = ""
    if overlap["near_duplicates"]:
        near = f", without {counted(overlap['near_duplicates'], 'held-out document')} that mostly do"
    return (
        f"{percent(overlap['shared'])} of the measured words occur in the training text in sequences of {n_words} or "
        f"more{near}; the longest token of {best['name']} has {counted(len(longest.encode()), 'byte')}: {longest!r}"
    )


def notes(report: Mapping[str, Any]) -> list[str]:
    """Limits of the comparison: too little text, tokenizers that lose text or were measured on a sample."""
    every, command = report["tokenizers"], report["bakeoff"]["command"]
    n_bytes, reads = report["training_bytes"], report["bakeoff"]["train_bytes"]
    said = []
    if rare := [one["name"] for one in every if one["rare"]]:
        said.append(
            f"The last merges of {listed(rare)} occur fewer than {report['least_count']} times in the training text, "
            "which is too small for these vocabularies: they cannot be finalists"
        )
    if report["missing"]:
        said.append(f"The text has too few pairs for {listed(report['missing'])}")
    if lossy := [one["name"] for one in every if one["lossy"]]:
        said.append(f"Text is lost by {listed(lossy)}, which cannot be finalists")
    said += [*report["unknown"], *report["edges"]]
    if report["unmatched"]:
        said.append(f"The run of models also has {listed(report['unmatched'])}, of which no tokenizer is here")
    if report["overlap"]["near_duplicates"] or report["overlap"]["shared"] >= _MUCH_SHARED:
        said.append(overlap_sentence(report))
    if "eval.cluster=document" in command:
        said.append(
            "The text has too few sources for a verdict by sources, so the next command takes documents to be "
            "independent (eval.cluster=document); for files of different kinds of text its intervals are too narrow"
        )
    if command and reads > n_bytes:
        said.append(
            f"Each model of the next command reads {si(reads)}B, the training text {reads / n_bytes:.1f} times; "
            f"{si(reads)}B of training text or more would be better"
        )
    for one in every:
        if one["software"]:
            said.append(f"{one['name']} is run by {one['software']}, on {counted(one['documents'], 'document')}")
    size = min(SAMPLES, key=lambda size: abs(math.log(1e6 * size / max(n_bytes, 1))))
    said.append(
        f"Trained on {si(n_bytes)}B of text; far more would save about {SAMPLES[size]:.1g} % of the tokens, judging by "
        "BPE of 32,768 tokens on English"
    )
    said.append(ABOUT_STRR)
    said.append("A name says the recipe, the size of the vocabulary and, after -t, the size at which superwords start")
    return said


def _change(row: Mapping[str, Any]) -> float:
    return (row["parity"] or 1.0) - 1


def _shade(most: float, row: Mapping[str, Any]) -> str:
    """Background of a cell of the heat map: the colour says who needs fewer tokens, its strength how many."""
    change = _change(row)
    return f"color-mix(in srgb, var(--c{2 if change < 0 else 0}) {60 * abs(change) / (most or 1):.0f}%, transparent)"


def _frontier(report: Mapping[str, Any]) -> Figure:
    chosen = [one["name"] for one in report["finalists"]]
    fields = ("name", "vocab_size", "flops_per_byte")
    rows = [
        {"tokenizer": one["recipe"], "chosen": one["name"] in chosen, **{field: one[field] for field in fields}}
        for one in report["tokenizers"]
    ]
    labels = list(dict.fromkeys(row["tokenizer"] for row in rows))
    # Recipes stand side by side at each size, where their costs often coincide.
    places = data().encode(
        x=alt.X("vocab_size:O", title="vocabulary size", axis=alt.Axis(format=".3~s", labelAngle=0, labelOverlap=True)),
        xOffset=alt.XOffset("tokenizer:N", scale=alt.Scale(domain=labels)),
        y=alt.Y("flops_per_byte:Q", title="FLOPs per byte", axis=alt.Axis(format="~s"), scale=alt.Scale(zero=False)),
    )  # fmt: skip
    points = places.mark_point(strokeWidth=2).encode(
        color=colour(labels),
        shape=shape(labels),
        size=alt.condition("datum.chosen", alt.value(190), alt.value(60)),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("vocab_size:Q"), alt.Tooltip("flops_per_byte:Q", format=".3s")],
    )  # fmt: skip
    names = places.transform_filter("datum.chosen").mark_text(align="right", dx=-12).encode(text="name:N")
    return Figure(
        "frontier",
        "Cost of serving against the size of the vocabulary",
        spec(alt.layer(points, names), 340, rows=rows),
        "Lower is cheaper; large marks are the finalists. The cost is FLOPs of reading a byte and generating a byte.",
        f"{counted(report['text']['documents'], 'document')} ({si(report['text']['bytes'])}B), {report['made']}",
    )
