import shutil
import warnings

import numpy as np
import pytest
import xxhash

from lm.data.sharding import ShardConfig, copy_documents, write_shards
from lm.data.shards import Shards
from tests.lm import tiny
from tokenizer import Batch, Corpus, CorpusConfig
from tokenizer.files import read_sealed


class Interrupted(Exception):
    pass


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_batches(texts, n):
    return [Batch.from_texts(texts[i : i + n]) for i in range(0, len(texts), n)]


def interrupted_after(batches, n):
    yield from batches[:n]
    raise Interrupted


def test_copied_documents_equal_those_encoded_in_that_order(tmp_path, texts):
    write_shards(tmp_path / "all", tiny.words(), [Batch.from_texts(texts)], ShardConfig(20))
    chosen = [3, 0, 2]
    copy_documents(tmp_path / "some", tiny.words(), Shards.open(tmp_path / "all"), np.array(chosen))
    write_shards(tmp_path / "again", tiny.words(), [Batch.from_texts([texts[i] for i in chosen])])
    assert contents(tmp_path / "some") == contents(tmp_path / "again")


@pytest.mark.parametrize("n", [0, 3, 5])
def test_an_interrupted_call_leaves_nothing(tmp_path, texts, n):
    with pytest.raises(Interrupted):
        write_shards(
            tmp_path / "s", tiny.words(), interrupted_after(in_batches(texts, 1), n), ShardConfig(20), threads=1
        )
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_replaced(tmp_path, texts):
    write_shards(tmp_path / "whole", tiny.words(), [Batch.from_texts(texts)], ShardConfig(20))
    shutil.copytree(tmp_path / "whole", tmp_path / ".s.0123abcd.partial")
    (tmp_path / ".s.0123abcd.partial" / "tokens-00009.bin").write_bytes(b"half")
    write_shards(tmp_path / "s", tiny.words(), [Batch.from_texts(texts)], ShardConfig(20))
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "whole"]


def test_each_shard_has_a_record(tmp_path, texts):
    folder = tmp_path / "s"
    manifest = write_shards(folder, tiny.words(), [Batch.from_texts(texts)], ShardConfig(20))
    assert len(manifest["shards"]) > 2
    shards = Shards.open(folder)
    document = 0
    for record in manifest["shards"]:
        assert record["xxh3_128"] == xxhash.xxh3_128_hexdigest((folder / record["name"]).read_bytes())
        assert record["documents"] == [document, document + record["n_documents"]]
        held = slice(*record["documents"])
        assert record["n_bytes"] == sum(len(text.encode()) for text in texts[held])
        assert record["n_tokens"] == np.diff(shards.document_ends, prepend=0)[held].sum()
        document += record["n_documents"]
    assert document == len(texts)


def test_progress_counts_bytes_up_to_the_total(tmp_path, texts):
    reports = []
    config = ShardConfig(20)
    n_bytes = sum(len(text.encode()) for text in texts)
    batches, progress = [Batch.from_texts(texts)], lambda *report: reports.append(report)
    write_shards(tmp_path / "s", tiny.words(), batches, config, progress=progress, n_bytes=n_bytes)
    assert reports[-1] == ("shards", n_bytes, n_bytes)


def test_the_manifest_has_the_number_and_the_places_of_skipped_records(tmp_path):
    file = tmp_path / "text.jsonl"
    file.write_text('{"text": "the end"}\nnot JSON\n{"text": "of it"}\n{"text": 3}\n')
    corpus = Corpus(CorpusConfig(paths=[str(file)], on_error="skip"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        manifest = write_shards(tmp_path / "s", tiny.words(), corpus.batches(), skipped=corpus.skipped.summary)
    assert manifest["n_documents"] == 2
    assert manifest == read_sealed(tmp_path / "s" / "shards.json")
    assert manifest["skipped"]["count"] == 2
    assert [f"line {n}" in place for n, place in zip((2, 4), manifest["skipped"]["places"], strict=True)] == [True] * 2
    plain = write_shards(tmp_path / "t", tiny.words(), [Batch.from_texts(["the end"])], skipped=dict)
    assert "skipped" not in plain
