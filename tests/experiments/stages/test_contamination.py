"""Overlap of held-out text with training text, and the loss on the clean part."""

import csv
import json
import shutil

import numpy as np
import pytest

from lm.evaluate.bits_per_byte import Evaluation
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage


def _shared_corpus(folder):
    """Overrides with 60 held-out documents, of which 15 share a sequence of 13 words with the training text."""
    quoted = " ".join(f"quoted{i}" for i in range(13))
    with (folder / "train.jsonl").open("w") as file:
        for i in range(200):
            text = f"training {i} " + " ".join(f"t{i}w{j} in the text" for j in range(40))
            file.write(json.dumps({"text": f"{text} before {quoted}" if i == 7 else text}) + "\n")
    with (folder / "heldout.jsonl").open("w") as file:
        for i in range(60):
            text = f"heldout {i} " + " ".join(f"h{i}w{j} in the text" for j in range(9))
            file.write(json.dumps({"text": f"{text} {quoted.upper()}!" if i < 15 else text}) + "\n")
    paths = [f"corpus.paths=[{folder}/train.jsonl]", f"corpus.heldout_paths=[{folder}/heldout.jsonl]"]
    return [*paths, "corpus.heldout_fraction=0"]


@pytest.mark.slow
def test_clean_documents_are_scored_apart(tiny, tmp_path):
    overrides = [*tiny, *_shared_corpus(tmp_path)]
    run_stages("report", overrides, tmp_path / "outputs")
    (page,) = (tmp_path / "artifacts").glob("report-*/report.json")
    numbers = json.loads(page.read_text())
    found = numbers["contamination"]
    assert (found["clean_documents"], found["n_documents"], found["whole_documents"]) == (45, 60, 0)
    assert found["shared_words"] == 15 * 13
    assert "in 15 of 60 documents, occur in the training text in sequences of 13 words" in found["sentence"]
    rows = list(csv.DictReader(page.with_name("differences.csv").open()))
    assert [(row["by"], row["documents"]) for row in rows] == [("all", "60"), ("clean", "45"), ("clean", "45")]
    (overlap,) = (tmp_path / "artifacts").glob("contamination-*/contamination.npz")
    clean = np.load(overlap)["shared_words"] == 0
    losses = {Evaluation.load(path).only(clean).bits_per_byte for path in (tmp_path / "artifacts").glob("evaluation-*")}
    assert {float(row["bits_per_byte"]) for row in rows if row["by"] == "clean"} == losses
    assert not losses & {row["bits_per_byte"] for row in numbers["tokenizers"]}
    before = names_by_stage(tmp_path)
    run_stages("report", overrides, tmp_path / "outputs")
    assert names_by_stage(tmp_path) == before
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("shard", [*overrides, "eval.contamination=null"], tmp_path / "outputs")
    assert "contamination" not in names_by_stage(tmp_path)
