"""Time left, and the command that would settle what is open."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from experiments import progress as module
from experiments.findings.next_step import Step, next_step
from experiments.progress import Reporter
from experiments.runs import Run
from experiments.stages import time_left
from experiments.stages.models import Training
from experiments.stages.time_left import TimeLeft
from lm.evaluate.significance import Needed

MODEL: Any = Training(Run("bpe", 4, 0, 1), None)


@pytest.fixture
def console():
    out = io.StringIO()
    return SimpleNamespace(reporter=Reporter(Console(file=out))), out


@pytest.mark.parametrize("first", [1, 41])
def test_the_first_steps_give_the_time_of_all_models(monkeypatch, console, first):
    now, (context, out) = [0.0], console
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    training, small = TimeLeft(context, [1000.0, 2000.0]), TimeLeft(context, [10.0, 2000.0])
    for step in range(first, first + 50):  # steps before a resume are not timed
        now[0] += 1
        training.row(MODEL, {"step": step, "flops": step * 10})
        small.row(MODEL, {"step": step, "flops": step * 10})
        small.done() if step == first + 1 else None
    assert out.getvalue().count("training will take") == 1
    assert "training will take about 5 min 00 s" in out.getvalue()  # 3000 FLOPs at 10 per second
    training.done()
    assert out.getvalue().count("about 3 min 20 s of training left, plus evaluation") == 2


def test_finished_models_are_not_in_the_estimate(monkeypatch, console):
    context, out = console
    monkeypatch.setattr(time_left, "exists", lambda *_: True)
    plan, runs = object(), [Run("bpe", 4, 0, budget) for budget in (1, 2)]
    none = time_left.flops_left(context, plan, plan, runs, dict.fromkeys(runs, plan))
    assert none == 0
    training = TimeLeft(context, [none, none])
    training.done()
    training.done()
    assert not out.getvalue()


def _compared(**changes):
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
        (
            {**FEW, "cluster": "source", "effective_clusters": 4.0},
            {"corpus.heldout_sample": 0.3},
            ["corpus.heldout_sample=1"],
            0,
        ),
    ],
)
def test_one_command_would_settle_what_is_open(changes, settings, words, seconds):
    step = next_step([_compared(**changes)], SETTINGS | settings, "superbpe pipeline 'a=b c' lm.n_seeds=1", 100.0)
    kept = "superbpe pipeline 'a=b c' " + ("" if words[0].startswith("lm.n_seeds") else "lm.n_seeds=1 ")
    assert step.command == kept + " ".join(words)
    assert step.seconds == seconds
    assert step.follow(Reporter()) == ["pipeline", "a=b c", *(["lm.n_seeds=1"] * ("n_seeds=1" in kept)), *words]


def test_without_a_setting_the_change_is_named():
    for changes, settings, what in (
        ({"cluster": "source", "effective_clusters": 4.0}, {}, "eval.cluster=document"),
        ({"effective_clusters": 1.0}, {"corpus.heldout_fraction": 0.05}, "with corpus.heldout_paths"),
        ({}, {"corpus.heldout_paths": ["a.txt"]}, "with corpus.heldout_paths"),
    ):
        step = next_step([_compared(**FEW | changes)], SETTINGS | settings, "superbpe pipeline", 100.0)
        assert (step.command, what in step.what) == ("", True)
    step = next_step(
        [_compared(too_few=True, effective_clusters=4.0, cluster="source", n_seeds=1)],
        SETTINGS,
        "superbpe pipeline",
        100.0,
    )
    assert step.command == ""
    assert ", which needs more text from you, or set eval.cluster=document, if" in step.what


def test_a_settled_or_barred_comparison_has_no_next_step(capsys):
    for compared in ([_compared(decided=True)], [_compared(barred="b loses text", n_seeds=1)], []):
        assert next_step(compared, SETTINGS, "superbpe pipeline", 100.0) is None
    assert Step("train", "why", "superbpe", 100.0).follow(Reporter()) == []
    assert "(why; about 1 min 40 s of training, plus evaluation)" in capsys.readouterr().out
