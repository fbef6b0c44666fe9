"""Learning rates of each arm, chosen by short runs."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments import pipeline
from experiments.compose import load
from experiments.results import Tuning, TuningRun
from experiments.stages import tuning
from experiments.stages.shards import open_shards
from lm.train.config import TrainConfig
from tests.experiments.outputs import names_by_stage, rejected, report, setting

TUNED = ["lm.tune_rates=[0.5,1,2]", "lm.tune_bytes=8192", "lm.tune_validation_bytes=5000"]


def run(overrides, folder, stage="evaluate"):
    made = []
    return pipeline.run(load([*TUNED, *overrides]), stage, folder, on_artifact=made.append), made


@pytest.mark.slow
def test_models_are_trained_with_the_best_factor_of_their_arm(tiny, tmp_path, monkeypatch):
    losses = {"bpe": {0.25: 2.05, 0.5: 2.0, 1.0: 2.1, 2.0: 2.2}, "superbpe": {0.5: 2.2, 1.0: 2.0, 2.0: 2.1}}

    def scored(_context, job, _arm, factor, _documents):
        return TuningRun(factor=factor, bits_per_byte=losses[job.name][factor])

    monkeypatch.setattr(tuning, "_run", scored)
    outcome, _ = run([*tiny, "budget.train_bytes=16384", "budget.ladder=[0.5]", "lm.n_seeds=2"], tmp_path)
    assert [arm.factor for arm in outcome.rungs[-1].tuning] == [0.5, 1.0]
    factors = [[run.factor for run in arm.runs] for arm in outcome.rungs[-1].tuning]
    assert factors == [[0.25, 0.5, 1, 2], [0.5, 1, 2]]  # while the best one is at the end, a further one is tried
    assert not any(arm.warning for arm in outcome.rungs[-1].tuning)
    assert outcome.records[-1].arms[0].tuning.factor == 0.5
    for rung in outcome.rungs:
        for arm, rates in zip(rung.arms, [(0.005, 0.025, 0.0025, 0.0025), (0.01, 0.05, 0.005, 0.005)], strict=True):
            trained = [model.contents.summary.run["train"] for model in arm.lms]
            names = [f"{name}_lr" for name in ("matrix", "embedding", "head", "vector")]
            assert {tuple(each[name] for name in names) for each in trained} == {rates}


@pytest.mark.slow
def test_tuning_runs_are_artifacts_and_read_no_validation_text(tiny, tmp_path):
    outcome, made = run(tiny, tmp_path, "report")
    runs = {each.name: each for each in made if each.name.startswith("tuning-")}
    assert all(each.fresh for each in runs.values())
    assert len({each.contents.n_documents for each in runs.values()}) == 1
    for each in runs.values():
        assert each.manifest.config["train"]["seed"] == 1_000_000
        assert each.manifest.config["train"]["train_bytes"] == 8192
        assert not list(each.folder.glob("*.safetensors"))
    numbers = report(tmp_path)["tuning"]
    assert len(numbers) == len(runs)
    assert sum(row["chosen"] for row in numbers) == 2
    _, again = run(tiny, tmp_path, "report")
    assert not any(each.fresh for each in again)
    for arm in outcome.rungs[-1].arms:
        shards = open_shards(arm.training, arm)
        train = TrainConfig(**next(iter(runs.values())).manifest.config["train"])
        documents = train.rows(shards).held_back(train.steps)
        assert 5000 <= shards.document_bytes[documents].sum() < 5000 + shards.document_bytes.max()
        order = np.random.default_rng([1_000_000, 0]).permutation(shards.n_documents)
        assert documents.tolist() == [i for i in order if i in documents]


@pytest.mark.slow
def test_a_factor_that_diverges_is_not_chosen(tiny, tmp_path, capsys):
    outcome, _ = run([*tiny, "arms=bpe", "lm.tune_rates=[1,2,1e30]"], tmp_path)
    (found,) = outcome.rungs[-1].tuning
    assert found.runs[-1] == TuningRun(factor=1e30)
    assert found.factor < 1e30
    assert "diverged at × 1e+30" in capsys.readouterr().out
    runs = [TuningRun(factor=factor, bits_per_byte=factor) for factor in (1.0, 2.0, 4.0)]
    warning = "the best factor on the learning rates, 1, is at the end of those tried; smaller ones may be better"
    assert warning in Tuning(factor=1.0, runs=runs).warning
    assert not Tuning(factor=2.0, runs=runs).warning


def test_tuning_runs_warm_up_for_the_same_share_as_the_models(monkeypatch):
    monkeypatch.setattr(tuning, "plan_rung", lambda _model, config, _budget, arms: dict.fromkeys(arms, config))
    config = load([*TUNED, "lm.train.warmup_steps=20", "budget.train_bytes=163840"])
    (job,) = tuning._jobs({"bpe": SimpleNamespace(label="bpe")}, None, config.lm, config.budget, None)
    assert (job.config.train_bytes, job.config.warmup_steps) == (8192, 1)


def test_mistakes_are_found_before_training(tiny_module, tmp_path):
    for override, message in (
        ("lm.tune_bytes=100", "lm.tune_bytes=100: train_bytes=100 is less than one step"),
        ("lm.tune_validation_bytes=10000000", "tuning BPE (lm.tune_bytes, lm.tune_validation_bytes): a run of"),
    ):
        assert message in rejected("train_lm", [*tiny_module, *TUNED, override], tmp_path)
        assert "lm" not in names_by_stage(setting(tiny_module, "artifacts").parent)
