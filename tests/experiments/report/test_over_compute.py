"""A ladder of budgets: what the run writes, and its measurements under other assumptions."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.report.ladder_page import loss_table, render
from experiments.report.over_compute import Assumptions, compare_points, describe, reprice, study
from lm.evaluate.bits_per_byte import Evaluation
from lm.evaluate.deployment import Deployment
from tests.experiments.outputs import run_until as run
from tests.experiments.outputs import setting
from tests.lm.evaluate.evaluations import made_up
from tokenizer.errors import UserError

RUN = ["eval.cluster=document", "eval.confidence=0.9", "deployment=moe-250b", "deployment.batch=8"]


@pytest.fixture(scope="module")
def ladder(tiny_module):
    """Folder of a run with three budgets."""
    budget = ["budget=equal_flops", "budget.train_bytes=40960", "budget.tolerance=0.1", "budget.ladder=[0.3,0.6]"]
    assert run("evaluate", [*tiny_module, "lm.train.bytes_per_step=1024", *budget, *RUN]) == 0
    return setting(tiny_module, "hydra.run.dir")


def repriced(ladder, out, *settings):
    reprice(ladder, settings, out)
    return json.loads((out / "ladder.json").read_text())


@pytest.mark.slow
def test_a_ladder_is_priced_from_its_evaluations(ladder, tmp_path):
    own = json.loads((ladder / "ladder.json").read_text())
    found = repriced(ladder, tmp_path)
    record = json.loads((ladder / "run.json").read_text())
    assert [arm["name"] for arm in found["arms"]] == ["BPE", "SuperBPE"]
    for place, arm in enumerate(found["arms"]):
        for rung, bits in zip(record["rungs"], arm["bits_per_byte"], strict=True):
            names = rung["arms"][place]["evaluations"]
            scores = [Evaluation.load(Path(record["store"]) / name).bits_per_byte for name in names]
            assert bits == pytest.approx(sum(scores) / len(scores), rel=1e-12)
    assert found["arms"][0]["flops"] == sorted(found["arms"][0]["flops"])
    page = (tmp_path / "ladder.html").read_text()
    assert "Loss over compute" in page
    assert "No verdict: 1 seed, at least 3 are required" in page
    assert f"superbpe compare {ladder}" in page
    (gap,) = found["gaps"]
    assert (gap["withheld"], set(gap["decisions"])) == ("1 seed, at least 3 are required", {"withheld"})
    assert found["arms"][1]["equivalent"]["decode"]["answer"] in ("withheld", "unknown")
    assert found["next"]["command"].endswith(" lm.n_seeds=3")
    assert found["next"]["seconds"] > 0
    # The run writes the page too.
    assert {**own, "next": None, "run": None} == {**found, "next": None, "run": None}
    assert own["next"]["what"] == found["next"]["what"]
    assert (ladder / "ladder.html").stat().st_size > 100_000


@pytest.mark.slow
def test_assumptions_change_the_price_and_not_the_measurements(ladder, tmp_path):
    usual = repriced(ladder, tmp_path / "a")
    other = repriced(ladder, tmp_path / "b", "deployment=dense-1b", "deployment.rho=4.5")
    assert other["deployment"]["rho"] == 4.5
    # The run's own settings are the defaults.
    assert usual["confidence"] == other["confidence"] == 0.9
    assert (usual["deployment"]["batch"], other["deployment"]["batch"]) == (8, 64)
    assert usual["deployment"]["n_experts"] > 0 == other["deployment"]["n_experts"]
    assert repriced(ladder, tmp_path / "c", "deployment.batch=4")["deployment"]["n_experts"] > 0
    for one, two in zip(usual["arms"], other["arms"], strict=True):
        assert one["flops"] == two["flops"]
        assert one["cost"]["decode"]["flops_per_byte"] > two["cost"]["decode"]["flops_per_byte"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], r"more than 0\.1 % apart; .*budget=equal_deployed_flops"),
        (["deployment=dense-9b"], "dense-9b"),
        (["deployment.rho=-1"], "deployment.rho=-1"),
        (["eval.weights.web=much"], r"write eval.weights=\{KIND: NUMBER\}"),
        (["eval.weights.nowhere=0.5"], "nowhere"),
        (["lm=small"], "write deployment=NAME"),
    ],
)
def test_wrong_assumptions_and_other_budgets_are_rejected(ladder, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        reprice(ladder, settings, tmp_path / "out", **({} if settings else {"tolerance": 0.001}))
    with pytest.raises(UserError, match="name the folder of a run"):
        reprice(tmp_path, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_order_of_columns_of_a_table_of_points_decides_nothing(tmp_path):
    gaps = {f"s{i}": 0.98 + 0.01 * (i // 3) for i in range(12)}
    found = []
    for columns in (sorted(gaps), sorted(gaps, key=lambda name: int(name[1:]) % 3)):
        table = tmp_path / "points.csv"
        rows = [",".join(["arm", "seed", "flops", "vocab_size", "tokens_per_byte", *columns])]
        for arm in ("bpe", "super"):
            for seed in range(3):
                bits = [1 if arm == "bpe" else gaps[name] + 0.001 * seed for name in columns]
                rows.append(",".join([arm, f"{seed}", "1e15", "32000", "0.25", *map(str, bits)]))
        table.write_text("\n".join(rows))
        compare_points(table, [], tmp_path / "out")
        found.append(json.loads((tmp_path / "out" / "ladder.json").read_text())["gaps"][0])
    assert found[0]["intervals"][0] == pytest.approx(found[1]["intervals"][0])


def test_an_arm_that_changes_text_has_no_part_in_verdicts_over_compute():
    rng, sizes = np.random.default_rng(0), np.full(40, 1000)
    base = sizes * rng.normal(1.0, 0.1, 40)
    train = {"train_bytes": 1000, "bytes_per_step": 100, "context_bytes": 100}

    def model(bits, shift, changed, seed):
        amounts = {"flops": 1e15 / bits, "tokens": 1e6 / bits, "bytes": 4e6 / bits}
        summary = SimpleNamespace(**amounts, seconds=1.0, run={"train": train})
        scores = made_up(bits * base * (1 + shift), sizes, changed=np.arange(40) < changed)
        return SimpleNamespace(contents=SimpleNamespace(trained=summary, seed=seed)), scores

    def arm(label, bits, *same):
        lms, evaluations = zip(*(model(bits, *same, seed) for seed in range(3)), strict=True)
        tokenizer = SimpleNamespace(vocab_size=300, superword_ids=list)
        made = {"record": None, "settings": {}, "trained_here": True}
        return SimpleNamespace(label=label, tokenizer=tokenizer, lms=lms, evaluations=evaluations, **made)

    rungs = [
        SimpleNamespace(
            arms=[arm("bpe", bits, 0.0, 0), arm("lower", bits, -0.07, 40)],
            labels=["bpe", "lower"], tuning=[None] * 2, luck=[None] * 2,
        )
        for bits in (1.0, 0.9)
    ]  # fmt: skip
    found, note = study(rungs, Assumptions(Deployment()), tolerance=0.01)
    numbers = describe(found, Assumptions(Deployment()))
    assert note == "At each budget, all models read the same amount of text; FLOPs are the reference's."
    reason = "lower changes or loses text in 40 of 40 documents, 100 % of the bytes"
    assert (numbers["gaps"][0]["decisions"], numbers["gaps"][0]["withheld"]) == (["withheld"] * 2, reason)
    assert numbers["arms"][1]["barred"] == numbers["gaps"][0]["withheld"] == reason
    assert f"No verdict: {reason}" in render(numbers, found).replace("\N{NO-BREAK SPACE}", " ")
    # Budgets that are equal for the deployed model are named by what was spent.
    found, _ = study(rungs, Assumptions(Deployment()), tolerance=0.01, equal_at=Deployment())
    numbers = describe(found, Assumptions(Deployment()))
    assert min(numbers["arms"][0]["flops"]) > 1e16 > max(numbers["arms"][0]["spent"])
    assert loss_table(numbers).header == ["training FLOPs", "1e15", "1.1e15"]
    assert "1e15 and 1.1e15 FLOPs" in numbers["gaps"][0]["statements"][0]
