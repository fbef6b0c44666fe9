"""The benchmarks of large amounts of text on a tiny corpus: scaled counts, and samples."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from experiments.benchmarks import merge_loop, sample_size
from tokenizer import count_pretokens

if TYPE_CHECKING:
    from pathlib import Path


def test_scaled_counts_follow_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_loop, "_CHUNK", 5_000)
    texts = [f"wörd{i} 単語{i % 700} number {i * i}" for i in range(2_000)]
    counts = count_pretokens(texts, "gpt2")
    n_distinct, beta = 5 * counts.n_distinct, 0.7
    scaled = merge_loop.scaled_up(counts, n_distinct, beta, seed=1)
    items = list(scaled.items())
    assert scaled.n_distinct == len(items) == n_distinct
    assert all(one < two for (one, _), (two, _) in pairwise(items))
    assert all(string.decode() for string, _ in items)  # no character is cut
    factor = 5 ** (1 / beta)
    assert scaled.n_bytes == round(counts.n_bytes * factor)
    before, after = dict(counts.items()), dict(items)
    assert all(after[string] == int(count * factor) for string, count in before.items())
    new = np.array([count for string, count in items if string not in before])
    assert new.min() == 1
    assert np.mean(new >= 10) == pytest.approx(10**-beta, abs=0.02)


@pytest.mark.slow
def test_the_merge_loop_is_measured_on_scaled_counts(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [str(corpus), "--vocab-size", "400", "--cache", str(tmp_path)]
    assert merge_loop.main([*options, "--distinct", "20000"]) == 0
    assert "20,000" in capsys.readouterr().out
    assert merge_loop.main([*options, "--distinct", "5"]) == 2
    assert "--distinct 5 must be above" in capsys.readouterr().err


@pytest.mark.slow
def test_samples_are_compared_with_all_text(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heldout = tmp_path / "heldout.txt"
    heldout.write_text("Some words of another document, and more words.\n" * 20, encoding="utf-8")
    options = ["--heldout", str(heldout), "--vocab-size", "400", "--fractions", "0.5", "--to", str(tmp_path / "to")]
    assert sample_size.main([str(corpus), *options]) == 0
    out = capsys.readouterr().out
    assert "Phase 2 on samples, compared with all text" in out
    rows = json.loads((tmp_path / "to" / "rows.json").read_text())["rows"]
    assert [row["fraction"] for row in rows] == [1, 0.5]
    assert rows[1]["bytes"] < rows[0]["bytes"]
    for phase, n_merges in (("phase 1", 400 - 257), ("phase 2", 400 - 321)):
        whole, half = (row[phase] for row in rows)
        assert whole["shared"] == whole["used"] == 1
        assert whole["first_difference"] == n_merges
        assert half["first_difference"] < n_merges
        assert half["shared"] < 1
    assert (tmp_path / "to" / "chart.svg").is_file()
    assert sample_size.main([str(corpus), "--heldout", str(corpus), "--to", str(tmp_path)]) == 2
    assert "both paths and heldout_paths" in capsys.readouterr().err
