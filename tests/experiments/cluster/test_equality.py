"""Counts and shards of a cluster equal those of this machine's threads, byte by byte."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.cluster import counting
from experiments.cluster.contamination import find_overlap as find_overlap_by
from experiments.cluster.counting import count
from experiments.cluster.sharding import encoded_by
from experiments.cluster.tasks import ATTEMPTS
from lm.data.shard_writer import Writer
from lm.data.sharding import ShardConfig, write_encoded, write_shards
from tests import other_tokenizers
from tests.experiments.cluster.backend import Threads, cluster_of
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens, train_bpe
from tokenizer.corpus.overlap import find_overlap
from tokenizer.external.load import load_pretrained

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


def test_counts_are_equal(corpus, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "FAN_IN", 4)
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
def test_shards_are_equal(corpus, cluster, tmp_path, split):
    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 400)
    layout = ShardConfig(tokens_per_shard=5000)
    local = again(corpus)
    write_shards(tmp_path / "expected", tokenizer, local.batches(split), layout, threads=1)
    source = partial(encoded_by, cluster, corpus, split, tokenizer, tmp_path / "parts")
    write_encoded(tmp_path / "found", tokenizer, source, layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")
    assert corpus.skipped.summary() == local.skipped.summary()


@pytest.mark.parametrize("name", ["unigram.model", "word_pieces"])
def test_shards_of_tokenizers_that_change_text_are_equal(corpus, cluster, tmp_path, name):
    path = other_tokenizers.write(tmp_path, name)
    tokenizer = load_pretrained(path, add_special_tokens=["<|endoftext|>"]).tokenizer
    layout = ShardConfig(tokens_per_shard=20_000)
    manifest = write_shards(tmp_path / "expected", tokenizer, again(corpus).batches(), layout, threads=1)
    assert manifest["text_loss"]["unknown_tokens"] > 0
    assert len(manifest["shards"]) > 2
    source = partial(encoded_by, cluster, corpus, "train", tokenizer, tmp_path / "parts")
    write_encoded(tmp_path / "found", tokenizer, source, layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")


@pytest.mark.parametrize("damaged", ["tokens", "lists"])
def test_a_damaged_part_is_an_error_that_names_it(corpus, cluster, tmp_path, damaged):
    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 300)
    source = partial(encoded_by, cluster, corpus, "train", tokenizer, tmp_path / "parts")
    cluster._backend.faults["encode-00009"] = ["lost"] * ATTEMPTS
    with pytest.raises(UserError, match="encode-00009 failed 12 times"):
        write_encoded(tmp_path / "found", tokenizer, source)
    (part,) = (tmp_path / "parts").glob("encode-00002-*.data")
    content = bytearray(part.read_bytes())
    content[0 if damaged == "tokens" else -100] ^= 1
    part.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"{part} is damaged; delete it, then run")):
        write_encoded(tmp_path / "found", tokenizer, source)
    part.unlink()
    write_encoded(tmp_path / "found", tokenizer, source)
    write_shards(tmp_path / "expected", tokenizer, again(corpus).batches(), threads=1)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")


def interrupted(method, calls):
    """A method that raises KeyboardInterrupt in its last call."""

    def call(self, *arguments):
        calls.append(None)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return method(self, *arguments)

    return call


def test_an_interrupted_run_resumes_from_its_shards_and_parts(corpus, cluster, tmp_path, monkeypatch):
    tokenizer = train_bpe(count_pretokens(corpus, **SETTINGS), 400)
    layout = ShardConfig(tokens_per_shard=2000)
    write_shards(tmp_path / "expected", tokenizer, again(corpus).batches(), layout, threads=1)
    source = partial(encoded_by, cluster, corpus, "train", tokenizer, tmp_path / "parts")
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", interrupted(Writer.add, []))
        with pytest.raises(KeyboardInterrupt):
            write_encoded(tmp_path / "found", tokenizer, source, layout)
    before = set(cluster._backend.submitted)
    cluster._backend.submitted.clear()
    write_encoded(tmp_path / "found", tokenizer, source, layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")
    repeated = before & set(cluster._backend.submitted)
    assert len(repeated) <= 5, "only those that were cancelled or not taken"


@pytest.mark.parametrize("ngram_words", [0, 5])
def test_overlaps_are_equal(corpus, cluster, tmp_path, ngram_words):
    local = again(corpus)
    expected = find_overlap(local.batches("heldout"), local.batches("train"), ngram_words)
    cluster._backend.faults = {"overlap-00003": ["lost", "lost"], "measured-00001": ["lost"]}
    found = find_overlap_by(cluster, [corpus], "heldout", [corpus], tmp_path / "parts", ngram_words)
    for name, column in expected._asdict().items():
        assert np.array_equal(getattr(found, name), column), name
    assert expected.words.sum() > expected.shared.sum() > 0 or ngram_words == 0
    tasks = cluster._backend.submitted
    assert {name.partition("-")[0] for name in tasks} == {"measured", "overlap"}
    assert len(set(tasks)) > 20
    tasks.clear()
    find_overlap_by(cluster, [corpus], "heldout", [corpus], tmp_path / "parts", ngram_words)
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
        find_overlap_by(cluster, [empty], "heldout", [empty], tmp_path / "overlap", 5)
    assert str(found.value) == str(expected.value)


def test_a_text_with_a_budget_is_one_task(corpus, cluster, tmp_path):
    from dataclasses import replace

    limited = Corpus(replace(corpus.config, max_bytes=5000))
    assert count(cluster, limited, tmp_path, SETTINGS) == count_pretokens(again(limited), **SETTINGS)
    assert cluster._backend.submitted == ["count-00000"]
