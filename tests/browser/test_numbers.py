"""Numbers that a page formats look the same as those that Python formats."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from experiments.cli.console import percent, si, signed
from lm.scaling.verdict import flops_text

# No exact ties.
VALUES = [
    0, 1, -1, 0.5, -0.04, 0.05, -2.5, 0.0007, -0.00004, 1.7021, 9.995, 12.34, 96.55, 100, 999.4,
    999.6, -1500, 12_345, 999_499, 999_500, 1_000_000, 94_200_000, 2.5e9, 9.9951e11, 3.41e15, 2.6e18,
]  # fmt: skip


def test_the_browser_formats_numbers_as_python_does(opened: Any, tmp_path: Path) -> None:
    script = importlib.resources.files("experiments.report").joinpath("numbers.js").read_text(encoding="utf-8")
    path = tmp_path / "numbers.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}</script>", encoding="utf-8")
    found = opened.open(path).evaluate(
        """(values) => values.map((x) => [
            numbers.si(x), numbers.g(x, 6), numbers.signed(x), numbers.signed(x, 1), numbers.percent(x),
            numbers.percent(x, 0), numbers.thousands(Math.round(x)), x > 1e10 ? numbers.flopsText(x) : ""
        ])""",
        VALUES,
    )
    for value, texts in zip(VALUES, found, strict=True):
        expected = [si(value), f"{value:.6g}", signed(value), signed(value, 1), percent(value), percent(value, 0)]
        assert texts[:6] == expected, value
        if float(value).is_integer() and value:
            assert texts[6] == f"{int(value):,}"
        assert texts[7] == (flops_text(value) if value > 1e10 else ""), value
    opened.check()
