"""Parts of a corpus: their documents, in order, are those of the corpus."""

import gzip
import json
import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenizer.corpus.config import CorpusConfig
from tokenizer.corpus.corpus import Corpus
from tokenizer.corpus.skipped import Skipped
from tokenizer.train.counting import count_pretokens, mix_counts

WORDS = ["a", "of text", "naïve words", "日本語", "x" * 300, "line\nfeed"]


def parts_of(corpus, split="train", target=100):
    return [pickle.loads(pickle.dumps(part)) for part in corpus.parts(split, target)]


def check(corpus, split="train", target=100):
    parts = parts_of(corpus, split, target)
    assert [text for part in parts for text in part.documents(split)] == list(corpus.documents(split))
    return parts


def lines(n, first=0):
    return "".join(json.dumps({"text": f"{i} {WORDS[i % 6]}", "score": i % 3}) + "\n" for i in range(first, first + n))


def test_small_files_are_combined_and_files_are_not_cut(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}.txt").write_text(f"document {i}" * 5)
    (tmp_path / "7.jsonl.gz").write_bytes(gzip.compress(lines(500).encode()))
    (tmp_path / "8.jsonl").write_text(lines(30))
    pq.write_table(pa.table({"text": WORDS}), tmp_path / "9.parquet")
    parts = check(Corpus(CorpusConfig(paths=[str(tmp_path)])), target=120)
    assert [len(part.files) for part in parts] == [2, 2, 2, 1, 1, 1]
    assert sum(part.stored_bytes for part in parts) == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize("split", ["train", "heldout", "all"])
@pytest.mark.parametrize("named", [False, True], ids=["by-hash", "files"])
def test_filters_and_splits_do_not_depend_on_parts(tmp_path, split, named):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(12):
            (tmp_path / name / f"{i:02}.jsonl").write_text(lines(30, 30 * i))
    choice = {"min_document_bytes": 5, "sample": 0.7, "score_field": "score", "min_score": 1, "heldout_sample": 0.9}
    config = CorpusConfig(paths=[str(tmp_path / "a")], **choice)
    chosen = {"heldout_paths": [str(tmp_path / "b")]} if named else {"heldout_fraction": 0.3}
    assert len(check(Corpus(replace(config, **chosen)), split, 1000)) > 10


def test_text_with_a_budget_is_one_part(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(lines(30))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], max_bytes=500))
    assert corpus.parts("train", 100) == [corpus]


@pytest.mark.filterwarnings("ignore:.*damaged records")
def test_damage_is_listed_with_the_same_places(tmp_path):
    rows = lines(60).splitlines()
    for number in (1, 17, 18, 59):
        rows[number] = '{"text": 3' if number % 2 else '{"other": 1}'
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    table = pa.table({"text": pa.array([b"\xff" if i % 41 == 5 else b"good %d" % i for i in range(200)])})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=10)
    (tmp_path / "c.parquet").write_bytes(b"no Parquet" * 100)
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)], on_error="skip"))
    parts = check(corpus, target=150)
    assert corpus.skipped.count > 5
    found = Skipped()
    found.update(*(part.skipped.so_far() for part in parts))
    assert found.summary() == corpus.skipped.summary()
    assert "line 18: " in str(found.summary())


def test_counts_of_parts_add_up(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.jsonl").write_text(lines(20, 20 * i))
    (tmp_path / "6.jsonl").write_text('{"text": ""}\n' * 10)
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path)]))
    parts = [count_pretokens(part, "gpt2", threads=1) for part in parts_of(corpus, target=90)]
    assert any(part.n_bytes == 0 for part in parts)
    assert mix_counts([(part, 1) for part in parts]) == count_pretokens(corpus, "gpt2", threads=1)
