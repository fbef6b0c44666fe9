"""Equal budgets through the stages themselves: two real tokenizers, shards, plans and short runs."""

from __future__ import annotations

import dataclasses
import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from experiments.cli.compose import load
from experiments.stages import budget
from experiments.stages.budget import Amounts
from experiments.stages.context import Context
from tests.experiments.conftest import run_stages
from tests.experiments.outputs import run_until as run
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

STEPS = {
    "bpe": Amounts(bytes=1000.0, tokens=250.0, steps=1, flops=25e6),
    "superbpe": Amounts(bytes=1004.0, tokens=200.0, steps=1, flops=19e6),
}


class FakeRun(NamedTuple):
    step: Amounts

    def total(self, mode: str, steps: int) -> float:
        return steps * self.step.of_mode(mode)


def planned(monkeypatch: pytest.MonkeyPatch, overrides: list[str]) -> list[int]:
    """Steps of each model's plan, where the base takes 1,000."""
    context = cast("Context", SimpleNamespace(config=load(["budget.train_bytes=8192000", *overrides])))
    monkeypatch.setattr(budget, "open_run", lambda _, trained, __: FakeRun(STEPS[trained.key]))
    plans = budget.plan(context, pairs())
    assert plans[0] is context.config.lm.train
    return [plan.steps for plan in plans]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("equal_bytes", [1000, 1000]),
        ("equal_steps", [1000, 1000]),
        ("equal_tokens", [1000, 1250]),
        ("equal_flops", [1000, 1315]),  # 25 / 19 of them, rounded down: no more than the FLOPs buy
    ],
)
def test_the_mode_sets_the_steps_of_the_other_arms(
    monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[int]
) -> None:
    assert planned(monkeypatch, [f"budget={mode}"]) == expected


def test_equal_bytes_with_contexts_in_tokens_take_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, ["lm.train.context_tokens=256"]) == [1000, 996]


def test_a_budget_that_cannot_be_met(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"train on 1,000,000 and 1,004,000 bytes.*budget.tolerance=0.01 accepts"):
        planned(monkeypatch, ["budget.tolerance=0.001"])
    monkeypatch.setitem(STEPS, "superbpe", Amounts(1, 1e9, 1, 1))
    with pytest.raises(UserError, match="less than one step of superbpe"):
        planned(monkeypatch, ["budget=equal_tokens"])


def flops_rungs(monkeypatch: pytest.MonkeyPatch, overrides: list[str]) -> list[Context]:
    """Contexts of the rungs of 1e10 FLOPs, 400 steps of the reference."""
    words = ["budget=equal_flops", "budget.train_flops=1e10", "lm.train.context_sample_bytes=100000", *overrides]
    monkeypatch.setattr(budget, "open_run", lambda _, trained, __: FakeRun(STEPS[trained.key]))
    context = Context(load(words), *cast("Any", [None] * 3))
    return budget.rungs(context, *cast("Any", pairs()[0]))


def pairs() -> Any:
    shards = SimpleNamespace(contents=SimpleNamespace(n_bytes=10**9))
    return [(SimpleNamespace(key=key, label=key), shards) for key in STEPS]


@pytest.mark.parametrize("entry", ["0.1", "1e9"])
def test_budgets_in_flops_become_steps_of_the_reference(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    found = flops_rungs(monkeypatch, [f"budget.ladder=[{entry}]", "budget.tolerance=0.02"])
    assert [rung.config.budget.train_flops for rung in found] == [1e9, 1e10]
    assert [rung.config.lm.train.train_bytes for rung in found] == [40 * 8192, 400 * 8192]
    assert [rung.config.budget.train_bytes for rung in found] == [40 * 8192, 400 * 8192]
    plans = [budget.plan(rung, pairs()) for rung in found]
    assert [[each.steps for each in plan] for plan in plans] == [[40, 52], [400, 526]]
    assert [plan[0].max_steps for plan in plans] == [None, None]  # the same model as with a budget in bytes


def test_every_seed_has_the_flops_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    (rung,) = flops_rungs(monkeypatch, [])
    monkeypatch.setitem(STEPS, "bpe", dataclasses.replace(STEPS["bpe"], flops=25.5e6))  # the contexts of another seed
    assert [each.steps for each in budget.plan(rung, pairs())] == [392, 526]


def test_other_modes_follow_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    (rung,) = flops_rungs(monkeypatch, ["budget.mode=equal_tokens"])
    assert [each.steps for each in budget.plan(rung, pairs())] == [400, 500]


def test_flops_that_whole_steps_cannot_meet_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    (rung,) = flops_rungs(monkeypatch, ["budget.train_flops=1.2e8"])
    with pytest.raises(UserError, match=r"100,000,000 and 114,000,000 FLOPs instead of 120,000,000; .*tolerance=0\.2 "):
        budget.plan(rung, pairs())
    with pytest.raises(UserError, match=r"2e\+07 FLOPs is less than one step of bpe's model \(2\.5e\+07\)"):
        flops_rungs(monkeypatch, ["budget.train_flops=2e7"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["budget.train_flops=0"], "budget.train_flops=0 must be at least 1"),
        (["budget.train_flops=inf"], "budget.train_flops=inf must be"),
        (["budget.train_flops=1e10"], "set lm.train.context_sample_bytes"),
        (
            ["budget.train_flops=1e10", "lm.train.context_tokens=256", "budget.ladder=[2e10]"],
            r"budget.ladder has 2e\+10: use shares of budget.train_flops below 1, or FLOPs up to 10,000,000,000",
        ),
    ],
)
def test_impossible_budgets_are_rejected(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(overrides)


def test_a_budget_in_flops_is_not_limited_by_train_bytes() -> None:
    words = ["lm.train.warmup_steps=1000", "lm.train.context_sample_bytes=100000", "budget.train_bytes=81920"]
    with pytest.raises(UserError, match="overlap in a run of 10 steps"):
        load(words)
    assert load([*words, "budget.train_flops=1e19"]).budget.rungs() == [10**19]


def test_the_budget_is_checked_before_training_with_the_bytes_that_training_counts(
    tiny: list[str], tmp_path: Path
) -> None:
    more = [*tiny, "arms=[bpe,superbpe,bytes]", "lm.train.seed=5"]
    with pytest.raises(UserError, match=r"budget\.tolerance=0\.[0-9]+ accepts it") as caught:
        run_stages("train_lm", [*more, "budget.tolerance=0"], tmp_path)
    assert not list((tmp_path / "artifacts").glob("lm-*"))
    run_stages("train_lm", more, tmp_path)
    found = [json.loads(path.read_text()) for path in (tmp_path / "artifacts").glob("lm-*/summary.json")]
    checked = [int(number.replace(",", "")) for number in re.findall(r"[0-9,]{5,}", str(caught.value))]
    assert len(checked) == 3
    assert sorted(summary["bytes"] for summary in found) == sorted(checked)


def test_runs_are_equal_in_flops(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in tiny if not word.startswith("budget.tolerance")]
    more = ["budget.train_bytes=61440", "lm.train.bytes_per_step=1024", "lm.train.context_bytes=256"]
    assert run("evaluate", [*words, *more, "budget=equal_flops", "budget.tolerance=0.02"]) == 0
    folders = {}
    for path in (tmp_path / "artifacts").glob("lm-*/manifest.json"):
        manifest = json.loads(path.read_text())
        folders[manifest["contents"]["summary"]["bytes_per_token"]] = manifest
    bpe, superbpe = (folders[density]["contents"]["summary"] for density in sorted(folders))
    assert 0.98 * bpe["flops"] < superbpe["flops"] <= bpe["flops"]
    assert superbpe["steps"] > bpe["steps"] == 60
    assert superbpe["bytes"] > 1.05 * bpe["bytes"]
    assert superbpe["run"]["train"]["max_steps"] == superbpe["steps"]
    assert "max_steps" not in bpe["run"]["train"]  # the base is the same model in every mode
    metrics = (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()
    done = [row for row in map(json.loads, metrics) if row["group"] == "stages" and row["stage"].startswith("lm ")]
    names = {"bytes", "tokens", "steps", "flops", "epochs", "parameters_total", "parameters_non_embedding"}
    assert len(done) == 2
    assert all(names <= set(row) for row in done)
    assert "equal FLOPs of training" in capsys.readouterr().out
