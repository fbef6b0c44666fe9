"""The whole experiment on a tiny corpus, through the command line's own entry point."""

import gzip
import json
import re
import sys
from pathlib import Path

import pytest

from experiments import pipeline
from experiments.stages import STAGES, phase2
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests, names_by_stage, rejected, report
from tests.experiments.outputs import run_until as run
from tests.properties import quick_first
from tokenizer.corpus.corpus import Corpus
from tokenizer.errors import UserError


@pytest.fixture(autouse=True)
def _keep_environment(monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")


def _times(tmp_path):
    return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "artifacts").glob("[a-z]*")}


def test_stage_by_stage_up_to_the_report_and_then_everything_is_reused(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/superbpe", "pipeline", "lm=small"])
    read = {"documents", "contamination", "shards"}
    news = ({"count"}, {"bpe", "tokenizer"}, {"superbpe"}, read, {"lm"}, {"evaluation"}, {"report"})
    seen = {".locks", ".runs"}
    for stage, new in zip(STAGES, news, strict=True):
        if stage == "report":
            assert run(stage, tiny) == 0
        else:
            run_stages(stage, tiny, tmp_path / "outputs")
        assert set(names_by_stage(tmp_path)) - seen == new, stage
        seen |= new
    out = capsys.readouterr().out
    assert "bits per byte" in out
    assert "demonstration, not evidence" in out
    assert f"log: {tmp_path / 'outputs' / 'superbpe.log'}" in out
    assert "  report.html  report-" in out
    assert out.splitlines()[-1].startswith("next:  superbpe ")
    assert "  report.html  report-" in (tmp_path / "outputs" / "superbpe.log").read_text()
    page = Path(re.findall(r"report: (.*\.html)", out)[-1])
    assert "SuperBPE" in page.read_text()
    numbers = json.loads((page.parent / "report.json").read_text())
    assert "superbpe pipeline lm=small" in out
    bpe, superbpe = numbers["tokenizers"]
    assert bpe["vocab_size"] == superbpe["vocab_size"] == 400
    assert superbpe["superwords"] > 0 == bpe["superwords"]
    assert superbpe["bytes_per_token"] > bpe["bytes_per_token"]
    assert bpe["low"] < bpe["bits_per_byte"] < bpe["high"]
    assert len(numbers["compression"]) > 6
    sides = ["".join(piece["text"] for piece in side["pieces"]) for side in numbers["sample"]["sides"]]
    assert sides[0] == sides[1] != ""
    counts = {stage: len(names) for stage, names in names_by_stage(tmp_path).items() if not stage.startswith(".")}
    once = dict.fromkeys(("count", "bpe", "superbpe", "documents", "contamination", "report"), 1)
    assert counts == once | {"tokenizer": 2, "shards": 4, "lm": 2, "evaluation": 2}
    metrics = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    groups = {row["group"].partition(" ")[0] for row in metrics}
    assert groups >= {"stages", "lm/bpe", "lm/superbpe", "comparison", "summary"}
    before = _times(tmp_path)
    assert run("report", tiny) == 0
    assert _times(tmp_path) == before
    out = capsys.readouterr().out
    assert not re.search("✓|if nothing more is reused|language models? to train", out)


@pytest.mark.slow
def test_three_seeds_are_compared_as_pairs_of_runs(tiny, tmp_path, capsys):
    run_stages("evaluate", tiny, tmp_path / "outputs")
    one = set(names_by_stage(tmp_path)["lm"])
    capsys.readouterr()
    assert run("report", [*tiny, "lm.n_seeds=3"]) == 0
    found = names_by_stage(tmp_path)
    assert one < set(found["lm"])  # the first seed's models are those that were there
    assert [len(found[stage]) for stage in ("shards", "documents", "lm", "evaluation")] == [4, 1, 6, 6]
    out = capsys.readouterr().out
    assert "(3 seeds each)" in " ".join(out.split())
    assert "3 paired seeds; standard error from seeds" in " ".join(out.split())
    numbers = report(tmp_path)["tokenizers"][0]["evaluation"]
    assert len(numbers["seeds"]["bits_per_byte"]) == 3
    assert numbers["bits_per_byte"] == pytest.approx(sum(numbers["seeds"]["bits_per_byte"]) / 3)
    metrics = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    (compared,) = [row for row in metrics if row["group"] == "comparison" and row["n_seeds"] == 3]
    assert len(compared["by_seed"]) == 3
    # The luck of the tokenizers' text is measured, said, and measured once.
    (said,) = set(re.findall(r"from the text of the tokenizers [0-9.]+", out))
    luck = manifests(tmp_path, "luck")
    assert [len(each["contents"]["bits_per_byte"]) for each in luck] == [5, 5]
    assert said in report(tmp_path)["verdict"]["detail"]
    assert run("report", [*tiny, "lm.n_seeds=3", "eval.tokenizer_luck=false"]) == 0
    assert "about these vocabularies, without the luck of their training text" in capsys.readouterr().out
    assert manifests(tmp_path, "luck") == luck


def test_text_that_is_too_small_is_rejected_before_it_is_read(tiny, corpus, tmp_path, monkeypatch):
    flops = ["budget=equal_flops", "budget.train_flops=1e15", "arms=[bytes]"]
    assert "and the limit is 100; use more text" in rejected("train_lm", [*tiny, *flops], tmp_path)
    (packed := tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    counted = [*tiny, f"corpus.paths=[{packed}]", "budget.train_bytes=1GB"]
    assert "raise the limit to at least budget.max_epochs=" in rejected("train_lm", counted, tmp_path)
    assert "bpe" not in names_by_stage(tmp_path)
    monkeypatch.setattr(Corpus, "batches", None)
    (empty := tmp_path / "empty.txt").touch()
    assert "0 bytes" in rejected("count", [*tiny, f"corpus.paths=[{empty}]"], tmp_path)
    assert "raise the limit to at least" in rejected("train_lm", [*tiny, "budget.train_bytes=1GB"], tmp_path)


@pytest.mark.slow
def test_a_failing_cell_does_not_stop_the_others_and_phase_1_is_shared(tiny, tmp_path, capsys, monkeypatch):
    def failing(context, arm, *rest):
        if arm.superbpe.transition == 0.8:
            raise UserError("this cell cannot work; try another")
        return real(context, arm, *rest)

    real = phase2.train
    monkeypatch.setattr(phase2, "train", failing)
    assert run("train_superbpe", [*tiny, "--multirun", "superbpe.transition=0.7,0.8,0.9"]) == 2
    found = names_by_stage(tmp_path)
    assert [len(found[stage]) for stage in ("count", "bpe", "superbpe")] == [1, 1, 2]
    err = capsys.readouterr().err
    assert "this cell cannot work" in err
    assert "1 of 3 cells failed" in err
    assert "Traceback" not in err


def test_internal_errors_keep_their_traceback(tiny, capsys, monkeypatch):
    monkeypatch.setattr(pipeline, "first_pass", lambda *_, **__: 1 / 0)
    assert run("count", tiny) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    quick_first(
        [
            ("corpus.paths=[missing.jsonl]", "missing.jsonl"),
            ("corpus.field=body", "body"),
            ("hydra.run.dir=FILE", ""),
            ("artifacts=FILE", ""),
            ("corpus.heldout_fraction=0.0001", "may choose none of only a few. A .txt file is one document"),
        ],
        2,
    ),
)
def test_a_users_mistake_exits_2_and_leaves_nothing(tiny, tmp_path, mistake, override, message):
    (tmp_path / "file").touch()
    override = override.replace("FILE", str(tmp_path / "file"))
    assert message in mistake("pipeline", *tiny, override)
    assert not list((tmp_path / "artifacts").glob("[!.]*"))
    assert not list((tmp_path / "artifacts").glob(".*.partial"))
