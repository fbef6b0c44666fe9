from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from experiments.report import charts
from experiments.report.figures import Figure, save, to_csv
from tokenizer.errors import UserError

ROWS = [
    {"tokenizer": label, "vocab_size": size, "bytes_per_token": size / 1000}
    for label in ("BPE", 'Super, "200k"')
    for size in (1000, 2000, 4000)
]
TRANSITIONS = [{"tokenizer": "BPE", "vocab_size": 1500}]


def _figure() -> Figure:
    return Figure("growth", "Growth", charts.compression(ROWS, ["BPE", 'Super, "200k"'], TRANSITIONS))


def test_csv_is_the_rows_of_the_chart() -> None:
    text = to_csv(_figure().spec["datasets"]["rows"])
    read = list(csv.DictReader(text.splitlines()))
    assert [
        {**row, "vocab_size": int(row["vocab_size"]), "bytes_per_token": float(row["bytes_per_token"])} for row in read
    ] == ROWS


def test_figures_for_papers(tmp_path: Path) -> None:
    written = save([_figure()], tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["growth.csv", "growth.svg", "growth.png"]
    drawn = "".join(ET.parse(written[1]).getroot().itertext())
    assert "bytes per token" in drawn
    assert "transition" in drawn
    assert written[2].read_bytes().startswith(b"\x89PNG")


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'gif' is not a figure format; use csv, svg, png"):
        save([_figure()], tmp_path, ["gif"])


def test_only_a_single_transition_is_named() -> None:
    one = charts.compression(ROWS, ["BPE"], TRANSITIONS)
    two = charts.compression(ROWS, ["BPE"], [*TRANSITIONS, {"tokenizer": "BPE", "vocab_size": 1600}])
    assert [len(chart["layer"]) for chart in (one, two)] == [3, 2]
