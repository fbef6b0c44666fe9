"""The sharding stage on a small corpus: its identity."""

from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests, names_by_stage


def test_only_a_changed_layout_is_part_of_the_identity_of_shards(tiny, tmp_path):
    run_stages("shard", tiny, tmp_path / "outputs")
    usual = names_by_stage(tmp_path)["shards"]
    config = {"split": "train", "version": 3}
    assert config in [each["config"] for each in manifests(tmp_path, "shards")]
    run_stages("shard", [*tiny, "shards.tokens_per_shard=100000000"], tmp_path / "outputs")
    assert names_by_stage(tmp_path)["shards"] == usual
