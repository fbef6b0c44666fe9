"""The sharding stage on a small corpus: its identity, and interruptions."""

import json

from lm.data.shard_writer import Writer
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import run_until as run

SMALL = "shards.tokens_per_shard=2000"


def folders(tmp_path, split="train"):
    """Finished shards of one split: one folder per tokenizer, by name."""
    found = (path for path in sorted((tmp_path / "artifacts").glob("shards-*")))
    return [p for p in found if json.loads((p / "manifest.json").read_text())["contents"]["split"] == split]


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}


def test_an_interrupted_stage_is_made_again(tiny, tmp_path, monkeypatch):
    run_stages("shard", [*tiny, SMALL], tmp_path / "outputs")
    whole = {folder.name: contents(folder) for folder in folders(tmp_path)}
    for folder in (tmp_path / "artifacts").glob("shards-*"):
        (folder / "manifest.json").unlink()
        folder.rename(tmp_path / folder.name)
    finish = Writer._finish_shard

    def interrupted(writer):
        finish(writer)
        if len(writer._shards) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "_finish_shard", interrupted)
    assert run("shard", [*tiny, SMALL]) == 130
    monkeypatch.undo()
    run_stages("shard", [*tiny, SMALL], tmp_path / "outputs")
    assert {folder.name: contents(folder) for folder in folders(tmp_path)} == whole


def test_only_a_changed_layout_is_part_of_the_identity_of_shards(tiny, tmp_path):
    run_stages("shard", tiny, tmp_path / "outputs")
    usual = folders(tmp_path)
    assert json.loads((usual[0] / "manifest.json").read_text())["config"] == {"split": "train", "version": 3}
    run_stages("shard", [*tiny, "shards.tokens_per_shard=100000000"], tmp_path / "outputs")
    assert folders(tmp_path) == usual
