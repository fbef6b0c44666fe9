from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments.cli import console as module
from experiments.cli.console import Reporter
from experiments.stages import forecast
from experiments.stages.forecast import Cost, Training


def _training(monkeypatch: pytest.MonkeyPatch, speed: float | None, now: list[float]) -> tuple[Training, io.StringIO]:
    monkeypatch.setattr(forecast, "last_speed", lambda _: speed)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    context: Any = SimpleNamespace(reporter=Reporter(Console(file=out)))
    return Training(context, [Cost(1000.0, 4_000, 1), Cost(2000.0, 4_000, 1)]), out


def test_training_time_is_known_before_it_starts_if_a_model_was_trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    _, out = _training(monkeypatch, 30.0, [0.0])
    assert "about 1 min 40 s at the speed of the last model" in out.getvalue()


def test_without_a_measured_speed_the_first_steps_give_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    training, out = _training(monkeypatch, None, now)
    assert "about" not in out.getvalue()
    for step in range(41, 51):  # a resumed run: 410 FLOPs were spent before
        now[0] += 1
        training.row("lm bpe", {"step": step, "flops": step * 10})
    assert out.getvalue().count("training will take about 4 min 56 s") == 1
    training.done()
    assert "about 3 min 20 s of training left" in out.getvalue()


def test_finished_models_are_not_in_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    context: Any = SimpleNamespace(reporter=Reporter(Console(file=out)))
    monkeypatch.setattr(forecast, "exists", lambda *_: True)
    plan: Any = object()
    none = forecast.cost(context, *[plan] * 2, [plan, plan])
    assert none == Cost(0.0, 0, 0)
    training = Training(context, [none, none])
    training.done()
    training.done()
    assert not out.getvalue()
