"""Equal budgets through the stages themselves: two real tokenizers, shards, plans and short runs."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from experiments.compose import load
from experiments.runs import Run, list_runs
from experiments.stages import plan
from experiments.stages.plan import Amounts
from lm.data.sharding import write_shards
from lm.data.shards import Shards
from lm.evaluate.deployment import Deployment, training_flops
from tests.experiments.outputs import run_until as run
from tests.lm import tiny as tiny_lm
from tests.lm.train.runs import CONFIG, MODEL
from tests.lm.train.runs import run as train_run
from tests.properties import quick_first
from tokenizer import Batch
from tokenizer.errors import UserError

STEPS = {
    "bpe": Amounts(bytes=1000.0, tokens=250.0, flops=25e6, deployed_flops=12e12),
    "superbpe": Amounts(bytes=1004.0, tokens=200.0, flops=19e6, deployed_flops=10e12),
}


def planned(monkeypatch, overrides):
    """Plans of all runs of an experiment in which a step of a model has the amounts of `STEPS`."""
    config = load(["lm.train.bytes_per_step=8192", *overrides])
    training = SimpleNamespace(contents=SimpleNamespace(n_bytes=10**9))
    arms = {name: SimpleNamespace(key=name, label=name, trained_on=training) for name in STEPS}

    def measure(_, settings, arm, *__):
        of_rows = STEPS[arm.key]
        share = (settings.tokens_per_step or of_rows.tokens) / of_rows.tokens
        return Amounts(**{name: share * amount for name, amount in dataclasses.asdict(of_rows).items()})

    monkeypatch.setattr(plan, "measure", measure)
    runs = list_runs(arms, config.lm.all_sizes, config.lm.seeds, config.budget)
    return plan.plan(runs, arms, config.lm, config.budget)


BYTES = "budget.train_bytes=8192000"  # 1,000 steps of the reference
FLOPS = ["budget=equal_flops", "budget.train_flops=1e10"]  # 400 steps of the reference


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["budget=equal_bytes"], [None, None]),
        (["budget=equal_bytes", "lm.train.context_tokens=256"], [250, 200 / 1.004]),
        (["budget=equal_tokens"], [250, 250]),
        (["budget=equal_tokens", "lm.train.tokens_per_step=125"], [125, 125]),
        (["budget=equal_deployed_flops"], [250, 240]),
        (["budget=equal_flops"], [250, 200 * 25 / 19]),
    ],
)
def test_the_mode_sets_the_tokens_of_a_step(monkeypatch, words, expected):
    plans = planned(monkeypatch, [BYTES, *words]).values()
    assert [settings.tokens_per_step for settings in plans] == [tokens and pytest.approx(tokens) for tokens in expected]
    assert {settings.steps for settings in plans} == {1000}


def test_every_run_has_its_own_seed_budget_and_size(monkeypatch):
    plans = planned(monkeypatch, [BYTES, "budget.ladder=[0.5]", "lm.n_seeds=2", "lm.train.seed=7", "lm.sizes=[3,2]"])
    assert len(plans) == 2 * 2 * 2 * 2
    assert [str(run) for run in list(plans)[:3]] == [
        "bpe (2 layers, seed 7, budget 4.1MB)",
        "bpe (2 layers, seed 7, budget 8.19MB)",
        "superbpe (2 layers, seed 7, budget 4.1MB)",
    ]
    assert str(Run("bpe", 1, 0, 12_000_000, "flops")) == "bpe (1 layer, seed 0, budget 12M FLOPs)"
    assert len({str(run_) for run_ in plans}) == len(plans)
    for run_, settings in plans.items():
        assert (settings.seed, settings.train_bytes) == (run_.seed, run_.budget)
    assert {run_.size for run_ in plans} == {2, 3}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([BYTES, "budget.tolerance=0.001"], r"train on 1,000,000 and 1,004,000 bytes.*budget.tolerance=0.01 accepts"),
        (["budget=equal_flops", "budget.train_flops=1e22"], "epochs"),
        (["budget=equal_tokens", "budget.train_bytes=8192"], r"about 8 rows, too few .*tolerance=0\.07"),
        (
            ["budget=equal_flops", "budget.train_flops=1.2e8", "budget.tolerance=0.02"],
            "00 FLOPs instead of 120,000,000; ",
        ),
        (["budget=equal_flops", "budget.train_flops=2e7"], r"less than one step of bpe's model \(2\.5e\+07\)"),
    ],
)
def test_a_budget_that_cannot_be_met(monkeypatch, words, message):
    with pytest.raises(UserError, match=message):
        planned(monkeypatch, words)


def test_a_step_of_less_than_one_row(monkeypatch):
    monkeypatch.setitem(STEPS, "superbpe", Amounts(1000.0, 300.0, 1.0))
    with pytest.raises(UserError, match=r"model is less than one row; use lm\.train\.bytes_per_step=16384 or"):
        planned(monkeypatch, [BYTES, "budget=equal_tokens", "lm.train.context_bytes=8192"])


@pytest.mark.parametrize("entry", ["0.1", "1e9"])
def test_budgets_in_flops_become_steps_of_the_reference(monkeypatch, entry):
    plans = planned(monkeypatch, [*FLOPS, f"budget.ladder=[{entry}]"])
    assert [run_.budget for run_ in plans] == [10**9, 10**10] * 2
    assert [settings.steps for settings in plans.values()] == [40, 400] * 2


def test_a_budget_in_flops_is_not_limited_by_train_bytes():
    words = ["lm.train.warmup_steps=1000", "budget.train_bytes=81920", "budget.train_flops=1e19"]
    assert load(words).budget.rungs() == [10**19]


@pytest.mark.parametrize("context_tokens", quick_first([None, 20]))
def test_the_amounts_of_a_step_are_those_of_a_training_run(tmp_path, context_tokens):
    tokenizer = tiny_lm.words()
    write_shards(
        tmp_path / "shards", tokenizer, [Batch.from_texts(["the end of the line " * (i % 4) for i in range(800)])]
    )
    shards = Shards.open(tmp_path / "shards", tokenizer)
    config = dataclasses.replace(CONFIG, train_bytes=40 * 256, context_tokens=context_tokens)
    amounts = plan.measure(MODEL, config, SimpleNamespace(open_training=lambda: shards))
    summary, _ = train_run(shards, tmp_path / "run", config)
    for name in ("bytes", "tokens", "flops"):
        assert getattr(amounts, name) == pytest.approx(getattr(summary, name) / summary.steps, rel=0.02), name
    deployed = training_flops(Deployment(), vocab_size=shards.vocab_size, tokens=amounts.tokens, n_bytes=amounts.bytes)
    assert amounts.deployed_flops == deployed


@pytest.mark.slow
def test_runs_are_equal_in_flops(tiny, tmp_path, capsys):
    words = [word for word in tiny if not word.startswith("budget.tolerance")]
    more = ["budget.train_bytes=61440", "lm.train.bytes_per_step=1024", "lm.train.context_bytes=256"]
    assert run("evaluate", [*words, *more, "budget=equal_flops"]) == 0
    folders = {}
    for path in (tmp_path / "artifacts").glob("lm-*/manifest.json"):
        manifest = json.loads(path.read_text())
        summary = manifest["contents"]["summary"]
        folders[summary["bytes"] / summary["tokens"]] = manifest
    bpe, superbpe = (folders[density]["contents"]["summary"] for density in sorted(folders))
    assert superbpe["flops"] == pytest.approx(bpe["flops"], rel=0.005)
    assert superbpe["steps"] == bpe["steps"] == 60
    assert superbpe["bytes"] > 1.05 * bpe["bytes"]
    metrics = (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()
    done = [row for row in map(json.loads, metrics) if row["group"] == "stages" and row["stage"].startswith("lm ")]
    names = {"bytes", "tokens", "steps", "flops", "epochs", "parameters_total", "parameters_non_embedding"}
    assert len(done) == 2
    assert all(names <= set(row) for row in done)
    assert "equal training compute" in capsys.readouterr().out
