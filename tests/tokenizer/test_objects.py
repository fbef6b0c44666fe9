"""Tokenizers, counts, corpora and rules as values: pickles, copies, equality, hashes, use in other processes."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from superbpe import PRESETS, Rules
from tests import other_tokenizers
from tests.properties import quick_first
from tokenizer import Batch, Corpus, CorpusConfig, Tokenizer, UserError, count_pretokens
from tokenizer.external.load import load_pretrained
from tokenizer.special import Preparation

TEXTS = ["in order to see some of the world", "naïve 日本 <|endoftext|>", "", "x = 1\n"] * 5
KINDS = ("gpt2", "superwords", "two_pass")


@pytest.fixture(params=[*KINDS, "unigram.model", "word_pieces"])
def tokenizer(request, trained, tmp_path):
    """A tokenizer that has encoded and decoded, so that it holds native objects."""
    if request.param in KINDS:
        found = Tokenizer(trained[request.param].definition, {"made": {"merges": []}})
    else:
        found = load_pretrained(other_tokenizers.write(tmp_path, request.param)).tokenizer
    found.decode(found.encode_ordinary(TEXTS[0]))
    return found


@pytest.fixture
def objects(tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path / "a.txt")], heldout_fraction=0.5))
    return [count_pretokens([Batch.from_texts(TEXTS)], "gpt2"), corpus, PRESETS["spans"], Rules(forbid=[": "])]


def test_copies_of_a_tokenizer_are_equal_and_independent(tokenizer):
    for again in (pickle.loads(pickle.dumps(tokenizer)), copy.copy(tokenizer), copy.deepcopy(tokenizer)):
        assert again is not tokenizer
        assert (again, hash(again), again.provenance) == (tokenizer, hash(tokenizer), tokenizer.provenance)
        assert len({again, tokenizer}) == 1
        assert again.encode_ordinary(TEXTS[1]) == tokenizer.encode_ordinary(TEXTS[1])
        again.provenance.setdefault("made", {})["changed"] = True
        assert "changed" not in tokenizer.provenance.get("made", {})
    data = pickle.dumps(tokenizer)
    assert pickle.dumps(pickle.loads(data)) == pickle.dumps(copy.deepcopy(tokenizer)) == data  # whatever was encoded


def test_tokenizers_that_give_other_ids_are_not_equal(trained):
    assert len({trained[name] for name in KINDS}) == len(KINDS)
    assert trained["gpt2"] != trained["llama3"]
    assert trained["gpt2"] != "gpt2"
    assert trained["gpt2"] == Tokenizer(trained["gpt2"].definition, {"another": "origin"})


@pytest.mark.slow
def test_pickles_do_not_depend_on_the_process(trained, tmp_path):
    other = load_pretrained(other_tokenizers.write(tmp_path, "word_pieces")).tokenizer
    data = [pickle.dumps(each) for each in (trained["superwords"], other, PRESETS["uw-2025"])]
    code = """import pickle, sys
data = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps([pickle.dumps(pickle.loads(each)) for each in data]))"""
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONHASHSEED": "7"}
    again = subprocess.run(command, input=pickle.dumps(data), env=environment, capture_output=True, check=True)
    assert pickle.loads(again.stdout) == data
    names = [f"<{i}>" for i in range(20)]  # nor on the order of a set
    one = Preparation(late=frozenset(names), added_tokens={name: i for i, name in enumerate(names)})
    other = Preparation(late=frozenset(reversed(names)), added_tokens=dict(one.added_tokens))
    assert pickle.dumps(one) == pickle.dumps(other)
    assert pickle.loads(pickle.dumps(one)) == one


def test_pickles_are_small_and_versioned(trained):
    data = pickle.dumps(trained["gpt2"])
    assert len(data) < 25 * len(trained["gpt2"])
    newer = data.replace(b'"version": 5', b'"version": 9')
    with pytest.raises(UserError, match="is not a tokenizer of format version 5"):
        pickle.loads(newer)
    assert pickle.loads(data).definition.encoder is pickle.loads(data).definition.encoder  # one for all tasks


def test_counts_and_rules_are_values(objects):
    for found in (objects[0], *objects[2:]):
        for again in (pickle.loads(pickle.dumps(found)), copy.copy(found), copy.deepcopy(found)):
            assert (again, hash(again), repr(again)) == (found, hash(found), repr(found))
        assert pickle.dumps(pickle.loads(pickle.dumps(found))) == pickle.dumps(found)
        assert found != "another"
    counts, _, rules, _ = objects
    assert counts != count_pretokens([Batch.from_texts(TEXTS)], "llama3")
    changed = copy.deepcopy(counts)
    changed.counts[0] += 1
    assert changed != counts
    assert rules != Rules()


def test_a_corpus_in_another_process_notices_that_a_file_changed(objects, tmp_path):
    again = pickle.loads(pickle.dumps(objects[1]))
    (tmp_path / "a.txt").write_text("another text")
    with pytest.raises(UserError, match="changed while it was in use"):
        list(again.batches("all"))


# ------------------------------------------------------------------ other processes


@pytest.mark.parametrize("method", quick_first(["fork", "spawn"]))
def test_pools_encode(method, trained):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    found = trained["superwords"]
    found.encode_batch(TEXTS, threads=2)  # threads that a fork does not have
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(found.encode_ordinary, TEXTS) == list(map(found.encode_ordinary, TEXTS))


def test_datasets_map_finds_its_cache_again(trained, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(tmp_path / "data"))

    def ids(tokenizer):
        rows = datasets.load_from_disk(str(tmp_path / "data"))
        return rows.map(lambda batch: tokenizer(batch["text"]), batched=True)

    first = ids(pickle.loads(pickle.dumps(trained["superwords"])))
    assert list(first["input_ids"]) == list(map(trained["superwords"].encode_ordinary, TEXTS))
    files = [Path(file["filename"]).stat() for file in first.cache_files]
    trained["superwords"].encode("some more text")
    second = ids(trained["superwords"])
    assert second.cache_files == first.cache_files
    assert [Path(file["filename"]).stat() for file in second.cache_files] == files
    assert ids(trained["gpt2"]).cache_files != first.cache_files


# ------------------------------------------------------------------ names as in `tokenizers`


def test_a_call_returns_input_ids(tokenizer):
    rows = list(map(tokenizer.encode_ordinary, TEXTS))
    assert tokenizer(TEXTS[0]) == {"input_ids": rows[0]}
    assert tokenizer(TEXTS) == {"input_ids": rows}
    assert tokenizer([]) == {"input_ids": []}
    assert tokenizer([""]) == {"input_ids": [tokenizer.encode_ordinary("")]}
    with pytest.raises(UserError, match="text 1 is not a string but int"):
        tokenizer(["a", 5])


def test_tokens_have_names(tokenizer):
    lengths = tokenizer.token_byte_lengths()
    assert (lengths.dtype, len(lengths)) == (np.int32, len(tokenizer))
    assert len(tokenizer) == tokenizer.vocab_size == len(tokenizer.vocab)
    ids = tokenizer.encode_ordinary(TEXTS[1])
    assert [tokenizer.token_to_id(token) for token in tokenizer.tokenize(TEXTS[1])] == ids
    assert [tokenizer.id_to_token(i) for i in ids] == tokenizer.tokenize(TEXTS[1])
    vocab = tokenizer.get_vocab()
    assert len(vocab) == len(set(vocab.values()))
    assert all(tokenizer.id_to_token(i) == name for name, i in vocab.items())
    vocab.clear()
    assert tokenizer.get_vocab()
    unknown = [tokenizer.id_to_token(len(tokenizer)), tokenizer.id_to_token(-1), tokenizer.token_to_id("no such")]
    assert unknown == [None] * 3
