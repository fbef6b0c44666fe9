"""Phase 2 as a stage: the sources of its text."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.cli.main import run
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifest, names_by_stage, rejected


def test_phase_2_on_other_text_with_weights_and_its_log(
    tiny: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"text": f"{i} and so on and so on."}) + "\n" for i in range(400)))
    sources = f"superbpe.sources=[{corpus}:2,{more}]"
    assert run("train_superbpe", [*tiny, sources]) == 0
    out = capsys.readouterr().out
    assert "of the tokens" in out
    assert "is not checked" not in out  # documents are held out by their text, wherever they come from
    contents = manifest(tmp_path, "superbpe")["contents"]
    assert contents["mixture"] == [f"{corpus}:2", f"{more}:1"]
    heldout = json.loads(next((tmp_path / "artifacts").glob("count-*/manifest.json")).read_text())["contents"]
    assert contents["training"]["corpus_documents"] == pytest.approx(2 * heldout["n_documents"] + 0.9 * 400, abs=25)
    (log,) = (tmp_path / "artifacts").glob("superbpe-*/merges.parquet")
    rows = pq.read_table(log).to_pylist()
    assert [row["rank"] for row in rows] == list(range(400 - 257))
    assert rows[-1]["count"] == contents["training"]["last_count"]
    assert all(row["count"] >= following["count"] for row, following in pairwise(rows[:60]))  # of phase 1
    assert contents["early"][-1]["merges"] == sum(row["phase"] == 2 for row in rows)
    run_stages("train_superbpe", [*tiny, sources], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 1
    os.utime(more)
    run_stages("train_superbpe", [*tiny, sources], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 2


def test_held_out_text_is_left_out_of_sources(tiny: list[str], corpus: Path, tmp_path: Path) -> None:
    lines = corpus.read_text().splitlines(keepends=True)
    held = tmp_path / "held.jsonl"
    held.write_text("".join(lines[:40]))
    texts = [f"corpus.heldout_paths=[{held}]", f"superbpe.sources=[{corpus}]"]
    assert run("train_superbpe", [*tiny, "corpus.heldout_fraction=0", *texts]) == 0
    contents = manifest(tmp_path, "superbpe")["contents"]
    assert contents["training"]["corpus_documents"] == len(lines) - 40
    assert contents["without_heldout_of"] == manifest(tmp_path, "count")["contents"]["corpus"]


def test_sources_of_phase_2_that_do_not_fit_are_rejected(
    tiny: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere.jsonl: no such file" in rejected(
        "train_superbpe", [*tiny, "superbpe.sources=[nowhere.jsonl]"], tmp_path
    )
    assert "count" not in capsys.readouterr().out  # before any work
    for overrides, message in [
        (["superbpe=boundless", "superbpe.transition=0.5"], "these rules find the transition themselves"),
        ([f"superbpe.sources=[{corpus}:x]"], "superbpe.sources has"),
        (["runner.memory_mb=0"], "runner.memory_mb=0 must be at least 1"),
        (["superbpe.transition=auto"], "need atoms='pretokens'"),
        ([f"corpus.heldout_paths=[{corpus}]", f"superbpe.sources=[{corpus}]"], ""),
    ]:
        assert message in rejected("train_superbpe", [*tiny, *overrides], tmp_path)
