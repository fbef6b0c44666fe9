"""Time left, and the command that would settle what is open."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments.cli import console as module
from experiments.cli.console import Reporter
from experiments.stages import outlook
from experiments.stages.models import Chain
from experiments.stages.outlook import Cost, Step, Training, next_step
from lm.evaluate.significance import Needed


def _training(monkeypatch: pytest.MonkeyPatch, speed: float | None, now: list[float]) -> tuple[Training, io.StringIO]:
    monkeypatch.setattr(outlook, "last_speed", lambda _: speed)
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
    for step in range(1, 51):
        now[0] += 1
        training.row("lm bpe", {"step": step, "flops": step * 10})
    assert out.getvalue().count("training will take about 4 min 40 s") == 1  # 2800 FLOPs after 20 steps
    training.done()
    assert "about 3 min 20 s of training left" in out.getvalue()


def test_finished_models_are_not_in_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    context: Any = SimpleNamespace(reporter=Reporter(Console(file=out)))
    monkeypatch.setattr(outlook, "exists", lambda *_: True)
    plan: Any = object()
    none = outlook.cost(Chain(context, plan, plan, [plan, plan]))
    assert none == Cost(0.0, 0, 0)
    training = Training(context, [none, none])
    training.done()
    training.done()
    assert not out.getvalue()


def test_slow_steps_give_the_estimate_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    training, out = _training(monkeypatch, None, now)
    for step in range(1, 6):
        now[0] += 10
        training.row("lm bpe", {"step": step, "flops": step * 10})
    assert "training will take about 49 min 20 s" in out.getvalue()  # 2960 FLOPs after 4 steps


def test_steps_before_a_resume_are_not_left_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    training, out = _training(monkeypatch, None, now)
    for step in range(41, 61):
        now[0] += 1
        training.row("lm bpe", {"step": step, "flops": step * 10})
    assert "training will take about 4 min 00 s" in out.getvalue()  # 3000 - 600 FLOPs at 10 per second


def test_a_trunk_that_several_models_continue_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [0.0], list[str]()
    training, _ = _training(monkeypatch, 10.0, now)
    monkeypatch.setattr(training._reporter, "outlook", left.append)
    runs = [("trunk bpe rung 1", 0, 0, 30), ("lm bpe rung 1", 30, 30, 40), ("lm bpe rung 2", 30, 30, 50)]
    for stage, trunk_steps, start, end in runs:
        for step in range(start + 1, end + 1):
            now[0] += 1
            training.row(stage, {"step": step, "flops": step * 10}, trunk_steps)
    assert left[-1] == "about 4 min 00 s for all"  # 3000 - 600 FLOPs at 10 per second


def _compared(**changes: Any) -> Any:
    usual = {"barred": "", "decided": False, "needed": Needed(150, 3), "n_seeds": 3, "n_clusters": 200}
    usual |= {"effective_clusters": 100.0, "cluster": "document", "too_few": False}
    return SimpleNamespace(**usual | changes)


SETTINGS = {"corpus.heldout_fraction": 0.02, "corpus.heldout_paths": [], "corpus.heldout_sample": 1.0}
FEW = {"too_few": True, "effective_clusters": 5.0}


@pytest.mark.parametrize(
    ("changes", "settings", "words", "seconds"),
    [
        ({"n_seeds": 1}, {}, ["lm.n_seeds=3"], 200),
        ({"needed": Needed(100, 8)}, {}, ["lm.n_seeds=8"], 500),
        ({"needed": Needed(1000, 8)}, {}, ["lm.n_seeds=8", "corpus.heldout_fraction=0.1"], 800),
        (FEW, {}, ["corpus.heldout_fraction=0.04"], 300),
        (FEW, {"corpus.heldout_sample": 0.3}, ["corpus.heldout_sample=0.6"], 0),
    ],
)
def test_one_command_would_settle_what_is_open(
    changes: dict[str, Any], settings: dict[str, Any], words: list[str], seconds: float
) -> None:
    step = next_step([_compared(**changes)], SETTINGS | settings, "superbpe pipeline 'a=b c' lm.n_seeds=1", 100.0)
    assert step is not None
    kept = "superbpe pipeline 'a=b c' " + ("" if words[0].startswith("lm.n_seeds") else "lm.n_seeds=1 ")
    assert step.command == kept + " ".join(words)
    assert step.seconds == seconds
    assert step.command in step.sentence()


@pytest.mark.parametrize(
    ("changes", "settings", "what"),
    [
        ({**FEW, "cluster": "source", "effective_clusters": 4.0}, {}, "eval.cluster=document"),
        ({**FEW, "effective_clusters": 1.0}, {"corpus.heldout_fraction": 0.05}, "with corpus.heldout_paths"),
        (FEW, {"corpus.heldout_paths": ["a.txt"]}, "with corpus.heldout_paths"),
    ],
)
def test_without_a_setting_the_change_is_named(changes: dict[str, Any], settings: dict[str, Any], what: str) -> None:
    step = next_step([_compared(**changes)], SETTINGS | settings, "superbpe pipeline", 100.0)
    assert step is not None
    assert (step.command, what in step.what) == ("", True)


def test_a_settled_or_barred_comparison_has_no_next_step() -> None:
    assert next_step([_compared(decided=True)], SETTINGS, "superbpe pipeline", 100.0) is None
    assert next_step([_compared(barred="b loses text", n_seeds=1)], SETTINGS, "superbpe pipeline", 100.0) is None
    assert next_step([], SETTINGS, "superbpe pipeline", 100.0) is None
    assert "about 1 min 40 s of training" in Step("train", "why", "superbpe", 100.0).sentence()
