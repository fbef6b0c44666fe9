"""Shards and errors of a cluster equal those of this machine's threads, byte by byte."""

import re
from dataclasses import replace
from functools import partial

import pytest

from experiments.cluster.parts import count, encoded_by
from experiments.stages.heldout import _survey
from lm.data.sharding import ShardConfig, write_encoded, write_shards
from tests import other_tokenizers
from tokenizer import Corpus, UserError, count_pretokens, train_bpe
from tokenizer.external.load import load_pretrained

SETTINGS = {"pattern": "gpt2", "unit": "document", "threads": 1}


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [pytest.param("unigram.model", marks=pytest.mark.slow), "word_pieces"])
def test_shards_of_tokenizers_that_change_text_are_equal(files, cluster, tmp_path, name):
    path = other_tokenizers.write(tmp_path, name)
    tokenizer = load_pretrained(path, add_special_tokens=["<|endoftext|>"]).tokenizer
    layout = ShardConfig(tokens_per_shard=20_000)
    local = Corpus(files.config)
    manifest = write_shards(tmp_path / "expected", tokenizer, local.batches(), layout, threads=1)
    assert manifest["text_loss"]["unknown_tokens"] > 0
    assert len(manifest["shards"]) > 2
    source = partial(encoded_by, cluster, files, "train", [tokenizer], tmp_path / "parts")
    write_encoded({tmp_path / "found": tokenizer}, source(), layout)
    assert files_of(tmp_path / "found") == files_of(tmp_path / "expected")
    assert files.skipped.summary() == local.skipped.summary()


@pytest.mark.parametrize(
    ("split", "settings"), [("train", {"min_document_bytes": 10**6}), ("heldout", {"heldout_fraction": 0.0})]
)
def test_errors_are_those_of_this_machine(files, cluster, tmp_path, split, settings):
    tokenizer = train_bpe(count_pretokens(files, **SETTINGS), 300)
    empty = Corpus(replace(files.config, **settings))
    source = partial(encoded_by, cluster, empty, split, [tokenizer], tmp_path / "parts")
    for where, action in (
        (split, lambda: write_encoded({tmp_path / "s": tokenizer}, source())),
        ("heldout", lambda: list(cluster.map_parts("survey", _survey, empty, "heldout", tmp_path / "survey"))),
    ):
        with pytest.raises(UserError) as expected:
            list(empty.batches(where))
        with pytest.raises(UserError, match=f"^{re.escape(str(expected.value))}$"):
            action()


def test_a_text_with_a_budget_is_one_task(files, cluster, tmp_path):
    limited = Corpus(replace(files.config, max_bytes=5000))
    assert count(cluster, limited, tmp_path, SETTINGS) == count_pretokens(Corpus(limited.config), **SETTINGS)
    assert cluster.ray.submitted == ["count-00000"]
