"""Equal budgets through the stages themselves: two real tokenizers, shards, plans and short runs."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli.compose import load
from experiments.runs import Run, list_runs
from experiments.stages import plan
from experiments.stages.plan import Amounts
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import manifests
from tests.experiments.outputs import run_until as run
from tokenizer.errors import UserError

STEPS = {
    "bpe": Amounts(bytes=1000.0, tokens=250.0, steps=1, flops=25e6, deployed_flops=12e12),
    "superbpe": Amounts(bytes=1004.0, tokens=200.0, steps=1, flops=19e6, deployed_flops=10e12),
}


def planned(monkeypatch, overrides, second=None):
    """Plans of all runs of an experiment in which a step of a model has the amounts of `STEPS`.

    `second` are those of the reference's model with another seed than the first.
    """
    config = load(overrides)
    training = SimpleNamespace(contents=SimpleNamespace(n_bytes=10**9))
    arms = {name: SimpleNamespace(arm=SimpleNamespace(key=name, label=name), training=training) for name in STEPS}

    def measure(_, settings, arm, *__):
        return second if second and settings.seed and arm.arm.key == "bpe" else STEPS[arm.arm.key]

    def tokens_of_steps(settings, arm, steps):
        return np.full(steps, measure(None, settings, arm).tokens)

    monkeypatch.setattr(plan, "measure", measure)
    monkeypatch.setattr(plan, "tokens_of_steps", tokens_of_steps)
    runs = list_runs(arms, config.lm.all_sizes, config.lm.seeds, config.budget.rungs())
    return plan.plan(runs, arms, config.lm, config.budget)


def steps(monkeypatch, overrides, **more):
    """Steps of the plans, in the order of the runs."""
    return [settings.steps for settings in planned(monkeypatch, overrides, **more).values()]


BYTES = "budget.train_bytes=8192000"  # 1,000 steps of the reference
FLOPS = ["budget=equal_flops", "budget.train_flops=1e10"]  # 400 steps of the reference


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([BYTES, "budget=equal_bytes"], [1000, 1000]),
        ([BYTES, "budget=equal_tokens"], [1000, 1250]),
        ([BYTES, "budget=equal_deployed_flops"], [1000, 1200]),
        ([BYTES, "budget=equal_flops"], [1000, 1315]),  # 25 / 19 of them, rounded down: no more than the FLOPs buy
        ([BYTES, "lm.train.context_tokens=256"], [1000, 996]),
        ([*FLOPS, "budget.mode=equal_tokens"], [400, 500]),
    ],
)
def test_the_mode_sets_the_steps_of_the_other_arms(monkeypatch, overrides, expected):
    assert steps(monkeypatch, overrides) == expected


def test_every_run_has_its_own_seed_budget_and_size(monkeypatch):
    plans = planned(monkeypatch, [BYTES, "budget.ladder=[0.5]", "lm.n_seeds=2", "lm.train.seed=7", "lm.sizes=[3,2]"])
    assert len(plans) == 2 * 2 * 2 * 2
    assert [str(run) for run in list(plans)[:3]] == [
        "bpe (2 layers, seed 7, 4.1M)",
        "bpe (2 layers, seed 7, 8.19M)",
        "superbpe (2 layers, seed 7, 4.1M)",
    ]
    assert str(Run("bpe", 1, 0, 12_000_000)) == "bpe (1 layer, seed 0, 12M)"
    assert len({str(run_) for run_ in plans}) == len(plans)
    for run_, settings in plans.items():
        assert (settings.seed, settings.train_bytes) == (run_.seed, run_.budget)
    assert {run_.size for run_ in plans} == {2, 3}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([BYTES, "budget.tolerance=0.001"], r"train on 1,000,000 and 1,004,000 bytes.*budget.tolerance=0.01 accepts"),
        (["budget=equal_flops", "budget.train_flops=1e22"], "epochs"),  # before its steps are counted
        (
            ["budget=equal_flops", "budget.train_flops=1.2e8"],
            r"100,000,000 and 114,000,000 FLOPs instead of 120,000,000; .*tolerance=0\.2 ",
        ),
        (
            ["budget=equal_flops", "budget.train_flops=2e7"],
            r"2e\+07 FLOPs is less than one step of bpe's model \(2\.5e\+07\)",
        ),
    ],
)
def test_a_budget_that_cannot_be_met(monkeypatch, overrides, message):
    with pytest.raises(UserError, match=message):
        planned(monkeypatch, overrides)
    monkeypatch.setitem(STEPS, "superbpe", Amounts(1, 1e9, 1, 1))
    with pytest.raises(UserError, match="less than one step of superbpe"):
        planned(monkeypatch, [BYTES, "budget=equal_tokens"])


@pytest.mark.parametrize("entry", ["0.1", "1e9"])
def test_budgets_in_flops_become_steps_of_the_reference(monkeypatch, entry):
    plans = planned(monkeypatch, [*FLOPS, f"budget.ladder=[{entry}]", "budget.tolerance=0.02"])
    assert [run_.budget for run_ in plans] == [10**9, 10**10] * 2
    assert [settings.train_bytes for settings in plans.values()] == [40 * 8192, 400 * 8192] * 2
    assert [settings.steps for settings in plans.values()] == [40, 400, 52, 526]
    assert [settings.max_steps for settings in plans.values()][:2] == [None, None]  # as with a budget in bytes
    words = ["lm.train.warmup_steps=1000", "budget.train_bytes=81920", "budget.train_flops=1e19"]
    assert load(words).budget.rungs() == [10**19]


def test_every_seed_has_the_flops_of_the_budget(monkeypatch):
    other = dataclasses.replace(STEPS["bpe"], flops=25.5e6)  # the contexts of another seed
    assert steps(monkeypatch, [*FLOPS, "lm.n_seeds=2"], second=other) == [400, 526, 392, 526]


def test_runs_of_equal_bytes_read_the_same_bytes(tiny, tmp_path):
    run_stages("train_lm", [*tiny, "budget.tolerance=0.01", "arms=[bpe,superbpe,bytes]", "lm.train.seed=5"], tmp_path)
    summaries = [one["contents"]["summary"] for one in manifests(tmp_path, "lm")]
    nominal = summaries[0]["steps"] * summaries[0]["nominal_bytes_per_step"]
    # Each row is rounded to a token.
    assert [summary["bytes"] for summary in summaries] == pytest.approx([nominal] * 3, rel=0.01)


def test_runs_are_equal_in_flops(tiny, tmp_path, capsys):
    more = ["budget.train_bytes=61440", "lm.train.bytes_per_step=1024", "lm.train.context_bytes=256"]
    assert run("evaluate", [*tiny, *more, "budget=equal_flops", "budget.tolerance=0.02"]) == 0
    contents = [one["contents"]["summary"] for one in manifests(tmp_path, "lm")]
    bpe, superbpe = sorted(contents, key=lambda summary: summary["bytes_per_token"])
    assert 0.98 * bpe["flops"] < superbpe["flops"] <= bpe["flops"]
    assert superbpe["steps"] > bpe["steps"] == 60
    assert superbpe["bytes"] > 1.05 * bpe["bytes"]
    assert superbpe["run"]["train"]["max_steps"] == superbpe["steps"]
    assert bpe["run"]["train"]["max_steps"] is None  # the base is the same model in every mode
    metrics = (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()
    done = [row for row in map(json.loads, metrics) if row["group"] == "stages" and row["stage"].startswith("lm ")]
    names = {"bytes", "tokens", "steps", "flops", "epochs", "parameters_total", "parameters_non_embedding"}
    assert len(done) == 2
    assert all(names <= set(row) for row in done)
    assert "equal FLOPs of training" in capsys.readouterr().out
