"""The numbers of `superbpe fertility` on a cluster equal those of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cluster import connection
from experiments.fertility import command
from tests import texts
from tests.experiments.cluster.fake_ray import FakeRay
from tokenizer import Tokenizer
from tokenizer.corpus.corpus import Corpus

WRITINGS = ["Привет, мир! ", "日本語のテキストです。", "1 + 1 = 2", ""]


@pytest.fixture
def given(trained: dict[str, Tokenizer], tmp_path: Path) -> list[str]:
    for name in ("superwords", "gpt2"):
        trained[name].save(tmp_path / name)
    prose = texts.prose()
    rows = [
        {"text": WRITINGS[i % 9 % 4] + prose[i % len(prose)][: 40 + 37 * (i % 11)], "host": f"https://{i % 7}.org/{i}"}
        for i in range(300)
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (tmp_path / "web.jsonl").write_text("".join([*lines, "damaged\n", *lines[:20]]), encoding="utf-8")
    (tmp_path / "more.jsonl").write_text("".join(lines[100:180]), encoding="utf-8")
    (tmp_path / "trained-on.jsonl").write_text("".join(lines[::3]), encoding="utf-8")
    return [
        *(str(tmp_path / name) for name in ("gpt2", "superwords", "web.jsonl")),
        f"more={tmp_path / 'more.jsonl'}",
        *("--training", f"superwords={tmp_path / 'trained-on.jsonl'}"),
        *("--source-field", "host", "--sources", "4", "--on-error", "skip", "--memory-mb", "1"),
    ]


def report(out: Path, *arguments: str) -> dict[str, Any]:
    assert command.run([*arguments, "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads((out / "fertility.json").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name not in ("made", "command")}


def test_numbers_are_equal(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = report(tmp_path / "local", *given)
    assert "1 damaged records" in capsys.readouterr().out
    assert all(row["in_training_bytes"] for row in expected["rows"] if row["tokenizer"] == "superwords")
    ray = FakeRay(**{name: ["lost"] for name in ("survey_00001", "tokens_00002", "weights_00000", "measured_00001")})
    monkeypatch.setattr(connection, "started", lambda _: ray)
    parts = Corpus.parts
    monkeypatch.setattr(Corpus, "parts", lambda self, split="train", target=0: parts(self, split, 10_000))
    found = report(tmp_path / "cluster", *given, "--runner", "ray")
    assert found == expected
    assert "1 damaged records" in capsys.readouterr().out
    assert not list((tmp_path / "cluster").glob(".tasks-*")), "results of tasks are deleted"
    tasks = [name.partition("-")[0] for name in ray.submitted]
    assert {name: tasks.count(name) for name in tasks} == {
        **dict.fromkeys(("survey", "measured", "tokens", "weights"), 11), "overlap": 3
    }  # fmt: skip


def test_results_of_other_text_are_not_used(given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "started", lambda _: FakeRay(tokens_00000=["lost"] * 100))
    out = ["--out", str(tmp_path / "cluster"), "--runner", "ray", "workers=2"]
    assert command.run([*given, *out]) == 2, "the command fails, so the results of its tasks are kept"
    assert list((tmp_path / "cluster").glob(".tasks-*/survey-*.json"))
    monkeypatch.setattr(connection, "started", lambda _: FakeRay())
    expected = report(tmp_path / "local", *given, "--field", "host")
    assert report(tmp_path / "cluster", *given, "--field", "host", "--runner", "ray") == expected


def test_settings_of_the_runner_are_checked(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run([*given, "--runner", "spark"]) == 2
    assert "spark" in capsys.readouterr().err
    assert command.run([*given, "--runner", "ray", "worker=3"]) == 2
    assert "runner.workers" in capsys.readouterr().err
