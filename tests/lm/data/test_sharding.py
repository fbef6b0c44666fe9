from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash

from lm.data.sharding import ShardConfig, copy_documents, write_shards
from lm.data.shards import Shards
from tokenizer.checksums import read_sealed
from tokenizer.errors import UserError


class Interrupted(Exception):
    pass


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_batches(batch, texts, n):
    return [batch(texts[i : i + n]) for i in range(0, len(texts), n)]


def interrupted_after(batches, n):
    yield from batches[:n]
    raise Interrupted


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("documents_per_batch", [1, 4])
def test_threads_and_batches_change_nothing(tmp_path, toy, batch, texts, threads, documents_per_batch, seed):
    config = ShardConfig(20, seed)
    write_shards(tmp_path / "a", toy(), [batch(texts)], config, threads=1)
    write_shards(tmp_path / "b", toy(), in_batches(batch, texts, documents_per_batch), config, threads=threads)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_copied_documents_equal_those_encoded_in_that_order(tmp_path, toy, batch, texts):
    write_shards(tmp_path / "all", toy(), [batch(texts)], ShardConfig(20))
    chosen = [3, 0, 2]
    copy_documents(tmp_path / "some", toy(), Shards.open(tmp_path / "all"), np.array(chosen))
    write_shards(tmp_path / "again", toy(), [batch([texts[i] for i in chosen])])
    assert contents(tmp_path / "some") == contents(tmp_path / "again")


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("n", range(7))
def test_the_same_call_continues_and_encodes_only_the_rest(tmp_path, toy, batch, texts, n, seed):
    batches = in_batches(batch, texts, 1)
    config = ShardConfig(20, seed)
    write_shards(tmp_path / "whole", toy(), batches, config)
    with pytest.raises(Interrupted):
        write_shards(tmp_path / "s", toy(), interrupted_after(batches, n), config, threads=1)
    assert not (tmp_path / "s").exists()
    records = sorted((tmp_path / ".s.partial").rglob("tokens-*.json"))
    done = sum(json.loads(record.read_text())["n_documents"] for record in records)

    tokenizer = toy()
    encoded = []
    encode = tokenizer.encode_stream
    tokenizer.encode_stream = lambda b, *how, **named: encoded.append(b) or encode(b, *how, **named)
    # Other batches than before: a shard may end inside one.
    write_shards(tmp_path / "s", tokenizer, in_batches(batch, texts, 2), config)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")
    assert len(encoded) == 3 - done // 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "whole"]


@pytest.mark.parametrize("seed", [[], ["3"]])
def test_after_a_kill_at_any_change_of_a_file_it_continues_with_the_same_result(tmp_path, seed):
    command = [sys.executable, "-m", "tests.lm.data.killed_writer", tmp_path, *seed]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert ran.returncode == 0, ran.stderr
    kills, kept = map(int, re.fullmatch(r"(\d+) kills, (\d+) finished shards kept\n", ran.stdout).groups())
    assert kills > 30
    assert kept > 30


def test_each_shard_has_a_record(tmp_path, toy, batch, texts):
    folder = tmp_path / "s"
    manifest = write_shards(folder, toy(), [batch(texts)], ShardConfig(20))
    assert len(manifest["shards"]) > 2
    shards = Shards.open(folder)
    document = 0
    for record in manifest["shards"]:
        assert read_sealed((folder / record["name"]).with_suffix(".json")) == record
        assert record["xxh3_128"] == xxhash.xxh3_128_hexdigest((folder / record["name"]).read_bytes())
        assert record["documents"] == [document, document + record["n_documents"]]
        held = slice(*record["documents"])
        assert record["n_bytes"] == sum(len(text.encode()) for text in texts[held])
        assert record["n_tokens"] == np.diff(shards.document_ends, prepend=0)[held].sum()
        document += record["n_documents"]
    assert document == len(texts)


def test_a_shuffle_depends_on_the_seed_and_not_on_the_tokenizer(tmp_path, toy, batch):
    texts = [f"the {i} of {i * i}" for i in range(50)]
    orders = {}
    for seed in (0, 1):
        for name, tokenizer in {"a": toy(), "b": toy(words=(b"the ",))}.items():
            folder = tmp_path / f"{name}{seed}"
            write_shards(folder, tokenizer, in_batches(batch, texts, 7), ShardConfig(100, seed))
            shards = Shards.open(folder, tokenizer)
            read = [b"".join(tokenizer.vocab[t] for t in shards.document(i)).decode() for i in range(50)]
            assert sorted(read) == sorted(texts)
            assert shards.document_bytes.tolist() == [len(text) for text in read]
            orders[seed, name] = read
    assert orders[0, "a"] == orders[0, "b"] != texts
    assert orders[1, "a"] == orders[1, "b"] != orders[0, "a"]


def test_another_seed_reuses_the_encoded_tokens(tmp_path, toy, batch, texts):
    def stop(what, done, total):
        if what == "shuffled":
            raise Interrupted

    tokenizer = toy()
    with pytest.raises(Interrupted):
        write_shards(tmp_path / "s", tokenizer, [batch(texts)], ShardConfig(20, 1), progress=stop)
    tokenizer.encode_stream = None
    write_shards(tmp_path / "s", tokenizer, [batch(texts)], ShardConfig(20, 2))
    write_shards(tmp_path / "t", toy(), [batch(texts)], ShardConfig(20, 2))
    assert contents(tmp_path / "s") == contents(tmp_path / "t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda texts: ["another text", *texts[1:]], "document 0 has 12 bytes now and had 36"),
        (lambda texts: [texts[0].upper(), *texts[1:]], r"another text: one of the documents 0 to \d+ has changed"),
        (lambda texts: texts[:1], "documents, but the corpus now has only 1"),
    ],
)
def test_finished_shards_of_another_text_are_rejected(tmp_path, toy, batch, texts, change, message):
    with pytest.raises(Interrupted):
        write_shards(
            tmp_path / "s", toy(), interrupted_after(in_batches(batch, texts, 1), 5), ShardConfig(20), threads=1
        )
    with pytest.raises(UserError, match=message):
        write_shards(tmp_path / "s", toy(), [batch(change(texts))], ShardConfig(20))
    write_shards(tmp_path / "s", toy(), [batch(texts)], ShardConfig(20))  # they stay


@pytest.mark.parametrize("changed", ["tokenizer", "size", "seed"])
def test_other_settings_start_from_scratch(tmp_path, toy, batch, texts, changed):
    with pytest.raises(Interrupted):
        write_shards(
            tmp_path / "s", toy(), interrupted_after(in_batches(batch, texts, 1), 5), ShardConfig(20), threads=1
        )
    tokenizer = toy(words=(b"the ",)) if changed == "tokenizer" else toy()
    config = {"tokenizer": ShardConfig(20), "size": ShardConfig(40), "seed": ShardConfig(20, 1)}[changed]
    for name in ("s", "t"):
        write_shards(tmp_path / name, tokenizer, [batch(texts)], config)
    assert contents(tmp_path / "s") == contents(tmp_path / "t")


def test_progress_counts_bytes_up_to_the_total(tmp_path, toy, batch, texts):
    reports = []
    config = ShardConfig(20, 0)
    n_bytes = sum(len(text.encode()) for text in texts)
    write_shards(
        tmp_path / "s", toy(), [batch(texts)], config, progress=lambda *report: reports.append(report), n_bytes=n_bytes
    )
    assert ("shards", n_bytes, n_bytes) in reports
    assert reports[-1] == ("shuffled", n_bytes, n_bytes)


@pytest.mark.parametrize("wrong", [{"tokens_per_shard": 0}, {"shuffle_seed": -1}])
def test_impossible_configurations_are_rejected(wrong):
    with pytest.raises(UserError, match="must be at least"):
        ShardConfig(**wrong)
