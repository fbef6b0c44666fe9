"""The benchmarks on a tiny corpus: their tables, what they compare, and how they report mistakes."""

import argparse
import json
import sys

import pytest

from experiments import progress
from experiments.benchmarks import encode, harness, lm, train
from superbpe import train_superbpe
from tokenizer import count_pretokens, train_bpe

TOY = ["--n-layers", "1", "--vocab-size", "300", "--context", "16", "--tokens", "32", "--rounds", "1"]
TOY += ["--device", "cpu"]
SMALL = ["--vocab-size", "400", "--transition", "330", "--rounds", "1", "--peers", "none"]


@pytest.mark.slow
def test_a_table_of_training(corpus, capsys, monkeypatch):
    monkeypatch.setattr(progress.console, "width", 250)
    assert train.main([str(corpus), *SMALL]) == 0
    out = capsys.readouterr().out
    for words in ("ours, plain text by lines", "ours, files as given", "first 144 of 144", "uw-2025, both phases"):
        assert words in out


def test_a_mistake_is_one_line(corpus, tmp_path, capsys):
    for path, options, message in (
        (corpus, ["--transition", "500"], "transition 500 is not below"),
        (corpus, ["--transition", "1.5"], "transition=1.5"),
        (tmp_path / "none.txt", [], "none.txt"),
        (corpus, ["--peers", "gigabpe", "--peers-venv", "gone"], "pip install fastokens=="),
    ):
        assert train.main([str(path), *SMALL, *options]) == 2
        assert capsys.readouterr().err.count(message) == 1
    text = harness.corpus([str(corpus)], "text", None)
    phase1 = train_bpe(count_pretokens(text, "gpt2"), 300)
    train_superbpe(phase1, text.batches, vocab_size=300, transition=299, rules="runs").save(tmp_path / "runs")
    options = ["--peers", "none", "--tokenizers", str(tmp_path / "runs")]
    assert encode.main([str(corpus), *options]) == 2
    assert "has no tokenizer.json" in capsys.readouterr().err


def test_our_job_reports_the_numbers_in_the_tokenizer(corpus):
    given = {"paths": [str(corpus)], "field": "text", "max_bytes": None, "memory": None}
    arguments = argparse.Namespace(**given, vocab_size=400, transition=330)
    job = train.ours("ours", arguments, rules="uw-2025", pattern="superbpe", unit="line")
    job.run()
    facts = job.facts
    assert facts["bytes"] > facts["phase1_tokens"] > facts["fragment_tokens"] > facts["fragments"] > 0
    assert facts["seconds"] == pytest.approx(facts["counting"] + facts["merging"] + facts["phase 2"], abs=0.05)
    assert facts["threshold"] <= facts["last_count"]


def test_no_document_is_both_trained_on_and_encoded(tmp_path):
    documents = [f"x = {i}\n" * 10 for i in range(20)]
    (tmp_path / "code.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    given = {"paths": [str(tmp_path / "code.jsonl")], "field": "text", "max_bytes": 500}
    training, encoded = encode.collect(argparse.Namespace(**given), tmp_path)
    held_out = encoded["code"].read_text().split(harness.SEPARATOR)
    assert not set(training) & set(held_out)
    assert all(500 <= sum(map(len, found)) < 600 for found in (training, held_out))


@pytest.mark.slow
def test_encoding_beside_hf_by_kind(corpus, tmp_path, capsys, monkeypatch):
    """HF stands for a peer, whose tokenizer has other merges."""
    run = harness.Job.run

    def replaced(job):
        if job.job == "encode fastokens":
            job.job, job.arguments = "encode tokenizers", job.arguments | {"json": str(tmp_path / "tokenizer.json")}
        run(job)

    monkeypatch.setattr(harness.Job, "run", replaced)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o700)
    train_bpe(count_pretokens(harness.corpus([str(corpus)], "text", None), "gpt2"), 300).save(tmp_path)
    options = ["--rounds", "1", "--vocab-size", "400", "--peers", "fastokens", "--peers-venv", str(tmp_path)]
    options += ["--tokenizers", "superwords", "--max-bytes", "50kB"]
    assert encode.main([str(corpus), *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(words in out for words in ("tokenizers ", "fastokens, tiny: other ids in"))


@pytest.mark.slow
def test_both_models_take_the_same_steps(capsys):
    pytest.importorskip("transformers")
    assert lm.main(TOY) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(words in out for words in ("llama ", "fp32", "2 rows of 1", "plain forward"))
