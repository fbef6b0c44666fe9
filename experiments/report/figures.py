"""Figures: one Vega-Lite specification for the page and for papers, with the data as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.characters import all_harmless, visible

if TYPE_CHECKING:
    from experiments.progress import Table

Rows = Sequence[Mapping[str, Any]]
HEIGHT = 260

COLOURS = 8
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-right", "triangle-down", "triangle-left")
_LEGEND_CHARACTERS = 40  # length of a legend line above a chart of half the page's width
PAPER_WIDTH = 460
PNG_SCALE = 3.0
PAPER = {
    "background": "white",
    "font": "Helvetica, Arial, DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    # The light colours --c0 to --c7 of style.css.
    "range": {"category": ["#b84a00", "#0068a8", "#00795a", "#8b3a76", "#7a6200", "#4b4bb0", "#a3324d", "#4f5560"]},
    "axis": {"gridColor": "#e5e5e5", "domainColor": "#888", "tickColor": "#888", "titleFontWeight": 500},
    "legend": {"labelLimit": 400},
    "bar": {"color": "#0068a8"},
}
"""Style of figures in papers; a page uses its own light or dark colours."""


@dataclass(frozen=True)
class Figure:
    """A chart of a page.

    Attributes:
        name: Name of the page's element and of files.
        spec: Vega-Lite specification; its data set `rows` is written as CSV.
        source: Run or file that the numbers come from.
    """

    name: str
    title: str
    spec: dict[str, Any]
    caption: str = ""
    source: str = ""


def data(name: str = "rows") -> alt.Chart:
    """Return a chart of a named data set, for `spec`."""
    return alt.Chart(alt.NamedData(name=name))


def spec(chart: Any, height: int = HEIGHT, **datasets: Rows) -> dict[str, Any]:
    """Return a chart's specification, as wide as its container on the page.

    Args:
        chart: Chart made from `data`.
        height: Height in pixels.
        datasets: Rows of each data set of the chart, including `rows`.
    """
    drawing: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    drawing.pop("config", None)  # Altair's defaults; a page has its own
    drawing["datasets"] = {name: [dict(row) for row in rows] for name, rows in datasets.items()}
    whole: dict[str, Any] = all_harmless(drawing)
    return whole


def colour(labels: Sequence[str], *, shown: bool = True, among: Sequence[str] | None = None) -> alt.Color:
    """Return the colour encoding of the rows' `tokenizer`. It has no range, because pages set light or dark colours.

    Args:
        labels: Labels of the chart.
        shown: Whether to show a legend.
        among: All labels of the page, if the chart has only some of them, so that each keeps its colour.
    """
    scale = alt.Scale(domain=list(among or labels))
    return alt.Color("tokenizer:N", scale=scale, legend=legend(labels) if shown else None)


def shape(labels: Sequence[str], *, among: Sequence[str] | None = None) -> alt.Shape:
    """Return a shape for each label, in addition to its colour. Takes the arguments of `colour`."""
    every = list(among or labels)
    # Labels with the same colour (every `COLOURS` labels) get different shapes.
    shapes = [_SHAPES[(i + i // COLOURS) % len(_SHAPES)] for i in range(len(every))]
    return alt.Shape("tokenizer:N", scale=alt.Scale(domain=every, range=shapes), legend=legend(labels))


def legend(labels: Sequence[str]) -> alt.Legend:
    """Return the same legend for every channel, so that Vega-Lite merges them; long labels get a line each."""
    beside = sum(map(len, labels)) <= _LEGEND_CHARACTERS
    columns = 2 if max(map(len, labels), default=0) <= _LEGEND_CHARACTERS // 2 - 4 else 1
    if beside:
        columns = 0  # all in one row
    return alt.Legend(
        title=None,
        values=list(labels),
        orient="top",
        columns=columns,
        symbolStrokeWidth=3,
        symbolSize=160,
        symbolOpacity=1,  # also for areas
    )


def vocabulary_axis(rows: Rows) -> alt.X:
    """Return the logarithmic axis of the rows' `vocab_size`, labelled at 10k, 20k, 50k and so on, and at its end."""
    sizes = [row["vocab_size"] for row in rows]
    ticks = [digit * 10**power for power in range(2, 9) for digit in (1, 2, 5)]
    values = [*(tick for tick in ticks if min(sizes) <= tick < 0.8 * max(sizes)), max(sizes)]
    axis = alt.Axis(format=".3~s", values=values, labelFlush=False)
    return alt.X("vocab_size:Q", title="vocabulary size", scale=alt.Scale(type="log", nice=False), axis=axis)


def to_csv(rows: Rows) -> str:
    """Return rows as CSV with a header (RFC 4180)."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_IN_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "α": r"$\alpha$",
    "µ": r"$\mu$",
}


def to_latex(tables: Iterable[Table]) -> str:
    """Return tables as LaTeX for the package booktabs; further lines of a cell follow the first one in small type."""

    def cell(text: str) -> str:
        first, *remarks = ("".join(_IN_LATEX.get(c, c) for c in visible(line)) for line in text.split("\n"))
        return " ".join([first, *(rf"{{\footnotesize {remark}}}" for remark in remarks)])

    written = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        header = [" ".join(name.split("\n")) for name in table.header]
        columns = "".join("l" if i in table.text else "r" for i in range(len(header)))
        head, *rows = (" & ".join(map(cell, row)) + r" \\" for row in (header, *table.rows))
        begin = [r"\begin{table}", rf"\caption{{{cell(table.title)}}}", rf"\begin{{tabular}}{{{columns}}}"]
        written += [*begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(written)
