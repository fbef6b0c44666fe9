"""Scanning, counting and reading by kind: the table has a row per kind, with rates and ratios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.benchmarks import counting


def test_every_kind_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"text": f"{word} {i}\n" * 200, "source": kind}
        for kind, word in [("zh", "漢字"), ("c", "int")]
        for i in range(4)
    ]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert counting.main([str(texts), "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    for kind in ("zh", "c"):
        cells = next(line for line in out.splitlines() if f"│ {kind} " in line).split("│")[2:-1]
        assert all(float(cell) >= 0 for cell in cells)
    assert counting.main([str(texts), "--kinds", "rust"]) == 2
    assert "--kinds='rust'" in capsys.readouterr().err
