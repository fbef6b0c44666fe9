"""The page of `experiments.robustness`: what perturbations of the text cost each tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.cli.console import signed
from experiments.report import findings, page
from experiments.report.figures import Figure, colour, data, shape, spec
from lm.evaluate.comparison import FEWEST_EFFECTIVE, FEWEST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.report.figures import Rows

    Row = Mapping[str, Any]


_LINEAR = 0.1
"""The chart's axis is about linear between this and its negative, and about logarithmic beyond."""
_TICKS = [sign * size for size in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) for sign in (-1, 1)]


def render(report: Mapping[str, Any]) -> str:
    """Return the page for the numbers of `robustness.json`."""
    drawn = measured(report)
    return page.render(
        "robustness.html",
        title=report["title"],
        figures=[figure(report)] if drawn else [],
        report=report,
        rows=drawn,
        sentences=sentences(report),
        findings=findings.robustness(report, FEWEST_SEEDS),
        notes=notes(report),
        change=change,
        ends=ends,
        decision=decision,
    )


def measured(report: Mapping[str, Any]) -> list[list[Row]]:
    """The rows of each perturbation that changes a document, one per tokenizer; the costliest comes first."""
    groups: dict[str, list[Row]] = {}
    for row in report["rows"]:
        if row["bits"] is not None:
            groups.setdefault(row["perturbation"], []).append(row)
    return sorted(groups.values(), key=lambda rows: -max(row["bits"] for row in rows))


def sentences(report: Mapping[str, Any]) -> list[str]:
    """What was found, in words: the costliest perturbation of each tokenizer, and whose models lose more."""
    if not measured(report):
        return ["No perturbation changes any of these documents."]
    reference, *others = [each["name"] for each in report["tokenizers"]]
    found = [_worst(report), *(_compared(report, reference, other) for other in others)]
    if report["n_seeds"] < FEWEST_SEEDS and any(row["loses_more"] for row in report["rows"]):
        runs = "one training run" if report["n_seeds"] == 1 else f"{report['n_seeds']} seeds"
        found.append(
            f"This is about these models ({runs} each): a verdict about the tokenizers requires {FEWEST_SEEDS} seeds."
        )
    return found


def _worst(report: Mapping[str, Any]) -> str:
    """The costliest perturbation of each tokenizer that keeps its text; those with the same one share a sentence."""
    by_title: dict[str, list[str]] = {}
    kept = [row for rows in measured(report) for row in rows if not row["text_lost"]]
    for each in report["tokenizers"]:
        worst = max(
            (row for row in kept if row["tokenizer"] == each["name"]), key=lambda row: row["bits"], default=None
        )
        if worst is None:
            continue
        where = f" in {100 * report['share']:g}\N{NO-BREAK SPACE}% of the words" if worst["random"] else ""
        share = f"{signed(100 * worst['bits'] / each['bits_per_byte'], 0)}\N{NO-BREAK SPACE}%"
        cost = f"{each['name']} {signed(worst['bits'])} ({share})"
        by_title.setdefault(f"{worst['title']}{where}", []).append(cost)
    return " ".join(
        f"Most harmful: {title}. Change of bits per original byte: {', '.join(costs)}."
        for title, costs in by_title.items()
    )


def _compared(report: Mapping[str, Any], reference: str, other: str) -> str:
    """Under which perturbations a tokenizer loses more or less than the reference."""
    rows = [row for row in report["rows"] if row["tokenizer"] == other and row["difference"] is not None]
    if not rows:
        return f"{other} is not compared with {reference}: one of them loses text under every perturbation."
    judged = [row for row in rows if not row["too_few"]]
    units, fewest = f"{report['cluster']}s", FEWEST_EFFECTIVE[report["cluster"]]
    if not judged:
        return (
            f"Too few changed {units} to say whether {other} or {reference} loses more: all {report['n_clusters']:,} "
            f"are worth {report['effective_clusters']:.1f} of equal size, and at least {fewest} are required."
        )
    parts = []
    for side, name in (("this", other), ("reference", reference)):
        if found := [row for row in judged if row["loses_more"] == side]:
            most = max(found, key=lambda row: abs(row["difference"]))
            low, high = sorted(abs(most[f"difference_{end}"]) for end in ("low", "high"))
            parts.append(
                f"{name} loses more under {len(found)} (most under {most['title']}: {abs(most['difference']):.4f} bits "
                f"per original byte, {low:.4f} to {high:.4f})"
            )
    undecided = sum(row["loses_more"] is None for row in judged)
    parts += [f"{undecided} show{'s' * (undecided == 1)} no significant difference"] if undecided else []
    few = len(rows) - len(judged)
    parts += [f"{few} change{'s' * (few == 1)} too few {units}"] if few else []
    return f"{other} against {reference} under {len(rows)} perturbations: {'; '.join(parts)}."


def notes(report: Mapping[str, Any]) -> list[str]:
    """What limits the comparison: perturbations without effect, and tokenizers that lose text."""
    found = []
    if unchanged := list(dict.fromkeys(row["title"] for row in report["rows"] if row["bits"] is None)):
        found.append(f"No document changes under: {', '.join(unchanged)}")
    for each in report["tokenizers"]:
        lost = [row["title"] for row in report["rows"] if row["tokenizer"] == each["name"] and row["text_lost"]]
        if lost:
            found.append(
                f"{each['name']} loses text under: {', '.join(lost)}. Its change there covers only the text that it "
                "keeps, so it is not compared"
            )
    return found


def change(row: Row, name: str) -> str:
    """A change of `tokens` in percent, or of `bits`, or a `difference` of such changes; empty if there is none."""
    if row[name] is None:
        return ""
    return f"{signed(100 * row[name], 1)}\N{NO-BREAK SPACE}%" if name == "tokens" else signed(row[name])


def ends(row: Row, name: str) -> str:
    """The interval of a `change`; empty if there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None:
        return ""
    return " to ".join(signed(100 * end, 1) if name == "tokens" else signed(end) for end in (low, high))


def decision(report: Mapping[str, Any], row: Row) -> str:
    """Whose models lose more, or why they are not compared; empty for the reference."""
    if row["difference"] is None:
        return str(row["withheld"])
    if row["too_few"]:
        return f"too few changed {report['cluster']}s"
    sides = {"this": row["tokenizer"], "reference": report["tokenizers"][0]["name"]}
    return "no significant difference" if row["loses_more"] is None else f"{sides[row['loses_more']]} loses more"


def table(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table in the terminal."""
    reference = report["tokenizers"][0]["name"]
    header = ["", "tokenizer", "tokens", "bits per original byte", f"difference from {reference}", ""]
    cells = [
        [
            row["perturbation"] if row is rows[0] else "",
            row["tokenizer"],
            *(change(row, name) for name in ("tokens", "bits", "difference")),
            decision(report, row),
        ]
        for rows in measured(report)
        for row in rows
    ]
    return header, cells


def figure(report: Mapping[str, Any]) -> Figure:
    """Return the chart of the page."""
    groups = measured(report)
    drawn = [
        {name: row[name] for name in ("tokenizer", "title", "tokens", "bits", "bits_low", "bits_high", "text_lost")}
        for rows in groups
        for row in rows
    ]
    labels = [each["name"] for each in report["tokenizers"]]
    faint = " Faint: the tokenizer loses text." if any(row["text_lost"] for row in drawn) else ""
    return Figure(
        "bits",
        "Bits that the perturbed text needs in addition, per byte of the original text",
        chart(drawn, labels, [rows[0]["title"] for rows in groups]),
        f"Further right is worse. The axis is compressed beyond {_LINEAR:g}. Mean over the seeds, with "
        f"{100 * report['confidence']:g} % intervals.{faint}",
        f"{report['n_documents']:,} held-out documents, {report['made']}",
    )


def chart(rows: Rows, labels: Sequence[str], titles: Sequence[str]) -> dict[str, Any]:
    """Changes of the bits per original byte with their intervals.

    Args:
        rows: Perturbation, tokenizer, change and interval.
        labels: Names of the tokenizers, in the order of their colours.
        titles: Titles of the perturbations, from top to bottom.
    """
    ends = [row[name] for row in rows for name in ("bits", "bits_low", "bits_high") if row[name] is not None]
    ticks = [tick for tick in _TICKS if min(ends) <= tick <= max(ends)]
    x = {
        "title": "change of bits per original byte",
        "axis": alt.Axis(values=sorted({0, *ticks}), format="~g"),
        "scale": alt.Scale(type="symlog", constant=_LINEAR, nice=False),
    }
    base = data().encode(
        y=alt.Y("title:N", title=None, sort=list(titles), axis=alt.Axis(ticks=False, domain=False, labelLimit=260)),
        yOffset=alt.YOffset("tokenizer:N", sort=list(labels)),
        color=colour(labels),
        tooltip=[
            alt.Tooltip("title:N", title="perturbation"),
            alt.Tooltip("tokenizer:N"),
            alt.Tooltip("tokens:Q", title="tokens", format="+.1%"),
            alt.Tooltip("bits:Q", title="bits per original byte", format="+.4f"),
            alt.Tooltip("bits_low:Q", title="from", format="+.4f"),
            alt.Tooltip("bits_high:Q", title="to", format="+.4f"),
        ],
    )
    whisker = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("bits_low:Q", **x), x2="bits_high:Q", opacity=_unless_lost(0.55)
    )
    point = base.mark_point(filled=True, size=60).encode(
        x=alt.X("bits:Q", **x), shape=shape(labels), opacity=_unless_lost(1)
    )
    zero = data("zero").mark_rule(strokeDash=[4, 4], opacity=0.7).encode(x="bits:Q")
    height = len(titles) * max(30, 9 * len(labels) + 8) + 20
    return spec(zero + whisker + point, height=height, rows=rows, zero=[{"bits": 0}])


def _unless_lost(opacity: float) -> Any:
    """An opacity that is smaller for tokenizers that lose text."""
    return alt.condition("datum.text_lost", alt.value(opacity / 3), alt.value(opacity))
