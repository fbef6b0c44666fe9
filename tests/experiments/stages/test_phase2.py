"""Phase 2 as a stage: its text, its rules and its log."""

import json
import os
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifest, names_by_stage
from tests.properties import quick_first
from tokenizer import Tokenizer


def trained(tmp_path):
    """The superword tokenizer of a run, and the statistics of its phase 2."""
    tokenizer = Tokenizer.load(tmp_path / "artifacts" / manifest(tmp_path, "superbpe")["contents"]["tokenizer"])
    return tokenizer, tokenizer.provenance["phase2"]


def test_weights_of_sources_and_the_log_of_merges(tiny, corpus, tmp_path):
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"text": f"{i} and so on and so on."}) + "\n" for i in range(400)))
    words = [word for word in tiny if not word.startswith("corpus.paths")]
    words.append(f"corpus.sources={{a: '{corpus}:2', b: '{more}'}}")
    run_stages("train_superbpe", words, tmp_path / "outputs")
    _, training = trained(tmp_path)
    sources = manifest(tmp_path, "count")["contents"]["sources"]
    assert training["corpus_documents"] == 2 * sources["a"]["n_documents"] + sources["b"]["n_documents"]
    (log,) = (tmp_path / "artifacts").glob("superbpe-*/merges.parquet")
    rows = pq.read_table(log).to_pylist()
    assert [row["rank"] for row in rows] == list(range(400 - 257))
    assert rows[-1]["count"] == training["last_count"]
    assert all(row["count"] >= following["count"] for row, following in pairwise(rows[:60]))  # of phase 1
    run_stages("train_superbpe", words, tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 1
    os.utime(more)
    run_stages("train_superbpe", words, tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["superbpe"]) == 2


LIMITS = {"corpus.sample=0.2": "abc", "superbpe.sample=0.2": "abc", "corpus.max_bytes=7_000": "a"}


@pytest.mark.parametrize(("limit", "represented"), quick_first(LIMITS.items()))
def test_a_sample_has_superwords_of_all_concatenated_domains(limit, represented, tiny, tmp_path):
    domains = {"a": "of the house in my garden and with a best friend", "b": "aus dem haus und das kind"}
    domains["c"] = "de la maison dans le jardin"
    for name, phrase in domains.items():
        rows = (json.dumps({"text": f"{i}. " + ", ".join([phrase] * 4)}) + "\n" for i in range(100))
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    words = [f"corpus.paths=['{tmp_path}/*.jsonl']", "superbpe.transition=0.75", limit]
    run_stages("train_superbpe", [*tiny, *words], tmp_path / "outputs")
    tokenizer, training = trained(tmp_path)
    assert 4_000 < training["corpus_bytes"] < 10_000  # of 35,000
    superwords = [tokenizer.vocab[i].decode().strip() for i in tokenizer.superword_ids()]
    assert "".join(name for name in domains if any(word in domains[name] for word in superwords)) == represented
