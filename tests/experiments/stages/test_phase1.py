"""Phase 1 as a stage: reused and continued lists of merges, counts of several corpora."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage, rejected


def test_a_longer_list_of_merges_serves_a_smaller_vocabulary(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    assert "reused" not in capsys.readouterr().out
    direct = set(names_by_stage(tmp_path)["tokenizer"])
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["bpe"]) == 1
    assert direct < set(names_by_stage(tmp_path)["tokenizer"])


def test_a_longer_list_of_merges_continues_a_shorter_one(tiny: list[str], tmp_path: Path) -> None:
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    direct = set(names_by_stage(tmp_path)["tokenizer"])
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["bpe"]) == 2
    assert direct < set(names_by_stage(tmp_path)["tokenizer"])
    (folder,) = direct
    about = json.loads((tmp_path / "artifacts" / folder / "superbpe.json").read_text())
    assert about["provenance"]["phase1"]["merges"] == 20


def test_counts_of_several_corpora_make_a_mixture(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages("count", tiny, tmp_path / "outputs")
    (counted,) = (tmp_path / "artifacts").glob("count-*/counts.parquet")
    mixture = [*tiny, f"bpe.counts=[{counted},{counted}:2]"]
    run_stages("train_bpe", mixture, tmp_path / "outputs")
    assert "these counts may include held-out text, which is not checked" in capsys.readouterr().out
    sizes = {
        json.loads(path.read_text())["contents"]["n_bytes"]
        for path in (tmp_path / "artifacts").glob("count-*/manifest.json")
    }
    assert max(sizes) == 3 * min(sizes)
    # What the corpus is called, or when the file was written, plays no part; and no corpus is claimed.
    (mixed,) = (path for path in (tmp_path / "artifacts").glob("count-*") if path != counted.parent)
    assert "corpus" not in json.loads((mixed / "manifest.json").read_text())["contents"]
    os.utime(counted)
    run_stages("train_bpe", mixture, tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["count"]) == 2
    # The folder stands for the file in it.
    run_stages("train_bpe", [*tiny, f"bpe.counts=[{counted.parent}]"], tmp_path / "outputs")
    # The preset `runs` shares phase 1 with the default: these counts serve it too.
    run_stages("train_bpe", [*mixture, "superbpe=runs"], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["bpe"]) == 2
    for overrides, message in [
        ([*tiny, f"bpe.counts=[{counted}:0]"], "write PATH or PATH:3"),
        ([*tiny, f"bpe.counts=[{counted.with_name('manifest.json')}]"], "is not a file of pretoken counts"),
        ([*tiny, "bpe.counts=[nowhere.parquet]"], "does not exist"),
        ([*mixture, "pattern=llama3"], "were counted with pattern"),
        (
            [*mixture, "bpe.unit=line"],
            "'document', but this run has 'line'; add bpe.unit=document, or count again",
        ),
        ([*mixture, "superbpe=none"], "add pattern=o200k, or count again"),
    ]:
        assert message in rejected("train_bpe", overrides, tmp_path)
