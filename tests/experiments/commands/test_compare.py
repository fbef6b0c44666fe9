"""Two runs on one page, through the command line."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.report.combining import combine
from experiments.report.over_compute import deployment_of
from experiments.store.records import finished, load
from tests import other_tokenizers
from tests.experiments.outputs import run_until as run
from tests.experiments.outputs import setting
from tokenizer import Corpus, CorpusConfig
from tokenizer.errors import UserError


@pytest.fixture(scope="module")
def sweep(tiny_module, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "cells"
    cells = ["--multirun", "superbpe.transition=0.7,0.9", f"hydra.sweep.dir={folder}"]
    assert run("report", [*tiny_module, *cells]) == 0
    return folder


@pytest.fixture(scope="module")
def numbers(sweep, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    assert main.run(["compare", str(sweep), "--out", str(out)]) == 0
    assert (out / "differences.csv").read_text().count("\n") == 1 + 3 + 3  # pairs, and each arm on clean documents
    page = (out / "comparison.html").read_text()
    assert "SuperBPE t=0.9" in page
    assert "default-src 'none'" in page
    assert page.count("withheld: 1 seed, at least 3 are required</td>") == 3
    return json.loads((out / "comparison.json").read_text())


@pytest.mark.slow
def test_a_tokenizer_shared_by_cells_is_one_candidate_with_the_numbers_of_the_runs(numbers, sweep):
    assert [row["label"] for row in numbers["tokenizers"]] == ["BPE", "SuperBPE t=0.7", "SuperBPE t=0.9"]
    assert numbers["conditions"].startswith("All models read the same documents")
    pairs = [row for row in numbers["differences"] if row["by"] == "all"]
    assert len(pairs) == 3
    for cell, row in zip(("0", "1"), numbers["tokenizers"][1:], strict=True):
        record = json.loads((sweep / cell / "run.json").read_text())
        report = json.loads(Path(record["report"]).with_name("report.json").read_text())
        for key in ("bits_per_byte", "bytes_per_token", "train_flops", "sha256", "low", "high"):
            assert row[key] == report["tokenizers"][1][key], key
        assert numbers["contamination"] == report["contamination"] is not None
        # Without more text than the runs scored, curves and superwords come out the same.
        (mine,) = [r for r in pairs if (r["reference"], r["tokenizer"]) == ("BPE", row["label"])]
        assert mine["percent"] == report["verdict"]["percent"]
    # Headline and tables withhold the verdict for one reason.
    reason = "1 seed, at least 3 are required"
    assert (numbers["verdict"]["winner"], numbers["verdict"]["withheld"]) == (None, reason)
    assert "requires 3 seeds" in numbers["verdict"]["sentence"]
    assert {(row["decision"], row["withheld"]) for row in pairs} == {("withheld", reason)}
    assert all((row["low"] <= 0 <= row["high"]) == (row["p"] >= 0.05) for row in pairs)


@pytest.mark.slow
def test_seeds_of_several_runs_are_combined(sweep, tiny_module, tmp_path):
    other = tmp_path / "seed"
    cells = ["--multirun", "superbpe.transition=0.7,0.9", "lm.train.seed=1", f"hydra.sweep.dir={other}"]
    assert run("evaluate", [*tiny_module, *cells]) == 0
    result, notes = combine(finished([sweep, other])[0])
    assert notes == []
    assert {len(each.evaluations) for each in result.arms} == {2}
    assert result.n_seeds == 2
    # One cell without its second seed: what is not common to all is left out, and said.
    shutil.rmtree(other / "1")
    result, notes = combine(finished([sweep, other])[0])
    assert result.n_seeds == 1
    assert notes == [
        "BPE: seed 1 is left out because other arms lack it",
        "SuperBPE t=0.7: seed 1 is left out because other arms lack it",
    ]


@pytest.mark.slow
def test_runs_with_the_same_held_out_documents_are_compared(sweep, tiny_module, corpus, tmp_path):
    """The corpora differ, and the WordPiece arm decodes to other text."""
    batches = Corpus(CorpusConfig(paths=[str(corpus)], heldout_fraction=0.1)).batches("heldout")
    heldout = [batch.text(i) for batch in batches for i in range(len(batch))]
    file = tmp_path / "heldout.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in heldout))
    pieces = other_tokenizers.write(tmp_path, "word_pieces")
    own = ["arms=[pieces]", f"arms.pieces.file={pieces}", 'arms.pieces.end_of_text="[SEP]"']
    own += [f"corpus.heldout_paths=[{file}]", f"hydra.run.dir={tmp_path}"]
    assert run("evaluate", [*tiny_module, *own]) == 0
    both = finished([sweep / "0", tmp_path])[0]
    result, _ = combine(both)
    assert result.labels == ["BPE", "pieces", "SuperBPE"]
    assert result.arms[0].heldout.contents.corpus != result.arms[1].heldout.contents.corpus
    assert [each.barred.partition(" in ")[0] for each in result.arms] == ["", "pieces changes or loses text", ""]
    assert result.pair == (0, 2)
    assert {pair for pair, each in result.comparisons.items() if each.barred} == {(0, 1), (1, 2)}


@pytest.mark.slow
def test_other_held_out_text_or_another_sample_is_rejected(sweep, tiny_module, tmp_path, mistake):
    """Samples of one corpus have the same tokenizers and models."""
    own = ["superbpe.transition=0.7", "corpus.heldout_sample=0.5", f"hydra.run.dir={tmp_path / 'own'}"]
    assert run("evaluate", [*tiny_module, *own]) == 0
    different = r"BPE was scored on different held-out documents in .* \(corpus.heldout_sample"
    with pytest.raises(UserError, match=different):
        combine(finished([sweep / "0", tmp_path / "own"])[0])
    other = tmp_path / "other"
    assert run("evaluate", [*tiny_module, "corpus.heldout_salt=x", f"hydra.run.dir={other}"]) == 0
    said = mistake("compare", sweep, other, "--out", tmp_path / "out")
    assert "were scored on different held-out documents" in said
    assert "heldout_salt=x" in said


def test_training_text_that_is_unknown_in_one_run_stays_so_and_is_in_no_label(sweep):
    runs, _ = finished([sweep])
    for record, reason in zip(runs, ("", "it has no record"), strict=True):
        record.results.arms[0] = dataclasses.replace(record.results.arms[0], untraced=reason)
    arms = {arm.label: arm.untraced for arm in combine(runs)[0].arms}
    assert arms == {"BPE": "it has no record", "SuperBPE t=0.7": "", "SuperBPE t=0.9": ""}


def test_a_run_without_models_is_left_out_with_the_reason(sweep, tmp_path, capsys):
    record = json.loads((sweep / "0" / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, "results": None}))
    assert main.run(["compare", str(sweep), str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    left_out, reason, *_ = capsys.readouterr().out.splitlines()[-3:]
    assert (left_out, reason) == ("left out:", f"  {tmp_path}: it ended before a model was scored, as its --until says")


def test_mistakes_are_named(sweep, tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        ([], "as in: superbpe compare outputs/"),
        (["nowhere"], "does not exist"),
        (["."], "contains no run"),
        ([sweep, "--reference", "Unigram"], "unknown tokenizer 'Unigram'"),
    ):
        assert said in mistake("compare", *arguments, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_moved_runs_and_artifacts_are_found(sweep, tiny_module, tmp_path, mistake):
    store = setting(tiny_module, "artifacts")
    moved, elsewhere = tmp_path / "moved", tmp_path / "elsewhere"
    shutil.copytree(sweep / "1", moved)
    for path in (sweep / "0" / "run.json", moved / "run.json"):
        record = json.loads(path.read_text())
        target = tmp_path / path.parent.name / "run.json"
        target.parent.mkdir(exist_ok=True)
        # Both copies say that they lie where the first did, and that the artifacts are where nothing is.
        target.write_text(json.dumps({**record, "folder": str(sweep / "0"), "store": str(elsewhere)}))
    error = mistake("compare", tmp_path / "0", moved, "--out", tmp_path / "out")
    assert "does not exist" in error
    assert "--artifacts" in error
    result, _ = combine(finished([tmp_path / "0", moved])[0], artifacts=store)
    assert result.labels == ["BPE", "SuperBPE t=0.7", "SuperBPE t=0.9"]


def test_a_record_is_data(sweep, tmp_path, monkeypatch, capsys):
    """No text of a record is an interpolation, whichever setting of the deployment or field of the record has it."""
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    shutil.copytree(sweep / "0", tmp_path / "run")
    path, reading = tmp_path / "run" / "run.json", "${oc.env:HF_TOKEN}"
    record = json.loads(path.read_text())
    keys = [f"deployment.{key}" for key in ("mlp", reading)] + [f"+deployment.x={reading}", reading]
    for text in [*(f"{key}={reading}" for key in keys), f"deployment={reading}", "deployment.n_layers=7"]:
        path.write_text(json.dumps(record | {"overrides": [text], "command": reading, "error": reading}))
        assert main.run(["compare", str(path.parent), "--out", str(tmp_path / "out")]) == 0
        assert "hf_planted" not in "".join(
            [*capsys.readouterr(), *(f.read_text() for f in (tmp_path / "out").iterdir())]
        )
    assert deployment_of(load(path)).n_layers == 7
    ladder = record | {"rungs": [record["results"]], "overrides": [f"budget.tolerance={reading}", keys[0]]}
    path.write_text(json.dumps(ladder))
    assert main.run(["compare", str(path.parent), "deployment.rho=2", "--out", str(tmp_path / "out")]) == 2
    assert "hf_planted" not in capsys.readouterr().err
