"""The whole experiment on a tiny corpus, through the command line's own entry point."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import pipeline
from experiments.benchmarks import wrong_formulas
from experiments.cli.main import run
from experiments.results import Folder, Reading, TrainedModel
from experiments.stages import phase1, phase2
from experiments.stages.evaluation import check_heldout
from experiments.stages.models import loss_curve
from experiments.store.artifacts import Store
from tests.experiments.conftest import run_stages
from tokenizer.errors import UserError


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")


def _artifacts(tmp_path: Path) -> dict[str, list[str]]:
    """Names of all artifacts by stage."""
    found: dict[str, list[str]] = {}
    for path in sorted((tmp_path / "artifacts").iterdir()):
        found.setdefault(path.name.partition("-")[0], []).append(path.name)
    return found


def _times(tmp_path: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "artifacts").glob("[a-z]*")}


def _paths(tmp_path: Path, stage: str) -> list[Path]:
    return sorted((tmp_path / "artifacts").glob(f"{stage}-*"))


def _manifest(tmp_path: Path, stage: str) -> dict[str, Any]:
    (path,) = (tmp_path / "artifacts").glob(f"{stage}-*/manifest.json")
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def _rejected(stage: str, overrides: list[str], tmp_path: Path) -> str:
    """Error message of the user's mistake; the command line shows it as one line."""
    with pytest.raises(UserError) as caught:
        run_stages(stage, overrides, tmp_path / "outputs")
    return str(caught.value)


def test_stage_by_stage_up_to_the_report_and_then_everything_is_reused(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    news = ({"count"}, {"bpe", "tokenizer"}, {"superbpe"}, {"documents", "shards"}, {"lm"}, {"evaluation"}, {"report"})
    seen: set[str] = {".locks", ".runs"}
    for stage, new in zip(pipeline.STAGES, news, strict=True):
        if stage == "report":
            assert run(stage, tiny) == 0
        else:
            run_stages(stage, tiny, tmp_path / "outputs")
        assert set(_artifacts(tmp_path)) - seen == new, stage
        seen |= new
    out = capsys.readouterr().out
    assert "bits per byte" in out
    assert "demonstration, not evidence" in out
    page = Path(re.findall(r"report: (.*\.html)", out)[-1])
    assert "SuperBPE" in page.read_text()

    numbers = json.loads((page.parent / "report.json").read_text())
    bpe, superbpe = numbers["tokenizers"]
    assert bpe["vocab_size"] == superbpe["vocab_size"] == 400
    assert superbpe["superwords"] > 0 == bpe["superwords"]
    assert superbpe["bytes_per_token"] > bpe["bytes_per_token"]
    assert bpe["low"] < bpe["bits_per_byte"] < bpe["high"]
    assert {row["tokenizer"] for row in numbers["loss"]} == {"BPE", "SuperBPE"}
    assert len(numbers["compression"]) > 6
    sides = ["".join(piece["text"] for piece in side["pieces"]) for side in numbers["sample"]["sides"]]
    assert sides[0] == sides[1] != ""

    counts = {stage: len(names) for stage, names in _artifacts(tmp_path).items() if not stage.startswith(".")}
    assert counts == {
        "count": 1,
        "bpe": 1,
        "superbpe": 1,
        "tokenizer": 2,
        "documents": 1,
        "shards": 4,
        "lm": 2,
        "evaluation": 2,
        "report": 1,
    }
    metrics = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    assert {row["group"] for row in metrics} >= {"stages", "lm/bpe", "lm/superbpe", "comparison", "summary"}

    before = _times(tmp_path)
    assert run("report", tiny) == 0
    assert _times(tmp_path) == before
    assert "✓" not in capsys.readouterr().out


def test_three_seeds_are_compared_as_pairs_of_runs(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages("evaluate", tiny, tmp_path / "outputs")
    one = set(_artifacts(tmp_path)["lm"])
    capsys.readouterr()
    assert run("report", [*tiny, "lm.n_seeds=3"]) == 0
    found = _artifacts(tmp_path)
    assert one < set(found["lm"])  # the first seed's models are those that were there
    assert [len(found[stage]) for stage in ("shards", "documents", "lm", "evaluation")] == [4, 1, 6, 6]
    out = capsys.readouterr().out
    assert "(3 seeds each)" in " ".join(out.split())
    assert "spread of 3 seeds" in out
    assert "decoding: FLOPs per byte" in out
    (page,) = (tmp_path / "artifacts").glob("report-*/report.json")
    numbers = json.loads(page.read_text())["tokenizers"][0]["evaluation"]
    assert len(numbers["seeds"]["bits_per_byte"]) == 3
    assert numbers["bits_per_byte"] == pytest.approx(sum(numbers["seeds"]["bits_per_byte"]) / 3)
    assert [row["name"] for row in numbers["by_script"]] == ["Latin"]
    assert [row["n_bytes"] for row in numbers["by_source"]] == [numbers["n_bytes"]]
    assert numbers["cost"]["decode_seconds_per_byte"] > 0
    metrics = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    (compared,) = [row for row in metrics if row["group"] == "comparison" and row["n_seeds"] == 3]
    assert len(compared["seed_differences"]) == 3
    _rejected("evaluate", [*tiny, "lm.n_seeds=0"], tmp_path)
    # Two of those evaluations by the formulas of the literature.
    manifests = {path: json.loads((path / "manifest.json").read_text()) for path in _paths(tmp_path, "evaluation")}
    pair = {manifest["contents"]["tokenizer_sha256"]: str(path) for path, manifest in manifests.items()}
    assert wrong_formulas.main(list(pair.values())) == 0
    table = capsys.readouterr().out
    assert all(name in table for name, _ in wrong_formulas.formulas())
    assert wrong_formulas.main([str(tmp_path), str(tmp_path)]) == 2


def test_a_sweep_over_transitions_counts_once_and_trains_phase_1_once(tiny: list[str], tmp_path: Path) -> None:
    assert run("train_superbpe", [*tiny, "--multirun", "superbpe.transition=0.7,0.8,0.9"]) == 0
    found = _artifacts(tmp_path)
    assert [len(found[stage]) for stage in ("count", "bpe", "superbpe")] == [1, 1, 3]


def test_a_sweep_over_sizes_trains_phase_1_once(tiny: list[str], tmp_path: Path) -> None:
    assert run("train_superbpe", ["--multirun", *tiny, "bpe.vocab_size=350,400,380"]) == 0
    found = _artifacts(tmp_path)
    assert [len(found[stage]) for stage in ("count", "bpe", "superbpe")] == [1, 1, 3]
    assert found["bpe"][0].endswith("-400")


@pytest.mark.slow
def test_a_sweep_in_other_processes(tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    sweep = ["--multirun", "superbpe.transition=0.7,0.8,0.9", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert run("train_superbpe", [*tiny, *sweep]) == 0
    found = _artifacts(tmp_path)
    assert [len(found[stage]) for stage in ("count", "bpe", "superbpe")] == [1, 1, 3]


def test_a_longer_list_of_merges_serves_a_smaller_vocabulary(tiny: list[str], tmp_path: Path) -> None:
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    direct = set(_artifacts(tmp_path)["tokenizer"])
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    assert len(_artifacts(tmp_path)["bpe"]) == 1
    assert direct < set(_artifacts(tmp_path)["tokenizer"])


def test_a_longer_list_of_merges_continues_a_shorter_one(tiny: list[str], tmp_path: Path) -> None:
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    direct = set(_artifacts(tmp_path)["tokenizer"])
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    assert len(_artifacts(tmp_path)["bpe"]) == 2
    assert direct < set(_artifacts(tmp_path)["tokenizer"])
    (folder,) = direct
    about = json.loads((tmp_path / "artifacts" / folder / "superbpe.json").read_text())
    assert about["provenance"]["phase1"]["merges"] == 20


def test_an_interrupted_list_resumes_after_a_shorter_one(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        return real(*arguments, **{**options, "progress": stop, "checkpoint_seconds": 0})

    real = phase1.train_bpe
    monkeypatch.setattr(phase1, "train_bpe", interrupted)
    assert run("train_bpe", [*tiny, "bpe.vocab_size=420"]) == 130
    monkeypatch.undo()
    (unfinished,) = (tmp_path / "artifacts").glob(".bpe-*.resumable")
    assert (unfinished / "merges-none.npz").exists()
    (unfinished / ".merges-none.npz.4242").touch()  # killed while writing
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    for folder in (tmp_path / "artifacts").glob("bpe-*"):
        assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "merge_counts.npy"]


def test_merges_are_kept_until_the_tokenizer_is_saved(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(phase1, "keep", full)
    with contextlib.suppress(OSError):
        assert run("train_bpe", tiny) != 0
    monkeypatch.undo()
    (unfinished,) = (tmp_path / "artifacts").glob(".bpe-*.resumable")
    with np.load(unfinished / "merges-none.npz") as saved:
        n_merges = len(saved["ranks"])
    run_stages("train_bpe", tiny, tmp_path / "outputs")
    (folder,) = (tmp_path / "artifacts").glob("bpe-*")
    assert n_merges == len(np.load(folder / "merge_counts.npy")) > 0
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "merge_counts.npy"]


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
    assert len(_artifacts(tmp_path)["count"]) == 2
    # The folder stands for the file in it.
    run_stages("train_bpe", [*tiny, f"bpe.counts=[{counted.parent}]"], tmp_path / "outputs")
    # The preset `none` shares phase 1 with the default: these counts serve it too.
    run_stages("train_bpe", [*mixture, "superbpe=none"], tmp_path / "outputs")
    assert len(_artifacts(tmp_path)["bpe"]) == 2
    for overrides, message in [
        ([*tiny, f"bpe.counts=[{counted}:0]"], "write PATH or PATH:3"),
        ([*tiny, f"bpe.counts=[{counted.with_name('manifest.json')}]"], "is not a file of pretoken counts"),
        ([*tiny, "bpe.counts=[nowhere.parquet]"], "does not exist"),
        ([*mixture, "pattern=llama3"], "were counted with pattern"),
        (
            [*mixture, "superbpe=none", "bpe.unit=document"],
            "'line', but this run has 'document'; add bpe.unit=line, or count again",
        ),
        ([*mixture, "superbpe=runs"], "add pattern=superbpe, or count again"),
    ]:
        assert message in _rejected("train_bpe", overrides, tmp_path)


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
    contents = _manifest(tmp_path, "superbpe")["contents"]
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
    assert len(_artifacts(tmp_path)["superbpe"]) == 1
    os.utime(more)
    run_stages("train_superbpe", [*tiny, sources], tmp_path / "outputs")
    assert len(_artifacts(tmp_path)["superbpe"]) == 2


def test_held_out_text_is_left_out_of_sources(tiny: list[str], corpus: Path, tmp_path: Path) -> None:
    lines = corpus.read_text().splitlines(keepends=True)
    held = tmp_path / "held.jsonl"
    held.write_text("".join(lines[:40]))
    texts = [f"corpus.heldout_paths=[{held}]", f"superbpe.sources=[{corpus}]"]
    assert run("train_superbpe", [*tiny, "corpus.heldout_fraction=0", *texts]) == 0
    contents = _manifest(tmp_path, "superbpe")["contents"]
    assert contents["training"]["corpus_documents"] == len(lines) - 40
    assert contents["without_heldout_of"] == _manifest(tmp_path, "count")["contents"]["corpus"]


def test_paths_with_the_embedded_corpus_are_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("count", ["corpus.paths=[a.jsonl]", f"hydra.run.dir={tmp_path}"]) == 2
    assert "add corpus=files" in " ".join(capsys.readouterr().err.split())


def test_sources_of_phase_2_that_do_not_fit_are_rejected(
    tiny: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere.jsonl: no such file" in _rejected(
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
        assert message in _rejected("train_superbpe", [*tiny, *overrides], tmp_path)


def test_a_failing_cell_does_not_stop_the_others(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(context: Any, arm: Any, *rest: Any) -> Any:
        if arm.superbpe.transition == 0.8:
            raise UserError("this cell cannot work; try another")
        return real(context, arm, *rest)

    real = phase2.train
    monkeypatch.setattr(phase2, "train", failing)
    assert run("train_superbpe", [*tiny, "--multirun", "superbpe.transition=0.7,0.8,0.9"]) == 2
    assert len(_artifacts(tmp_path)["superbpe"]) == 2
    err = capsys.readouterr().err
    assert "this cell cannot work" in err
    assert "1 of 3 cells failed" in err
    assert "Traceback" not in err


def test_internal_errors_keep_their_traceback(
    tiny: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.text, "count", lambda *_: 1 / 0)
    assert run("count", tiny) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("corpus.paths=[missing.jsonl]", "missing.jsonl"),
        ("corpus.field=body", "body"),
        ("corpus.heldout_fraction=0.0001", "may choose none of a few. A .txt file is one document unless"),
        ("bpe.vocab_sise=3", "did you mean 'bpe.vocab_size'"),
    ],
)
def test_a_users_mistake_exits_2_and_leaves_nothing(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert run("report", [*tiny, override]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list((tmp_path / "artifacts").glob("[!.]*"))
    assert not list((tmp_path / "artifacts").glob(".*.partial"))


def test_a_tokenizer_that_was_tampered_with_is_rejected(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages("train_superbpe", tiny, tmp_path / "outputs")
    name = _manifest(tmp_path, "superbpe")["contents"]["tokenizer"]
    file = tmp_path / "artifacts" / name / "tokenizer.json"
    text = file.read_text()
    tampered = json.loads(text)
    tampered["model"]["merges"].pop()
    file.write_text(json.dumps(tampered))
    capsys.readouterr()
    assert run("shard_corpus", tiny) == 2
    err = capsys.readouterr().err
    assert name in err
    assert "delete" in err
    shutil.rmtree(tmp_path / "artifacts" / name)
    run_stages("train_superbpe", tiny, tmp_path / "outputs")
    assert file.read_text() == text


def test_heldout_text_that_may_have_been_trained_on_is_rejected(tiny: list[str], tmp_path: Path) -> None:
    run_stages("evaluate", tiny, tmp_path / "outputs")
    for file in (tmp_path / "artifacts").glob("shards-*/manifest.json"):
        manifest = json.loads(file.read_text())
        if manifest["contents"]["split"] == "train":
            manifest["contents"]["split"] = "all"
            file.write_text(json.dumps(manifest))
    shutil.rmtree(next((tmp_path / "artifacts").glob("evaluation-*")))
    assert "manifest" in _rejected("evaluate", tiny, tmp_path)


def test_the_split_is_part_of_what_is_compared(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def made(stage: str, corpus: str, split: str) -> Any:
        contents = {"corpus": corpus, "split": split}
        return store.make(Reading, stage, config=contents, inputs={}, build=lambda folder: Reading(**contents))

    training = made("shards", "a", "train")
    arm: Any = SimpleNamespace(
        training=training,
        reading=[made("count", "a", "train"), training],
        lms=[store.make(Folder, "lm", config={}, inputs={"shards": training.hash}, build=lambda folder: Folder())],
        heldout=made("shards", "a", "heldout"),
    )
    check_heldout("a", arm)
    with pytest.raises(UserError, match="held-out text may have been trained on"):
        check_heldout("b", arm)
    arm.heldout = made("shards", "a", "train")
    with pytest.raises(UserError, match="heldout"):
        check_heldout("a", arm)


def test_ctrl_c_prints_how_to_resume_and_the_same_command_resumes(tiny: list[str], tmp_path: Path) -> None:
    arguments = [*tiny, "budget.train_bytes=8000000"]
    command = [sys.executable, "-m", "experiments.train_lm", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    metrics = tmp_path / "outputs" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and '"lm/bpe"' in metrics.read_text():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in err
    (partial,) = (tmp_path / "artifacts").glob(".lm-*.resumable")
    assert (partial / "checkpoint.safetensors").exists()


def test_the_loss_curve_survives_a_half_written_line_and_repeated_steps(tiny: list[str], tmp_path: Path) -> None:
    run_stages("train_lm", tiny, tmp_path / "outputs")
    artifact = Store(tmp_path / "artifacts").find(_artifacts(tmp_path)["lm"][0], TrainedModel)
    assert artifact is not None
    curve = loss_curve(artifact, 5)
    file = artifact.path / "metrics.jsonl"
    file.write_text(file.read_text() + file.read_text().splitlines()[3] + "\n")
    assert loss_curve(dataclasses.replace(artifact, check=None), 5) == curve
    with pytest.raises(UserError, match="damaged"):
        loss_curve(artifact, 5)
    assert len(curve) == 5
    assert curve[0].bits_per_byte > curve[-1].bits_per_byte


@pytest.mark.parametrize("stage", ["count", "train_bpe", "shard_corpus", "train_lm"])
def test_a_full_disk_is_one_line_in_every_stage_and_loses_nothing(
    stage: str, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"count": "count", "train_bpe": "bpe", "shard_corpus": "shards", "train_lm": "lm"}[stage]
    fsync = os.fsync

    def full(handle: int) -> None:
        if f"/.{made}-" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run(stage, tiny) == 2
    complaint = capsys.readouterr().err
    assert "the disk is full; free some space, then run the same command again" in complaint
    assert f".{made}-" in complaint
    assert "Traceback" not in complaint
    assert json.loads((tmp_path / "outputs" / "run.json").read_text())["exit_code"] == 2
    run_stages(stage, tiny, tmp_path / "outputs")


@pytest.mark.parametrize("stage", ["shard_corpus", "train_lm"])
def test_what_an_earlier_attempt_finished_is_verified_before_it_is_kept(
    stage: str, tiny: list[str], tmp_path: Path
) -> None:
    name = {"shard_corpus": "shards", "train_lm": "lm"}[stage]
    run_stages(stage, tiny, tmp_path / "outputs")
    finished = _paths(tmp_path, name)[0]
    data = next(path for path in sorted(finished.rglob("*")) if path.suffix in (".bin", ".safetensors"))
    content = data.read_bytes()
    # Killed after the stage's own last file and before the manifest; a bit flipped before the next attempt.
    unfinished = finished.rename(finished.with_name(f".{finished.name}.resumable"))
    (unfinished / "manifest.json").unlink()
    (unfinished / data.relative_to(finished)).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    if stage == "shard_corpus":
        run_stages(stage, tiny, tmp_path / "outputs")
        assert data.read_bytes() == content
    else:
        _rejected(stage, tiny, tmp_path)
        assert not finished.exists()
