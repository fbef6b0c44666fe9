from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from experiments import search
from experiments.cli import main as cli

if TYPE_CHECKING:
    from pathlib import Path


def _overrides(tiny: list[str]) -> list[str]:
    return [text for text in tiny if not text.startswith(("hydra.", "superbpe.transition"))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to search"),
        (["superbpe.transition=interval(0.8,1.9)"], "1.9"),
        (["superbpe.transitio=0.5,0.6"], "did you mean"),
        (["superbpe.transition=0.7,0.8", "hydra.run.dir=x"], "name its folder with --out"),
    ],
)
def test_mistakes_are_told_before_any_work(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    pytest.importorskip("optuna")
    command = [*_overrides(tiny), *arguments, "--trials", "2", "--out", str(tmp_path / "search")]
    assert search.run(command) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "artifacts").exists()


def test_a_search_goes_on_where_it_was_stopped(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a made-up result in place of a run: the best transition is 0.75; the third trial is interrupted."""
    pytest.importorskip("optuna")
    seen: list[tuple[float, str]] = []
    stops = [2]

    def pretend(stage: str, argv: list[str], trial: cli.Trial) -> int:
        values = dict(text.split("=", 1) for text in argv)
        transition = float(values["superbpe.transition"])
        seen.append((transition, values["superbpe.max_words"]))
        if len(seen) - 1 in stops:
            return 130
        place = tmp_path / "search" / str(trial.number)
        place.mkdir()
        side = {"key": "superbpe", "label": "", "interval": None, "difference": 0.0, "difference_interval": None}
        numbers = {**side, "bytes_per_token": 4.0, "bits_per_byte": 1 + (transition - 0.75) ** 2}
        record = {"folder": str(place), "stage": stage, "overrides": argv, "status": "done", "exit_code": 0}
        swept = [f"{key}={values[key]}" for key in trial.keys]
        results = {"tokenizers": [numbers], "confidence": 0.95}
        record |= {"number": trial.number, "swept": swept, "seconds": 1.0, "results": results}
        (place / "run.json").write_text(json.dumps(record))
        return 0

    monkeypatch.setattr(cli, "run", pretend)
    space = ["superbpe.transition=interval(0.7,0.9)", "superbpe.max_words=2,4"]
    command: list[Any] = [*_overrides(tiny), *space, "--trials", "6", "--out", str(tmp_path / "search")]
    assert search.run(command) == 130
    assert len(seen) == 3
    assert search.run(command) == 0
    assert len(seen) == 7  # six, and the one that was stopped
    assert seen[3] == seen[2]
    assert all(0.7 <= transition <= 0.9 for transition, _ in seen)
    best = min(abs(transition - 0.75) for transition, _ in seen)
    assert f"superbpe.bits_per_byte={1 + best**2:.4f}" in capsys.readouterr().out
    assert search.run(command) == 0
    assert len(seen) == 7
    assert search.run([*command, "superbpe.min_count=2"]) == 2
    assert "holds another search" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_with_real_runs(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    space = ["superbpe.transition=interval(0.8,0.9)"]
    assert search.run([*_overrides(tiny), *space, "--trials", "2", "--out", str(tmp_path / "search")]) == 0
    assert "best of 2 trials" in " ".join(capsys.readouterr().out.split())
    assert len(list((tmp_path / "artifacts").glob("superbpe-*"))) == 2
    assert len(list((tmp_path / "artifacts").glob("count-*"))) == 1


def test_a_missing_optuna_is_told(
    tiny: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert search.run([*_overrides(tiny), "superbpe.transition=0.7,0.8", "--trials", "1"]) == 2
    assert "pip install 'superbpe-framework[search]'" in " ".join(capsys.readouterr().err.split())
