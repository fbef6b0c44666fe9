"""Counts and shards of a cluster equal those of this machine's threads, byte by byte."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.cluster.contamination import find_overlap as find_overlap_by
from experiments.cluster.counting import count
from experiments.cluster.sharding import encoded_by
from experiments.cluster.tasks import _Run
from lm.data.sharding import ShardConfig, write_encoded, write_shards
from tests.experiments.cluster.backend import Threads, cluster_of
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens, train_bpe
from tokenizer.corpus.overlap import find_overlap

SETTINGS = {"pattern": "gpt2", "unit": "document", "threads": 1}
PART_BYTES = 3000


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    texts = [f"document {i}: " + f"word{i % 7} naïve text\n" * (i % 23) for i in range(400)]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts) + "damaged\n")
    pq.write_table(pa.table({"text": texts[::-1]}), folder / "b.parquet", row_group_size=20)
    (folder / "c.txt").write_text("a text of its own")
    return Corpus(CorpusConfig(paths=[str(folder)], on_error="skip", heldout_fraction=0.2))


@pytest.fixture
def cluster(monkeypatch):
    made = cluster_of(Threads())
    made.part_bytes = PART_BYTES
    return made


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def again(corpus: Corpus) -> Corpus:
    return Corpus(corpus.config)


def test_counts_are_equal(corpus, cluster, tmp_path):
    found = count(cluster, corpus, tmp_path / "parts", SETTINGS)
    local = again(corpus)
    expected = count_pretokens(local, **SETTINGS)
    assert found == expected
    found.save(tmp_path / "found.parquet")
    expected.save(tmp_path / "expected.parquet")
    assert (tmp_path / "found.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()
    assert corpus.skipped.summary() == local.skipped.summary()
    levels = {path.name[:7] for path in (tmp_path / "parts").glob("merge-*.data")}
    assert levels == {"merge-0", "merge-1"}, "a tree of sums"


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("seed", [None, 3])
def test_shards_are_equal(corpus, cluster, tmp_path, split, seed):
    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 400)
    layout = ShardConfig(tokens_per_shard=5000, shuffle_seed=seed)
    local = again(corpus)
    write_shards(tmp_path / "expected", tokenizer, local.batches(split), layout, threads=1)
    source = partial(encoded_by, cluster, corpus, split, tokenizer, tmp_path / "parts")
    write_encoded(tmp_path / "found", tokenizer, source, layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")
    assert corpus.skipped.summary() == local.skipped.summary()


@pytest.mark.parametrize("task", ["encode-00009", "tokens-00005"])
def test_an_interrupted_run_resumes_from_its_shards_and_parts(corpus, cluster, tmp_path, monkeypatch, task):
    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 400)
    layout = ShardConfig(tokens_per_shard=2000)
    write_shards(tmp_path / "expected", tokenizer, again(corpus).batches(), layout, threads=1)
    source = partial(encoded_by, cluster, corpus, "train", tokenizer, tmp_path / "parts")

    def interrupt(*_):
        raise KeyboardInterrupt

    cluster._backend.faults[task] = ["lost"]
    with monkeypatch.context() as patch:
        patch.setattr(_Run, "_lose", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_encoded(tmp_path / "found", tokenizer, source, layout)
    copied = [path.name for path in tmp_path.glob(".found.partial/tokens-*.json")]
    seen = set(cluster._backend.submitted)
    cluster._backend.submitted.clear()
    write_encoded(tmp_path / "found", tokenizer, source, layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")
    repeated = seen & set(cluster._backend.submitted)
    assert len(repeated) <= 3, "only those that were cancelled"
    if task.startswith("tokens"):
        assert copied
        assert not any(name.startswith("encode") for name in cluster._backend.submitted)


@pytest.mark.parametrize("ngram_words", [0, 5])
def test_overlaps_are_equal(corpus, cluster, tmp_path, ngram_words):
    local = again(corpus)
    expected = find_overlap(local.batches("heldout"), local.batches("train"), ngram_words)
    cluster._backend.faults = {"overlap-00003": ["lost", "lost"], "heldout-00001": ["lost"]}
    found = find_overlap_by(cluster, corpus, tmp_path / "parts", ngram_words)
    for name, column in expected._asdict().items():
        assert np.array_equal(getattr(found, name), column), name
    assert expected.words.sum() > expected.shared.sum() > 0 or ngram_words == 0
    tasks = cluster._backend.submitted
    assert {name.partition("-")[0] for name in tasks} == {"heldout", "overlap"}
    assert len(set(tasks)) > 20
    tasks.clear()
    find_overlap_by(cluster, corpus, tmp_path / "parts", ngram_words)
    assert not tasks, "all results are kept"


@pytest.mark.parametrize("settings", [{"min_document_bytes": 10**6}, {"heldout_fraction": 0.0}])
def test_errors_are_those_of_this_machine(corpus, cluster, tmp_path, settings):
    from dataclasses import replace

    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 300)
    empty = Corpus(replace(corpus.config, **settings))
    split = "heldout" if settings.get("heldout_fraction") == 0 else "train"
    with pytest.raises(UserError) as expected:
        list(empty.batches(split))
    with pytest.raises(UserError) as found:
        write_encoded(
            tmp_path / "s", tokenizer, partial(encoded_by, cluster, empty, split, tokenizer, tmp_path / "parts")
        )
    assert str(found.value) == str(expected.value)
    with pytest.raises(UserError) as expected:
        list(empty.batches("heldout"))
    with pytest.raises(UserError) as found:
        find_overlap_by(cluster, empty, tmp_path / "overlap", 5)
    assert str(found.value) == str(expected.value)


def test_a_text_with_a_budget_is_one_task(corpus, cluster, tmp_path):
    from dataclasses import replace

    limited = Corpus(replace(corpus.config, max_bytes=5000))
    assert count(cluster, limited, tmp_path, SETTINGS) == count_pretokens(again(limited), **SETTINGS)
    assert cluster._backend.submitted == ["count-00000"]
