"""Training history, merge by merge: `python -m experiments.history TOKENIZER_FOLDER --text FILE --out FOLDER`.

Writes for each tokenizer a `merges-NAME.parquet` (or `.jsonl`) with one row per merge and its effect on the text, and
`curve.svg`, bytes per token against vocabulary size, with the curves published by the authors of SuperBPE. Prints the
effect of phase 2 after some of its merges.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from experiments.cli.console import console, finish, percent, print_table
from experiments.cli.options import TOKENIZER, Parser, add_text_settings, command, labels_of, open_exact, open_text
from experiments.report.characters import harmless
from superbpe.inspection import history
from tokenizer import UserError, storage
from tokenizer.durable import replacing, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

PUBLISHED_MERGES = [20_000, 40_000, 80_000, 100_000, 140_000, 200_000]
PUBLISHED = {
    "BPE": [3.986, 4.203, 4.352, 4.385, 4.425, 4.457],
    "no pretokens": [4.505, 5.025, 5.551, 5.721, 5.977, 6.243],
    "SuperBPE, t = 20k": [4.024, 5.371, 5.919, 6.091, 6.347, 6.610],
    "SuperBPE, t = 80k": [3.989, 4.207, 4.398, 5.926, 6.339, 6.634],
}
"""Bytes per token of the authors' tokenizers (trained on 10 GB of OLMo 2's mix) on 1 GB of held-out text of that mix,
by number of merges: github.com/PythonNut/superbpe, commit bbd0976, `tokenizer_json/*/olmo2/*.json`. The text differs
from yours, so only the shapes of the curves are comparable, not their values."""

_POINTS = 400  # points of a curve in the plot; the log has one row per merge


def parser() -> Parser:
    """Options of the command."""
    options = Parser(
        "history",
        "A log of all merges, and bytes per token against vocabulary size.",
    )
    options.add_argument(
        "tokenizers",
        nargs="+",
        metavar="TOKENIZER",
        help=f"{TOKENIZER}; NAME=TOKENIZER names it in the results",
    )
    options.add_argument("--text", nargs="+", required=True, metavar="FILE", help="held-out text, as in corpus.paths")
    options.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="folder for the results")
    add_text_settings(options)
    options.add_argument("--max-bytes", type=int, default=None, help="use at most this much text")
    options.add_argument("--jsonl", action="store_true", help="write JSON lines instead of Parquet")
    options.add_argument("--overwrite", action="store_true", help="replace existing results in the folder")
    options.add_argument("--no-published", action="store_true", help="leave the published curves out of the plot")
    return options


def _run(arguments: argparse.Namespace) -> None:
    corpus = open_text(arguments, arguments.text, max_bytes=arguments.max_bytes)
    paths = _named(arguments.tokenizers)
    logs = {name: _log(arguments.out, name, jsonl=arguments.jsonl) for name in paths}
    drawn = arguments.out / "curve.svg"
    for path in (*logs.values(), drawn):
        if path.exists() and not arguments.overwrite:
            raise UserError(f"{path} already exists; choose another folder with --out, or add --overwrite")
    tokenizers = {name: open_exact(path) for name, path in paths.items()}
    storage.disk.make_folder(arguments.out)
    rows = []
    for name, tokenizer in tokenizers.items():
        found = history.measure(tokenizer, corpus.batches("all"))
        if found.n_bytes == 0:
            raise UserError(f"{', '.join(arguments.text)} contains no text")
        _write(history.merge_log(tokenizer, history=found), logs[name], jsonl=arguments.jsonl)
        label = f"{name} ({tokenizer.pattern.name}" + (f", {tokenizer.fence.name})" if tokenizer.fence else ")")
        rows += curve_rows(found, label)
        console.print(f"{name}: {len(tokenizer.merge_ids):,} merges on {found.n_bytes / 1e6:.1f} MB of text")
        if len(tokenizer.merge_ids) > tokenizer.n_phase1_merges:
            header, cells = _table(history.early_statistics(tokenizer, found))
            print_table(f"Phase 2 of {label}", header, cells, "merges 0: only the fence is lifted")
    chart = curve_chart(rows, published=not arguments.no_published)
    drawing = io.StringIO()
    chart.save(drawing, format="svg")
    write_whole(drawn, drawing.getvalue())
    finish(*logs.values(), drawn, then=["inspect", *paths.values(), "--text", *arguments.text])


def _named(given: list[str]) -> dict[str, str]:
    """Split NAME=PATH. The default name is that of the folder or file."""
    paths: dict[str, str] = {}
    for entry, label in zip(given, labels_of(given), strict=True):
        name, equals, path = entry.partition("=")
        if not equals or Path(entry).exists():
            path, name = entry, re.sub(r"[^\w. -]", "-", label)
        if name in paths:
            raise UserError(f"two tokenizers are called {name}: write NAME=PATH, as in other={path}")
        if not re.fullmatch(r"[\w. -]+", name):
            raise UserError(f"{name!r} cannot be a file name; use letters, digits, '.', '-', '_' and spaces")
        paths[name] = path
    return paths


def _log(folder: Path, name: str, *, jsonl: bool) -> Path:
    return folder / f"merges-{name}.{'jsonl' if jsonl else 'parquet'}"


def _write(log: pa.Table, path: Path, *, jsonl: bool) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as file:
        if jsonl:
            file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in log.to_pylist())
        else:
            pq.write_table(log, file, compression="zstd")


def _table(rows: list[history.Progressed]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of phase 2."""
    cells = [
        [
            f"{row.merges:,}",
            percent(row.superword_share),
            percent(round(row.saved, 4) + 0.0, 2),
            "–" if row.bytes_per_token is None else f"{row.bytes_per_token:.3f}",
        ]
        for row in rows
    ]
    return ["merges", "superwords among them", "tokens saved", "bytes per token"], cells


def curve_rows(found: history.History, label: str) -> list[dict[str, Any]]:
    """Points of a curve (`tokenizer`, `vocab_size`, `bytes_per_token`), log-spaced, and denser after the transition."""
    sizes, values = found.sizes(), found.bytes_per_token()
    end = int(sizes[-1])
    chosen = {round(size) for size in np.geomspace(min(512, end), end, _POINTS)}
    at = found.transition
    chosen |= {at, *range(at, min(at + max((end - at) // 10, 1), end) + 1, max((end - at) // 200, 1))}
    return [
        {"tokenizer": harmless(label), "vocab_size": int(size), "bytes_per_token": float(values[size - sizes[0]])}
        for size in sorted(chosen)
        if sizes[0] <= size <= end
    ]


def _ends(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last points of the published curves, with non-overlapping label positions as `label_at`."""
    last = [point for point in points if point["vocab_size"] == 256 + PUBLISHED_MERGES[-1]]
    below = 0.0
    for point in sorted(last, key=lambda point: point["bytes_per_token"]):
        point["label_at"] = below = max(point["bytes_per_token"], below + 0.2)
    return last


def curve_chart(rows: list[dict[str, Any]], *, published: bool) -> alt.LayerChart:
    """Bytes per token against vocabulary size, with the published curves in the background."""
    y = alt.Y("bytes_per_token:Q", title="bytes per token", scale=alt.Scale(zero=False))
    x = alt.X(
        "vocab_size:Q",
        title="vocabulary size",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~s", tickCount=8),
    )
    legend = alt.Legend(title=None, orient="top-left", labelLimit=400)
    ours = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=2.5)
        .encode(x=x, y=y, color=alt.Color("tokenizer:N", legend=legend))
    )
    layers: list[Any] = [ours]
    if published:
        points = [
            {"published": name, "vocab_size": 256 + merges, "bytes_per_token": value}
            for name, values in PUBLISHED.items()
            for merges, value in zip(PUBLISHED_MERGES, values, strict=True)
        ]
        base = alt.Chart(alt.Data(values=points)).encode(x=x, y=y, detail="published:N")
        names = alt.Chart(alt.Data(values=_ends(points))).mark_text(align="left", dx=6, color="#666").encode(
            x=x, y=alt.Y("label_at:Q", title="bytes per token", scale=alt.Scale(zero=False)), text="published:N"
        )  # fmt: skip
        layers = [base.mark_line(color="#999", strokeDash=[5, 3], point=alt.OverlayMarkDef(color="#999")), names, ours]
    title = alt.TitleParams(
        "Bytes per token by vocabulary size",
        subtitle="dashed: published by the authors of SuperBPE, on their text" if published else "",
        anchor="start",
    )
    chart: alt.LayerChart = alt.layer(*layers).properties(width=640, height=360, title=title)
    return chart


run = command(parser, _run)


if __name__ == "__main__":
    sys.exit(run())
