"""Phase 2 as a stage: its text, its rules and its log."""

import json
import os
import random
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifest, names_by_stage
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


PHRASES = {
    "english": ["of the house", "in the garden", "and the child", "with a friend"],
    "german": ["aus dem haus", "neben dem garten", "und das kind", "mit einem freund"],
    "french": ["de la maison", "dans le jardin", "et son enfant", "avec un ami"],
}


@pytest.mark.parametrize(
    ("limit", "languages"),
    [
        ("corpus.sample=0.2", set(PHRASES)),
        ("superbpe.sample=0.2", set(PHRASES)),
        ("corpus.max_bytes=7_000", {"english"}),
    ],
)
def test_a_sample_has_superwords_of_all_concatenated_domains(limit, languages, tiny, tmp_path):
    rng = random.Random(0)
    paths = []
    for language, phrases in PHRASES.items():
        documents = [f"{i}. " + ", ".join(rng.choices(phrases, k=8)) for i in range(100)]
        paths.append(tmp_path / f"{language}.jsonl")
        paths[-1].write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    corpus = f"corpus.paths=[{','.join(map(str, paths))}]"
    run_stages("train_superbpe", [*tiny, corpus, limit], tmp_path / "outputs")
    tokenizer, training = trained(tmp_path)
    assert 4_000 < training["corpus_bytes"] < 10_000  # of 38,000
    superwords = [tokenizer.vocab[i].decode() for i in tokenizer.superword_ids()]
    found = {name: [word for word in superwords if word.strip() in ", ".join(PHRASES[name])] for name in PHRASES}
    assert {language for language, words in found.items() if words} == languages
