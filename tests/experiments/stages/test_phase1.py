"""Phase 1 as a stage: lists of merges that several vocabularies share."""

import shutil

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage


def test_a_longer_list_of_merges_serves_a_smaller_vocabulary(tiny, tmp_path, capsys):
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    assert "reused" not in capsys.readouterr().out
    direct = set(names_by_stage(tmp_path)["tokenizer"])
    shutil.rmtree(tmp_path / "artifacts")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=350"], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["bpe"]) == 1
    assert direct < set(names_by_stage(tmp_path)["tokenizer"])


def test_a_larger_vocabulary_trains_a_longer_list(tiny, tmp_path):
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=400"], tmp_path / "outputs")
    shorter = set(names_by_stage(tmp_path)["tokenizer"])
    run_stages("train_bpe", [*tiny, "bpe.vocab_size=420"], tmp_path / "outputs")
    assert len(names_by_stage(tmp_path)["bpe"]) == 2
    assert shorter < set(names_by_stage(tmp_path)["tokenizer"])


def test_presets_with_the_same_phase_1_share_its_merges(tiny, tmp_path):
    run_stages("train_bpe", [*tiny, "superbpe=runs"], tmp_path / "outputs")
    lists = names_by_stage(tmp_path)["bpe"]
    run_stages("train_bpe", [*tiny, "superbpe=runs", "superbpe.max_words=3"], tmp_path / "outputs")
    assert names_by_stage(tmp_path)["bpe"] == lists
