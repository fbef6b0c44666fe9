"""Artifacts of a run on a cluster equal those of a run on this machine."""

import json
import shutil

import pytest

from experiments.cluster import parts as cluster_parts
from experiments.cluster import tasks
from experiments.stages import shards
from tests.experiments.cluster.fake_ray import FakeRay
from tests.experiments.conftest import run_stages
from tokenizer.corpus.corpus import Corpus


def files_by_artifact(folder):
    found = {}
    for path in folder.glob("[a-z]*/manifest.json"):
        manifest = found[path.parent.name] = json.loads(path.read_text())
        kept = ("hash",) if path.parent.name.startswith(("bpe", "superbpe")) else ("hash", "contents", "files")
        found[path.parent.name] = {key: manifest[key] for key in kept}
    return found


@pytest.mark.parametrize("kind", [pytest.param("corpus", marks=pytest.mark.slow), "named-sources"])
def test_artifacts_are_equal(tiny, corpus, tmp_path, monkeypatch, kind):
    rows = corpus.read_text().splitlines(keepends=True)
    for name, chosen in (("all", rows), ("heldout", rows[::9]), ("a", rows[:150]), ("b", rows[100:])):
        (tmp_path / name).mkdir()
        for i in range(0, len(chosen), 20):
            (tmp_path / name / f"{i:03}.jsonl").write_text("".join(chosen[i : i + 20]))
    more = [f"corpus.paths=[{tmp_path}/all]"]
    if kind == "named-sources":
        more = ["corpus.heldout_fraction=0", f"corpus.heldout_paths=[{tmp_path}/heldout]"]
        more.append(f"corpus.sources={{a: '{tmp_path}/a', b: '{tmp_path}/b:3'}}")
        tiny = [word for word in tiny if not word.startswith(("corpus.heldout_fraction", "corpus.paths"))]
    ray = FakeRay(count_00003=["lost"], encode_00003=["lost"] * 2)
    monkeypatch.setattr(cluster_parts, "FAN_IN", 4)
    monkeypatch.setattr(tasks, "started", lambda _: ray)
    parts = Corpus.parts
    monkeypatch.setattr(Corpus, "parts", lambda self, split="train", target=0: parts(self, split, 15_000))
    run_stages("shard", [*tiny, *more], tmp_path / "local")
    expected = files_by_artifact(tmp_path / "artifacts")
    elsewhere, join, joined = [*tiny, *more, f"artifacts={tmp_path}/ray", "runner=ray"], shards.join_parts, []

    def killed_at_the_last(target, *arguments):
        joined.append(target)
        if len(joined) == 4:  # two arms, held-out and training text
            raise KeyboardInterrupt
        return join(target, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "join_parts", killed_at_the_last)
        with pytest.raises(KeyboardInterrupt):
            run_stages("shard", elsewhere, tmp_path / "killed")
    n_submitted = len(ray.submitted)
    run_stages("shard", elsewhere, tmp_path / "remote")
    assert not ray.submitted[n_submitted:], "all parts were encoded"
    assert files_by_artifact(tmp_path / "ray") == expected
    unfinished = [path for name in ("parts", "tasks") for path in (tmp_path / "ray").rglob(name)]
    assert not unfinished, "results of tasks are deleted"
    kinds = {"count", "seams", "fragments", "encode", *(["survey"] if kind == "named-sources" else [])}
    assert {name.partition("-")[0] for name in ray.submitted} == kinds
    assert len(ray.submitted) > 30
    assert any(name.startswith("count-sum-1-") for name in ray.submitted), "a tree of sums"
    # Where each task would read too much held-out text, the overlap has a pass of its own, also after the shards.
    monkeypatch.setattr(shards, "PART_BYTES", 1)
    (overlap,) = (tmp_path / "ray").glob("contamination-*")
    shutil.rmtree(overlap)
    run_stages("shard", elsewhere, tmp_path / "again")
    assert files_by_artifact(tmp_path / "ray") == expected
