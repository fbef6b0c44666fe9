"""The command `compare` with settings: a ladder of budgets under other assumptions."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from experiments.cli import main
from lm.evaluate.bits_per_byte import Evaluation
from tests.experiments.outputs import run_until as run

RUN = ["eval.cluster=document", "eval.confidence=0.9", "deployment=moe-250b", "deployment.batch=8"]


@pytest.fixture(scope="module")
def ladder(tiny_module: list[str]) -> Path:
    """Folder of a run with three budgets."""
    settings = ["lm.train.warmup_steps=2", "lm.train.context_sample_bytes=10_000", "lm.train.bytes_per_step=1024"]
    overrides = [*tiny_module, *settings, "budget=equal_flops", "budget.train_bytes=40960", "budget.tolerance=0.1"]
    assert run("evaluate", [*overrides, "budget.ladder=[0.3,0.6]", *RUN]) == 0
    (text,) = [text for text in tiny_module if text.startswith("hydra.run.dir=")]
    return Path(text.partition("=")[2])


def repriced(ladder: Path, out: Path, *settings: str) -> dict:
    assert main.run(["compare", str(ladder), *(settings or ["average=micro"]), "--out", str(out)]) == 0
    return json.loads((out / "ladder.json").read_text())


def test_a_ladder_is_priced_from_its_evaluations(ladder: Path, tmp_path: Path) -> None:
    found = repriced(ladder, tmp_path)
    record = json.loads((ladder / "run.json").read_text())
    assert [arm["name"] for arm in found["arms"]] == ["BPE", "SuperBPE"]
    for place, arm in enumerate(found["arms"]):
        for rung, bits in zip(record["rungs"], arm["curve"]["bits_per_byte"], strict=True):
            names = rung["arms"][place]["evaluations"]
            scores = [Evaluation.load(Path(record["store"]) / name).bits_per_byte for name in names]
            assert bits == pytest.approx(sum(scores) / len(scores), rel=1e-12)
    assert found["arms"][0]["curve"]["flops"] == sorted(found["arms"][0]["curve"]["flops"])
    page = (tmp_path / "ladder.html").read_text()
    assert "Loss over compute" in page
    assert "names no better tokenizer" in page
    assert found["ranking"]["withheld"] == found["frontier"]["withheld"] == "1 seed, at least 3 are required"
    (gap,) = found["gaps"]
    assert gap["worth"]["decode"]["answer"] == "withheld"
    first, second = found["next"]
    assert first["command"].endswith(" lm.n_seeds=3")
    assert first["seconds"] > 0
    assert second["command"].endswith(" 'budget.ladder=[12288,17378,24576]'")


def test_verdicts_are_a_table(ladder: Path, tmp_path: Path) -> None:
    found = repriced(ladder, tmp_path)
    with (tmp_path / "ladder.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (gap,) = found["gaps"]
    assert [float(row["flops"]) for row in rows] == gap["flops"]
    assert [float(row["gap_percent"]) for row in rows] == gap["percent"]
    assert [[float(row["low"]), float(row["high"])] for row in rows] == gap["intervals"]
    assert {(row["arm"], row["reference"], row["decision"]) for row in rows} == {("SuperBPE", "BPE", "withheld")}
    assert {row["withheld"] for row in rows} == {"1 seed, at least 3 are required"}


def test_the_run_writes_the_page_too(ladder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = json.loads((ladder / "ladder.json").read_text())
    found = repriced(ladder, tmp_path)
    capsys.readouterr()
    assert {**own, "next": None, "run": None} == {**found, "next": None, "run": None}
    assert (ladder / "ladder.csv").read_bytes() == (tmp_path / "ladder.csv").read_bytes()
    assert (ladder / "ladder.html").stat().st_size > 100_000


def test_assumptions_change_the_price_and_not_the_measurements(ladder: Path, tmp_path: Path) -> None:
    usual = repriced(ladder, tmp_path / "a")
    other = repriced(ladder, tmp_path / "b", "deployment=dense-1b", "deployment.rho=4.5", "average=macro")
    assert (other["deployment"]["rho"], other["average"]) == (4.5, "macro")
    # The run's own settings are the defaults.
    assert usual["confidence"] == other["confidence"] == 0.9
    assert (usual["deployment"]["batch"], other["deployment"]["batch"]) == (8, 64)
    assert usual["deployment"]["n_experts"] > 0 == other["deployment"]["n_experts"]
    assert repriced(ladder, tmp_path / "c", "deployment.batch=4")["deployment"]["n_experts"] > 0
    for one, two in zip(usual["arms"], other["arms"], strict=True):
        assert one["bits_per_byte"] == two["bits_per_byte"]
        assert one["cost"]["decode"]["flops_per_byte"] > two["cost"]["decode"]["flops_per_byte"]
    reference = other["arms"][0]["equivalent"]["decode"][-1]
    assert math.isclose(reference["flops"], other["arms"][0]["curve"]["flops"][-1])


@pytest.mark.slow
def test_the_best_depths_of_a_run_are_priced(tiny_module: list[str], tmp_path: Path) -> None:
    settings = ["lm.train.context_sample_bytes=10_000", "lm.train.bytes_per_step=1024", "arms=[bpe]", "lm.depths=[1,2]"]
    more = ["budget=equal_flops", "budget.train_flops=1.5e9", "budget.tolerance=0.1", f"hydra.run.dir={tmp_path}"]
    assert run("evaluate", [*tiny_module, *settings, *more]) == 0
    found = repriced(tmp_path, tmp_path / "ladder")
    record = json.loads((tmp_path / "run.json").read_text())
    points = {rung["depth"]: rung["arms"][0] for rung in record["rungs"]}
    assert {depth: arm["settings"]["lm.model.n_layers"] for depth, arm in points.items()} == {1: 1, 2: 2}
    best = min(points, key=lambda depth: points[depth]["bits_per_byte"])
    assert record["results"]["depth"] == best
    assert found["arms"][0]["depths"] == [best]
    for each in found["depths"]:
        assert each["arms"][0]["bits_per_byte"] == pytest.approx([points[each["n_layers"]]["bits_per_byte"]])
    assert found["arms"][0]["curve"]["bits_per_byte"] == pytest.approx([points[best]["bits_per_byte"]])
    assert "Depths of the budgets" in (tmp_path / "ladder" / "ladder.html").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["deployment=dense-9b"], "dense-9b"),
        (["deployment.rho=-1"], "deployment.rho=-1"),
        (["average=median"], "average=median is not one of micro, macro"),
        (["shares.web=much"], "the share of a source is a number between 0 and 1"),
        (["shares.nowhere=0.5"], "nowhere"),
        (
            ["average=micro", "--tolerance", "0.01"],
            "more than 1 % apart; train both with budget=equal_flops, or accept a larger tolerance",
        ),
        (["lm=small"], "write deployment=NAME"),
    ],
)
def test_mistakes_are_one_line(
    ladder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], message: str
) -> None:
    assert main.run(["compare", str(ladder), *settings, "--out", str(tmp_path / "out")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_ladder_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["compare", str(tmp_path), "average=macro"]) == 2
    assert "name the folder of a run" in " ".join(capsys.readouterr().err.split())
