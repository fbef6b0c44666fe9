"""What to run next to be surer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from experiments.stages import advice
from lm.train.config import TrainConfig
from lm.train.summary import TrainingSummary


def summary(train_bytes: int, **settings: Any) -> TrainingSummary:
    config = TrainConfig(train_bytes=train_bytes, bytes_per_step=1000, context_bytes=100, **settings)
    fields = {field.name: 0 for field in dataclasses.fields(TrainingSummary)}
    return TrainingSummary(**{**fields, "seconds": train_bytes / 1000, "run": {"train": config.fixed()}})


def test_cost_counts_a_trunk_once() -> None:
    apart = [[[summary(n)] * 2 for n in (100_000, 1_000_000)]] * 3
    trunk = {"warmup_steps": 5, "context_sample_bytes": 1000, "decay_fraction": 0.2}
    shared = [[[summary(n, **trunk)] * 2 for n in (100_000, 1_000_000)]] * 3
    settings = {"corpus.heldout_fraction": 0.1, "corpus.heldout_paths": []}
    assert advice.cost_of([apart], settings) == (pytest.approx(3300), 3000, [100_000, 1_000_000], "bytes", 0.1, 1.0)
    assert advice.cost_of([shared], settings).seed_seconds == pytest.approx(3060)
    assert advice.cost_of([shared], {**settings, "corpus.heldout_paths": ["a"]}).heldout_fraction is None


def test_budgets_keep_their_unit() -> None:
    cost = advice.Spent(100.0, 200.0, [10**12, 10**13, 5 * 10**13, 10**14], "flops", 0.02, 1.0)
    *_, last = advice.next_runs(found(), cost, "python -m x experiment=mine 'corpus.paths=[my text.jsonl]'")
    command = "python -m x experiment=mine 'corpus.paths=[my text.jsonl]' budget.train_flops=400000000000000"
    assert last["command"].startswith(command)
    assert last["command"].endswith("'budget.ladder=[1000000000000,10000000000000,50000000000000,100000000000000]'")


def found(**changes: Any) -> dict[str, Any]:
    gap = {
        "n_seeds": 3,
        "effective_units": 100.0,
        "n_documents": 200,
        "cluster": "document",
        "decisions": ["better"],
        "needed": {"seeds": 8, "clusters": 1000},
    }
    return {"gaps": [{**gap, **changes}], "arms": [{"curve": {"law": None}}] * 2}


@pytest.mark.parametrize(
    ("changes", "budgets", "commands"),
    [
        ({"n_seeds": 1}, 4, [("lm.n_seeds=3", 200), (None, 800)]),
        ({"decisions": ["undecided"]}, 4, [("lm.n_seeds=8", 500), ("corpus.heldout_fraction=0.1", 300), (None, 2400)]),
        ({"effective_units": 5.0}, 4, [("corpus.heldout_fraction=0.04", 300), (None, 2400)]),
        ({"effective_units": 5.0, "sample": 0.3}, 4, [("corpus.heldout_sample=0.6", 0), (None, 2400)]),
        ({"effective_units": 4.0, "cluster": "source"}, 4, [("", 0), (None, 2400)]),
        ({"effective_units": 0.5}, 4, [("", 0), (None, 2400)]),  # too much to hold out
        ({}, 2, [("'budget.ladder=[1000,3162,10000]'", 600 * (3162 + 10_000) / 100_000)]),
    ],
)
def test_advice_has_a_command_and_a_time(changes: dict[str, Any], budgets: int, commands: list[Any]) -> None:
    sample = changes.get("sample", 1.0)
    sizes = [1000, 10_000, 20_000, 100_000][-budgets:] if budgets == 4 else [1000, 100_000]
    made = advice.next_runs(
        found(**changes), advice.Spent(100.0, 200.0, sizes, "bytes", 0.02, sample), "python -m x lm.n_seeds=2"
    )
    longer = "budget.train_bytes=400000 'budget.ladder=[1000,10000,20000,100000]'"
    expected = [(longer if command is None else command, seconds) for command, seconds in commands]
    assert len(made) == len(expected)
    for each, (command, seconds) in zip(made, expected, strict=True):
        assert each["command"].endswith(command)
        assert each["seconds"] == pytest.approx(seconds)
