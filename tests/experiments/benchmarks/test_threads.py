"""Threads against processes: the table, and documents divided among processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.benchmarks import common, threads


def test_processes_share_the_documents(tmp_path: Path) -> None:
    documents = ["a" * n for n in range(1, 20)]
    files = threads.shares(documents, 3, tmp_path)
    parts = [file.read_text(encoding="utf-8").split(common.SEPARATOR) for file in files]
    assert sorted(text for part in parts for text in part) == sorted(documents)
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) - min(sizes) <= 19


def test_a_process_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("text", encoding="utf-8")
    with pytest.raises(RuntimeError, match="a process failed"):
        threads.measure("batch", tmp_path / "none", [file, file], [[0], [0]], 1)


@pytest.mark.slow
def test_every_call_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.jsonl"
    rows = [{"text": f"int x{i};\n" * 200, "source": "c"} for i in range(8)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = ["--rounds", "1", "--again", "20kB", "--vocab-size", "262", "--cache", str(tmp_path)]
    assert threads.main([str(texts), *options]) == 0
    out = capsys.readouterr().out
    for call in threads.CALLS:
        assert f"│ {call} " in out
