"""Tables for the console, the same tables as CSV, and plots as SVG and PNG."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import altair as alt
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from experiments.benchmarks.ladder.training import Training

# Pairs of light and dark for neighbouring rungs; black for the native core, red for HF.
_COLORS = ["#4e79a7", "#a0cbe8", "#f28e2b", "#ffbe7d", "#59a14f", "#8cd17d", "#b6992d", "#f1ce63", "#b07aa1"]
_COLORS += ["#000000", "#e15759"]
_SIZE = {"width": 620, "height": 380}


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table to a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _save(chart: Any, folder: Path, name: str) -> None:
    for suffix in ("svg", "png"):
        chart.save(folder / f"{name}.{suffix}", **({"scale_factor": 2} if suffix == "png" else {}))


def _table(title: str, columns: Sequence[str], caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption)
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)
    return table


def training_table(result: Training, folder: Path) -> Table:
    """Return the table of seconds by vocabulary size; write training.csv and its plot."""
    sizes = list(result.rows[0].training)
    table = _table(
        f"Seconds of training, {result.n_bytes / 1e6:.1f} MB, {result.n_distinct:,} distinct pretokens of "
        f"{result.n_total:,}",
        ["", "preprocessing", *(f"vocabulary {size:,}" for size in sizes), "merges done", "selecting", "peak MB", " "],
        "~ extrapolated from the merges within the limit; selecting: share of the time after setup; peak MB: of the "
        "main process",
    )
    header = ["trainer", "preprocessing_seconds", "preprocessing_measured", "vocab_size", "training_seconds"]
    lines: list[list[Any]] = []
    for row in result.rows:
        table.add_row(
            row.name,
            str(row.preprocessing),
            *(str(row.training[size]) for size in sizes),
            f"{row.merges_done:,}",
            "" if row.selecting_share is None else f"{row.selecting_share:.0%}",
            "" if row.peak_mb is None else f"{row.peak_mb:,.0f}",
            row.remark,
        )
        start = [row.name, row.preprocessing.value, row.preprocessing.measured]
        end = [row.merges_done, row.selecting_share, row.peak_mb, row.remark]
        lines += [[*start, size, cell.value, cell.measured, *end] for size, cell in row.training.items()]
    tail = ["training_measured", "merges_done", "selecting_share", "peak_mb", "remark"]
    write_csv(folder / "training.csv", [*header, *tail], lines)
    _plot_training(result, folder)
    return table


def _color(names: Sequence[str]) -> Any:
    return alt.Color("trainer:N", sort=list(names), title=None, scale=alt.Scale(domain=list(names), range=_COLORS))


def _plot_training(result: Training, folder: Path) -> None:
    names = [row.name for row in result.rows]
    values = [
        {
            "trainer": row.name,
            "vocab_size": size,
            "seconds": max(cell.value, 1e-4),
            "time": "measured" if cell.measured else "extrapolated",
        }
        for row in result.rows
        for size, cell in row.training.items()
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("vocab_size:Q", title="vocabulary size", scale=alt.Scale(type="log", nice=False)),
        y=alt.Y("seconds:Q", title="seconds of training, without preprocessing", scale=alt.Scale(type="log")),
        color=_color(names),
    )
    dots = base.mark_point(size=70, filled=False).encode(
        shape=alt.Shape(
            "time:N", title=None, scale=alt.Scale(domain=["measured", "extrapolated"], range=["circle", "cross"])
        )
    )
    title = f"Training by vocabulary size, {result.n_bytes / 1e6:.0f} MB of text"
    _save((base.mark_line() + dots).properties(title=title, **_SIZE), folder, "training")


def per_merge_table(result: Training, folder: Path) -> Table:
    """Return the table of milliseconds per merge; write per_merge.csv, with finer intervals, and its plot."""
    table = _table(
        "Milliseconds per merge, as training proceeds",
        ["", *(f"{first:,}–{stop - 1:,}" for first, stop in result.stretches)],
        "empty: the limit was reached first, or the trainer does not report single merges",
    )
    for row in result.rows:
        cells = [row.per_merge.get(stretch) for stretch in result.stretches]
        if row.per_merge:
            table.add_row(row.name, *("" if cell is None else f"{cell * 1e3:,.3f}" for cell in cells))
    points = [(row.name, number, seconds) for row in result.rows for number, seconds in row.points]
    write_csv(folder / "per_merge.csv", ["trainer", "merge", "seconds"], points)
    values = [
        {"trainer": name, "merge": number, "milliseconds": seconds * 1e3}
        for name, number, seconds in points
        if seconds > 0
    ]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X("merge:Q", title="merge", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("milliseconds:Q", title="milliseconds per merge", scale=alt.Scale(type="log")),
            color=_color([row.name for row in result.rows]),
        )
    )
    _save(chart.properties(title="Milliseconds per merge, as training proceeds", **_SIZE), folder, "per_merge")
    return table
