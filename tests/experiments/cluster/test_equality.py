"""Shards and errors of a cluster equal those of this machine's threads, byte by byte."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster import parts as cluster_parts
from experiments.stages import corpus as corpus_stage
from experiments.stages.count import _task
from lm.data.sharding import ShardConfig, join_parts, map_parts, write_part, write_shards
from lm.data.shards import Shards
from tests import other_tokenizers
from tokenizer import Corpus, UserError, count_pretokens, train_bpe
from tokenizer.external.load import load_pretrained
from tokenizer.progress import Throttle
from tokenizer.train.counting import DEFAULT_SPECIAL_TOKENS, Cut

SETTINGS = {"pattern": "gpt2", "unit": "document", "threads": 1}
COUNTING = {"threads": 1, "memory_bytes": None, "spill_folder": None}


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unigram.model", "word_pieces"])
def test_shards_of_tokenizers_that_change_text_are_equal(files, cluster, tmp_path, name, monkeypatch):
    path = other_tokenizers.write(tmp_path, name)
    tokenizer = load_pretrained(path, add_special_tokens=["<|endoftext|>"]).tokenizer
    monkeypatch.setattr(Corpus.parts, "__defaults__", ("train", 20_000))
    monkeypatch.setattr(cluster_parts, "PART_BYTES", 20_000)
    layout = ShardConfig(tokens_per_shard=3000)
    local = Corpus(files.config)
    whole = write_shards(tmp_path / "whole", tokenizer, local.batches(), layout, threads=1)
    assert whole["text_loss"]["unknown_tokens"] > 0

    def written(name, corpus, write):
        target = tmp_path / name / "shards"
        write(partial(write_part, {target: tokenizer}, layout, "train"), corpus, "train")
        return join_parts(target, tokenizer, layout, corpus.parts(), corpus.skipped.summary())

    for threads in (1, 6):
        manifest = written(f"here{threads}", local, partial(map_parts, threads=threads, report=Throttle(None, "")))
    written("cluster", files, partial(cluster_parts.write_shards, cluster, folder=tmp_path / "tasks"))
    assert len(manifest["shards"]) > len(whole["shards"])  # every part begins a new file
    for other in ("here6", "cluster"):
        assert files_of(tmp_path / other) == files_of(tmp_path / "here1")
    assert files.skipped.summary() == local.skipped.summary()
    shards = [Shards.open(tmp_path / name, tokenizer, verify="always") for name in ("whole", "here1/shards")]
    for name in ("document_ends", "document_bytes", "normalized_bytes", "covered_bytes"):
        first, second = (getattr(each, name) for each in shards)
        assert first is second is None or first.tolist() == second.tolist()
    assert np.array_equal(*(each.tokens(0, each.n_tokens) for each in shards))
    assert shards[0].text_loss == shards[1].text_loss


def test_shards_continue_after_a_kill(files, tmp_path, monkeypatch):
    tokenizer = train_bpe(count_pretokens(files, **SETTINGS), 300)
    monkeypatch.setattr(Corpus.parts, "__defaults__", ("train", 20_000))
    target, other, config = tmp_path / "a" / "shards", tmp_path / "b" / "shards", ShardConfig()
    n_parts, begun = len(files.parts()), []

    def killed(part, *args):
        begun.append(part)
        if len(begun) == n_parts // 2:
            raise KeyboardInterrupt
        return write_part({target: tokenizer}, config, "train", part, *args)

    with pytest.raises(KeyboardInterrupt):
        map_parts(killed, files, "train", 1, Throttle(None, ""))
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "a/parts").rglob("tokens*")}
    assert done
    both = partial(write_part, {target: tokenizer, other: tokenizer}, config, "train")
    map_parts(both, files, "train", 1, Throttle(None, ""))
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())
    join = partial(join_parts, tokenizer=tokenizer, config=config, parts=files.parts(), skipped={})
    rename, moved = Path.rename, []

    def killed_at_the_third(path, to):
        moved.append(path)
        if len(moved) == 3:
            raise KeyboardInterrupt
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            join(target)
    join(target)
    join(other)
    assert files_of(target) == files_of(other)
    Shards.open(target, tokenizer, verify="always")


@pytest.mark.parametrize(
    ("split", "settings"), [("train", {"min_document_bytes": 10**6}), ("heldout", {"heldout_fraction": 0.0})]
)
def test_errors_are_those_of_this_machine(files, cluster, tmp_path, split, settings):
    tokenizer = train_bpe(count_pretokens(files, **SETTINGS), 300)
    empty = Corpus(replace(files.config, **settings))
    write = partial(write_part, {tmp_path / "s": tokenizer}, ShardConfig(), split)
    survey = partial(_task, "", [], COUNTING, True)
    for where, action in (
        (split, lambda: cluster_parts.write_shards(cluster, write, empty, split, tmp_path / "tasks")),
        ("heldout", lambda: list(cluster.map_parts("survey", survey, empty, "heldout", tmp_path / "survey"))),
    ):
        with pytest.raises(UserError) as expected:
            list(empty.batches(where))
        with pytest.raises(UserError, match=f"^{re.escape(str(expected.value))}$"):
            action()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "1 large file, such as"),
        ({"max_bytes": 5000}, "corpus.max_bytes"),
        ({"paths": [], "dataset": "someone/text"}, "dataset=someone/text"),
    ],
)
def test_text_that_is_not_divided_is_named(files, monkeypatch, settings, named):
    assert not corpus_stage._undivided(files)
    monkeypatch.setattr(corpus_stage, "_LARGE", max(files.sizes()) - 1)
    assert named in corpus_stage._undivided(Corpus(replace(files.config, **settings)))


def test_a_text_with_a_budget_is_one_task(files, cluster, tmp_path):
    limited = Corpus(replace(files.config, max_bytes=5000))
    cuts = [Cut.of(pattern, "document", DEFAULT_SPECIAL_TOKENS) for pattern in ("gpt2", "none")]
    work = partial(_task, "", cuts, COUNTING, False)
    results = list(cluster.map_parts("count", work, limited, "train", tmp_path))
    for cut, counts in zip(cuts, cluster_parts.add_counts(cluster, results, tmp_path, None), strict=True):
        assert counts == count_pretokens(Corpus(limited.config), cut.pattern, threads=1)
    assert cluster.ray.submitted == ["count-00000"]
