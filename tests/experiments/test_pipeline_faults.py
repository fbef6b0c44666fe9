"""Experiments on damaged artifacts, full disks and after interruptions."""

import dataclasses
import errno
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.findings.compared import check_heldout
from experiments.results import Folder, Reading
from experiments.stages.shards import EncodedArm
from experiments.stages.tokenizers import ArmTokenizer
from experiments.store.artifacts import Store
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests, paths, rejected
from tests.experiments.outputs import run_until as run
from tokenizer.errors import UserError


def test_too_little_space_for_shards_is_noticed_before_they_are_written(tiny, tmp_path, monkeypatch):
    run_stages("train_superbpe", tiny, tmp_path / "outputs")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=40_000))
    err = rejected("shard", tiny, tmp_path)
    said = re.search(r"artifacts: the training shards need about (\S+) GB, but 4e-05 GB of the disk are free", err)
    assert float(said[1]) == pytest.approx(172e-6, rel=0.2)  # of both arms
    assert "set artifacts to a folder on a larger disk" in err
    assert {one["contents"]["split"] for one in manifests(tmp_path, "shards")} == {"heldout"}
    monkeypatch.undo()
    run_stages("shard", tiny, tmp_path / "outputs")
    sizes = [one["contents"] for one in manifests(tmp_path, "shards") if one["contents"]["split"] == "train"]
    assert sum(each["n_tokens"] for each in sizes) * 2 == pytest.approx(172_000, rel=0.02)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    run_stages("shard", tiny, tmp_path / "outputs")  # nothing more is written


def test_the_split_is_part_of_what_is_compared(tmp_path):
    store = Store(tmp_path)

    def made(stage, corpus, split):
        contents = {"corpus": corpus, "split": split}
        return store.make(Reading, stage, config=contents, inputs={}, build=lambda folder: Reading(**contents))

    training = made("shards", "a", "train")
    tokenizer = ArmTokenizer("bpe", "BPE", None, None, counts=made("count", "a", "train"))
    arm = EncodedArm.of(tokenizer, training, made("shards", "a", "heldout"))
    models = [store.make(Folder, "lm", config={}, inputs={"shards": training.hash}, build=lambda _: Folder())]
    check_heldout("a", arm, models)
    with pytest.raises(UserError, match="held-out text may have been trained on"):
        check_heldout("b", arm, models)
    heldout, other = arm.heldout, made("count", "b", "train")
    wrong = [{"heldout": training}, {"heldout": made("shards", "b", "heldout")}, {"training": heldout}]
    wrong += [{"record": read} for read in (heldout, other)]
    for changes in wrong:
        with pytest.raises(UserError, match="held-out text may have been trained on"):
            check_heldout("a", dataclasses.replace(arm, **changes), models)
    with pytest.raises(UserError, match="trained on other shards"):
        check_heldout("a", arm, [store.make(Folder, "lm", config={}, inputs={"shards": "x"}, build=lambda _: Folder())])


@pytest.mark.parametrize(
    "stage", ["count", *(pytest.param(name, marks=pytest.mark.slow) for name in ("train_bpe", "shard", "train_lm"))]
)
def test_a_full_disk_is_one_line_in_every_stage_and_loses_nothing(stage, tiny, tmp_path, monkeypatch, capsys):
    made = {"count": "count", "train_bpe": "bpe", "shard": "shards", "train_lm": "lm"}[stage]
    fsync = os.fsync

    def full(handle):
        if f"/.{made}-" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert run(stage, tiny) == 2
    complaint = capsys.readouterr().err
    assert "the disk is full; free some space, then run the same command again" in complaint
    assert f".{made}-" in complaint
    assert "Traceback" not in complaint
    assert json.loads((tmp_path / "outputs" / "run.json").read_text())["exit_code"] == 2
    run_stages(stage, tiny, tmp_path / "outputs")


@pytest.mark.parametrize("stage", ["shard", pytest.param("train_lm", marks=pytest.mark.slow)])
def test_what_an_earlier_attempt_finished_is_verified_before_it_is_kept(stage, tiny, tmp_path):
    name = {"shard": "shards", "train_lm": "lm"}[stage]
    run_stages(stage, tiny, tmp_path / "outputs")
    finished = paths(tmp_path, name)[0]
    data = next(path for path in sorted(finished.rglob("*")) if path.suffix in (".bin", ".safetensors"))
    content = data.read_bytes()
    # Killed after the stage's own last file and before the manifest; a bit flipped before the next attempt.
    unfinished = finished.rename(finished.with_name(f".{finished.name}.partial"))
    (unfinished / "manifest.json").unlink()
    (unfinished / data.relative_to(finished)).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    if stage == "shard":
        run_stages(stage, tiny, tmp_path / "outputs")
        assert data.read_bytes() == content
    else:
        rejected(stage, tiny, tmp_path)
        assert not finished.exists()
