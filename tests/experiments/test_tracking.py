from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from experiments.tracking import Tracker

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_rows_are_json_lines_and_wandb_is_not_imported(tmp_path: Path) -> None:
    loaded = "wandb" in sys.modules
    with Tracker(tmp_path, "off", "p", {}) as tracker:
        tracker.log("lm/bpe", {"bytes_seen": 10, "loss": 1.5})
        tracker.summary({"bits_per_byte": 1.2})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["group"] for row in rows] == ["lm/bpe", "summary"]
    assert rows[0]["loss"] == 1.5
    assert ("wandb" in sys.modules) == loaded


def test_wandb_gets_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Run:
        def __init__(self, **settings: Any) -> None:
            calls.append(("init", settings["mode"], settings["project"]))
            self.summary: dict[str, Any] = {}

        def define_metric(self, name: str, step_metric: str) -> None:
            calls.append(("define", name, step_metric))

        def log(self, row: dict[str, Any]) -> None:
            calls.append(("log", row))

        def finish(self, exit_code: int) -> None:
            calls.append(("finish", exit_code))

    errors = type("errors", (), {"Error": OSError})
    monkeypatch.setitem(sys.modules, "wandb", type("wandb", (), {"init": Run, "errors": errors}))
    with Tracker(tmp_path, "offline", "p", {"a": 1}) as tracker:
        tracker.log("lm/bpe", {"bytes_seen": 10})
        tracker.log("lm/bpe", {"bytes_seen": 20})
    assert calls == [
        ("init", "offline", "p"),
        ("define", "lm/bpe/*", "lm/bpe/bytes_seen"),
        ("log", {"lm/bpe/bytes_seen": 10}),
        ("log", {"lm/bpe/bytes_seen": 20}),
        ("finish", 0),
    ]
