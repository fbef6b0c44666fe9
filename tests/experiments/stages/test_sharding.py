"""The sharding stage on a small corpus: its identity, and its facts."""

import shutil
import subprocess
import sys

import pytest

from experiments.results import ShardsFolder
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests, names_by_stage
from tokenizer.corpus import corpus


def test_bytes_per_token_leave_out_separators(tiny, tmp_path):
    run_stages("shard", [*tiny, "arms=[bpe,bytes]"], tmp_path / "outputs")
    contents = [each["contents"] for each in manifests(tmp_path, "shards") if each["contents"]["vocab_size"] == 257]
    assert [ShardsFolder(**each).bytes_per_token for each in contents] == [1.0] * 2


def test_only_a_changed_layout_is_part_of_the_identity_of_shards(tiny, tmp_path):
    run_stages("shard", tiny, tmp_path / "outputs")
    usual = names_by_stage(tmp_path)["shards"]
    config = {"split": "train", "version": 4}
    assert config in [each["config"] for each in manifests(tmp_path, "shards")]
    run_stages("shard", [*tiny, "shards.tokens_per_shard=100000000"], tmp_path / "outputs")
    assert names_by_stage(tmp_path)["shards"] == usual


@pytest.mark.slow
def test_the_text_is_read_as_often_as_documented(tiny, tmp_path, monkeypatch):
    passes, original = [], corpus.read_files

    def counted(skipped, files, *args, **options):
        passes.extend(path for path, _ in files if ".partial" not in str(path) and "artifacts" not in str(path))
        return original(skipped, files, *args, **options)

    monkeypatch.setattr(corpus, "read_files", counted)
    other = ["arms.other.recipe=bpe", "arms.other.pattern=gpt2"]
    run_stages("shard", [*tiny, "arms=[bpe,superbpe,bytes,other]", *other], tmp_path / "outputs")
    # The first held-out document; counts for both patterns and all held-out documents; two passes of phase 2; shards
    # and overlap.
    assert len(passes) == 5
    passes.clear()
    more = ["arms=[bpe,superbpe,bytes,other,small,smaller]", *other]
    more += [
        f"arms.{name}.{what}"
        for name, n in (("small", 390), ("smaller", 380))
        for what in ("recipe=bpe", f"bpe.vocab_size={n}")
    ]
    run_stages("shard", [*tiny, *more], tmp_path / "outputs")
    assert len(passes) == 2  # the first held-out document, and the shards of the new arms
    passes.clear()
    shutil.rmtree(next((tmp_path / "artifacts").glob("contamination-*")))
    shutil.rmtree(next((tmp_path / "artifacts").glob("documents-*")))
    run_stages("shard", [*tiny, *more], tmp_path / "outputs")
    assert len(passes) == 3  # what is missing: held-out documents and overlap


@pytest.mark.slow
def test_shards_need_no_torch(tiny, tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.experiments.conftest import run_stages; "
        f"run_stages('shard', {tiny}, Path({str(tmp_path / 'outputs')!r})); print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1:] == ["False"], ran.stdout + ran.stderr
