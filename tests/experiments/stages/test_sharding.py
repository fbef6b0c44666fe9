"""The sharding stage on a small corpus: its identity, and its facts."""

from experiments.results import ShardsFolder
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests, names_by_stage


def test_bytes_per_token_leave_out_separators(tiny, tmp_path):
    run_stages("shard", [*tiny, "arms=[bpe,bytes]"], tmp_path / "outputs")
    contents = [each["contents"] for each in manifests(tmp_path, "shards") if each["contents"]["vocab_size"] == 257]
    assert [ShardsFolder(**each).bytes_per_token for each in contents] == [1.0] * 2


def test_only_a_changed_layout_is_part_of_the_identity_of_shards(tiny, tmp_path):
    run_stages("shard", tiny, tmp_path / "outputs")
    usual = names_by_stage(tmp_path)["shards"]
    config = {"split": "train", "version": 3}
    assert config in [each["config"] for each in manifests(tmp_path, "shards")]
    run_stages("shard", [*tiny, "shards.tokens_per_shard=100000000"], tmp_path / "outputs")
    assert names_by_stage(tmp_path)["shards"] == usual
