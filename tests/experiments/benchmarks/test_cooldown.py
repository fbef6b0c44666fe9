"""Cooldowns against cosine schedules, on the smallest run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from experiments.benchmarks import cooldown
from tests.experiments.conftest import tiny_overrides, write_corpus

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    overrides = [
        text for text in tiny_overrides(write_corpus(tmp_path / "a.jsonl"), tmp_path) if "artifacts" not in text
    ]
    overrides += ["lm.n_seeds=2", "budget.ladder=[0.25,0.5]", "corpus.heldout_sample=1"]
    more = ["lm.train.bytes_per_step=1024", "lm.train.warmup_steps=2"]
    return [*overrides, "lm.train.context_sample_bytes=10_000", *more]


@pytest.mark.slow
def test_a_trunk_is_paid_once(settings: list[str], tmp_path: Path) -> None:
    cosine, sqrt = (cooldown.measure(decay, settings, tmp_path) for decay in ("cosine", "sqrt"))
    assert [rung.steps for rung in cosine.rungs] == [rung.steps for rung in sqrt.rungs] == [10, 20, 40]
    assert [len(rung.bits_per_byte) for rung in sqrt.rungs] == [2, 2, 2]
    per_step = cosine.flops / (2 * 70)
    # The trunk has 40 - 8 steps, and the last 2, 4 and 8 steps of the budgets are added.
    assert sqrt.flops == pytest.approx(2 * (32 + 2 + 4 + 8) * per_step)
    assert min(cosine.seconds, sqrt.seconds) > 0
    assert all(a.bits_per_byte != b.bits_per_byte for a, b in zip(cosine.rungs, sqrt.rungs, strict=True))


@pytest.mark.slow
def test_the_tables_have_every_budget_and_decay(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cooldown.main([*settings, "--decays", "sqrt", "linear", "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(out.count(decay) >= 4 for decay in ("cosine", "sqrt", "linear"))
    assert len(re.findall(r"[+-]\d+\.\d\d to [+-]\d+\.\d\d %", out)) == 6
    costs = [line.split("│")[1:-1] for line in out[out.index("Training of all models") :].splitlines() if "│" in line]
    assert [float(row[2]) for row in costs] == [1.0, 0.66, 0.66]


def test_a_wrong_setting_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cooldown.main(["lm.n_seed=3", "--folder", str(tmp_path)]) == 2
    assert "did you mean 'lm.n_seeds'" in " ".join(capsys.readouterr().err.split())


def test_differences_are_paired_by_seed() -> None:
    assert cooldown.difference([1.01, 2.02], [1.0, 2.0]) == ["+1.00 %", "+1.00 to +1.00 %"]
    assert cooldown.difference([1.01], [1.0]) == ["+1.00 %", "–"]
