"""A ladder of budgets: models at several budgets from one trunk."""

import json
import shutil

import pytest

from experiments import pipeline
from experiments.compose import load
from experiments.stages import time_left

LADDER = ["lm.train.warmup_steps=2", "lm.train.decay=sqrt", "lm.train.bytes_per_step=1024"]


def run(overrides, folder):
    made = []
    outcome = pipeline.run(load([*overrides, *LADDER]), "evaluate", folder, on_artifact=made.append)
    return outcome, made


def fresh(made, kind):
    """Steps of the models of this kind that the run trained."""
    models = {each.name: each for each in made if each.fresh and each.name.startswith(f"{kind}-")}
    return [each.contents.summary.steps for each in models.values()]


@pytest.mark.slow
def test_rungs_are_the_models_of_single_budgets_and_a_longer_ladder_extends_the_trunk(tiny, tmp_path):
    train_bytes = load(tiny).budget.train_bytes
    ladder = f"budget.ladder=[{train_bytes // 4},{train_bytes // 2}]"
    single, made = run([*tiny, f"budget.train_bytes={train_bytes // 4}"], tmp_path)
    (steps,) = set(fresh(made, "lm"))
    outcome, made = run([*tiny, f"budget.train_bytes={train_bytes // 2}", "budget.ladder=[0.5]"], tmp_path)
    assert fresh(made, "lm") == [2 * steps, 2 * steps]  # the smaller budget is reused
    assert len(fresh(made, "trunk")) == 2
    rungs = [[arm.lm.name for arm in rung.arms] for rung in (single.rungs[-1], *outcome.rungs)]
    assert rungs[0] == rungs[1]
    rows = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert len({row["group"] for row in rows if row["group"].startswith("lm/bpe ")}) == 2  # one per budget
    outcome, made = run([*tiny, ladder], tmp_path)
    assert fresh(made, "lm") == [4 * steps, 4 * steps]
    assert len(fresh(made, "trunk")) == 2
    assert [[arm.lm.name for arm in rung.arms] for rung in outcome.rungs[:2]] == rungs[1:]
    budgets = [[arm.lm.contents.summary.flops for arm in each.arms] for each in outcome.rungs]
    assert (len(budgets), budgets) == (3, sorted(budgets))


def own_flops(made):
    """FLOPs of all models of a run; a trunk that a model starts from counts once."""
    models = [each for each in made if each.name.startswith(("lm-", "trunk-"))]
    total, trunk = 0, (None, 0)
    for each in {each.name: each for each in models}.values():
        shards, flops = each.manifest.inputs["shards"], each.contents.summary.flops
        total += flops - (trunk[1] if trunk[0] == shards else 0)
        if each.name.startswith("trunk-"):
            trunk = shards, flops
    return total


@pytest.mark.slow
def test_finished_models_need_no_trunk(tiny, tmp_path, monkeypatch, capsys):
    flops = []
    measured = time_left.flops_left
    monkeypatch.setattr(time_left, "flops_left", lambda *arguments: flops.append(measured(*arguments)) or flops[-1])
    _, made = run([*tiny, "budget.ladder=[0.5]"], tmp_path)
    assert sum(flops) == pytest.approx(own_flops(made), rel=0.05)
    assert "training FLOPs" in capsys.readouterr().out
    for each in made:
        if each.name.startswith("trunk-") and each.folder.exists():
            shutil.rmtree(each.folder)
    _, made = run([*tiny, "budget.ladder=[0.5]"], tmp_path)
    assert not fresh(made, "trunk")
    assert not fresh(made, "lm")


@pytest.mark.slow
def test_what_compute_is_worth_is_part_of_the_report(tiny, tmp_path):
    """A smaller budget adds no model of the report, but a column of its table."""
    reports = []
    for ladder in ([], ["budget.ladder=[0.5]"]):
        made = []
        pipeline.run(load([*tiny, *LADDER, *ladder]), "report", tmp_path, on_artifact=made.append)
        reports += [one for one in made if one.name.startswith("report-")]
    alone, with_rate = (json.loads((one.path / "report.json").read_text())["answer"] for one in reports)
    assert (alone["exchange"], alone["rows"][-1][-1]) == ([], "not measured")
    assert "of training compute is worth" in with_rate["exchange"][0]
    assert with_rate["rows"][-1][-1] != "not measured"
