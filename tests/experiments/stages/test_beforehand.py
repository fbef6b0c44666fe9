from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.arms import resolve_arms
from experiments.cli.compose import load
from experiments.pipeline import STAGES
from experiments.stages import beforehand


def _said(monkeypatch: pytest.MonkeyPatch, speeds: dict[str, float], overrides: list[str]) -> list[str]:
    config = load(["budget.train_bytes=1000000", *overrides])
    lines: list[str] = []
    context: Any = SimpleNamespace(config=config, reporter=SimpleNamespace(say=lines.append))
    monkeypatch.setattr(beforehand, "_seconds", lambda _, kind: speeds.get(kind))
    beforehand.say(context, resolve_arms(config), STAGES)
    return lines


def test_the_whole_run_is_estimated_by_the_speed_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"count": 1, "bpe": 2, "superbpe": 3, "shards": 4, "lm": 1e-6, "evaluation": 5, "report": 7}
    seconds = 1 + 2 + 3 + 4 * 4 + 6 + 6 * 5 + 7
    (line,) = _said(monkeypatch, speeds, ["lm.n_seeds=3"])
    assert line.startswith(f"about {seconds // 60} min {seconds % 60:02d} s if nothing more is reused")
    del speeds["lm"]
    (line,) = _said(monkeypatch, speeds, [])
    assert "the first steps of training will (2 language models, at most 2M bytes together)" in line


def test_the_speed_of_models_is_that_of_the_same_shape() -> None:
    config = load()
    shape = dataclasses.asdict(config.lm.model)
    made = {"lm-new": ({**shape, "n_layers": 99}, 9), "lm-old": (shape, 2)}

    def find(name: str, _: Any) -> Any:
        model, seconds = made[name]
        manifest = SimpleNamespace(config={"model": model}, seconds=seconds, contents={"summary": {"bytes": 10}})
        return SimpleNamespace(manifest=manifest)

    context: Any = SimpleNamespace(config=config, store=SimpleNamespace(latest=lambda _: list(made), find=find))
    assert beforehand._seconds(context, "lm") == 0.2
