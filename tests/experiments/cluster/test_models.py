"""Models that are trained and scored in tasks are those of a run in one process."""

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiments.cluster import tasks
from experiments.config import RunnerConfig
from experiments.stages import model_tasks
from experiments.stages.models import METRICS
from tests.experiments.cluster.fake_ray import FakeRay
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import names_by_stage
from tokenizer.errors import UserError

LADDER = ["budget.ladder=[0.5]", "lm.n_seeds=2", "lm.train.warmup_steps=2", "lm.train.decay=sqrt"]
UMASK = os.umask(0o022)
os.umask(UMASK)


@pytest.fixture
def ray(monkeypatch):
    """One thread: models that train at the same time in one process would share Torch's settings."""
    made = FakeRay(1)
    made.pool = ThreadPoolExecutor(1)
    cloudpickle = pytest.importorskip("cloudpickle")
    monkeypatch.setattr(made, "sent", lambda arguments: cloudpickle.loads(cloudpickle.dumps(arguments)))
    monkeypatch.setattr(tasks, "started", lambda _: made)
    return made


def results(folder):
    """Checksums of all weights, scores and training metrics, without times, by artifact."""
    found = {}
    for path in [*folder.glob("lm-*"), *folder.glob("trunk-*"), *folder.glob("evaluation-*")]:
        files = json.loads((path / "manifest.json").read_text())["files"]
        rows = [json.loads(line) for line in (path / METRICS).open()] if (path / METRICS).exists() else []
        metrics = sorted({(row["step"], row["loss"]) for row in rows})  # steps after a checkpoint may be logged twice
        kept = {name: each for name, each in files.items() if name.endswith((".safetensors", ".npz"))}
        assert kept
        found[path.name] = kept if not path.name.startswith("trunk-") else sorted(kept), metrics
    return found


@pytest.mark.slow
def test_models_and_scores_are_equal(tiny, tmp_path, ray, capsys):
    run_stages("evaluate", [*tiny, *LADDER], tmp_path / "local")
    expected = results(tmp_path / "artifacts")
    assert len([name for name in expected if name.startswith("lm-")]) == 8  # arms, seeds, budgets
    shared = [path for path in (tmp_path / "artifacts").glob("[!.]*/**/*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in shared} == {oct(0o666 & ~UMASK)}, "others can read a store"
    elsewhere = [*tiny, f"artifacts={tmp_path}/ray", *LADDER]
    capsys.readouterr()
    run_stages("evaluate", [*elsewhere, "runner=ray", "runner.gpus=0"], tmp_path / "remote")
    assert results(tmp_path / "ray") == expected
    submitted = [name for name in ray.submitted if name.startswith("models-")]
    assert submitted == [f"models-{i:04}" for i in range(4)]
    assert not list((tmp_path / "ray").glob(".tasks*"))
    assert "lm superbpe (1 layer, seed 1, " in capsys.readouterr().out
    groups = [json.loads(line)["group"] for line in (tmp_path / "remote" / "metrics.jsonl").open()]
    trained = Counter(group for group in groups if group.startswith("lm/"))
    assert len(trained) == 8
    assert min(trained.values()) == 5
    run_stages("evaluate", elsewhere, tmp_path / "again")
    assert results(tmp_path / "ray").keys() == expected.keys()


@pytest.mark.slow
def test_learning_rates_are_tuned(tiny, tmp_path, ray):
    rates = ["lm.tune_rates=[0.5,1,2]", "lm.tune_bytes=20000", "lm.tune_validation_bytes=5000"]
    run_stages("train_lm", [*tiny, *rates, "runner=ray", "runner.gpus=0"], tmp_path / "remote")
    assert [name for name in ray.submitted if name.startswith("tuning")] == ["tuning-0000", "tuning-0001"]
    made = names_by_stage(tmp_path)
    assert len(made["tuning"]) >= 6  # further factors where the best one is at the end
    assert len(made["lm"]) == 2
    run_stages("train_lm", [*tiny, *rates], tmp_path / "local")
    assert names_by_stage(tmp_path) == made


def test_a_task_s_error_is_the_user_s(tiny, tmp_path, ray):
    rates = ["lm.train.vector_lr=1e38", "lm.train.head_lr=1e38"]
    with pytest.raises(UserError, match="training diverged; lower the learning rates"):
        run_stages("train_lm", [*tiny, *rates, "runner=ray", "runner.gpus=0"], tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "asked", "has", "expected"),
    [("ray", None, 0, None), ("ray", None, 8, 1), ("ray", 1, 8, 1), ("ray", 0, 8, 0), ("local", 1, 8, None)],
)
def test_where_models_are_trained(ray, name, asked, has, expected):
    ray.resources["GPU"] = has
    place = model_tasks.place(RunnerConfig(name=name, gpus=asked))
    assert (place and place.gpus) == expected
    ray.resources["GPU"] = 0
    with pytest.raises(UserError, match=r"runner\.gpus=1, but this machine has no GPU"):
        model_tasks.place(RunnerConfig(name="ray", gpus=1))
