from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, Mock, call

import pytest

from experiments.cli.compose import load
from experiments.logging import Labels, tracking
from experiments.logging.tracking import Tracker
from experiments.results import Folder
from experiments.store.artifacts import Artifact
from experiments.store.manifest import Manifest
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_are_json_lines_and_wandb_is_not_imported(tmp_path: Path) -> None:
    loaded = "wandb" in sys.modules
    with Tracker(tmp_path, "none", "p", {}) as tracker:
        tracker.log("lm/bpe", {"bytes_seen": 10, "loss": 1.5})
        tracker.summary({"bits_per_byte": 1.2})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["group"] for row in rows] == ["lm/bpe", "summary"]
    assert rows[0]["loss"] == 1.5
    assert ("wandb" in sys.modules) == loaded


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Mock]:
    """The runs that a made-up wandb starts; they record their calls."""
    runs: list[Mock] = []

    def init(**settings: Any) -> Mock:
        run = Mock(settings=settings, summary={})
        run.config.update = lambda values, **_: settings["config"].update(values)
        if settings["mode"] == "offline":
            run.use_artifact.side_effect = TypeError("Cannot use artifact when in offline mode.")
        runs.append(run)
        return run

    def artifact(name: str, type: str, metadata: Any) -> MagicMock:  # noqa: A002
        made = MagicMock(type=type)
        made.name, made.new_file = name, lambda _: io.StringIO()
        return made

    fake = Mock(init=init, errors=Mock(Error=OSError, CommError=OSError), Artifact=artifact)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delitem(sys.modules, "experiments.logging.wandb_runs", raising=False)
    importlib.import_module("experiments.logging.wandb_runs")
    yield runs
    sys.modules.pop("experiments.logging.wandb_runs", None)


def _made(folder: Path, stage: str, name: str, inputs: dict[str, str], *, fresh: bool = True) -> Artifact[Folder]:
    manifest = Manifest(stage, f"hash of {name}", 3, inputs, {}, {}, {"a": 1}, seconds=1.5)
    return Artifact(folder / name, manifest, Folder(), fresh)


def _work(folder: Path, logger: str) -> None:
    """A run that finds its counts, and makes the rest."""
    count = _made(folder, "count", "count-1", {"corpus": "c" * 64}, fresh=False)
    record = _made(folder, "bpe", "bpe-1", {"counts": "hash of count-1"})
    tokenizer = _made(folder, "tokenizer", "tokenizer-1", {"counts": "hash of count-1"})
    shards = _made(folder, "shards", "shards-1", {"tokenizer": "hash of tokenizer-1", "corpus": "c" * 64})
    model = _made(folder, "lm", "lm-1", {"shards": "hash of shards-1"})
    judged = _made(folder, "evaluation", "evaluation-1", {"lm": "hash of lm-1"})
    config = {"corpus": {"paths": ["a.jsonl"]}}
    with Tracker(folder, logger, "p", config, Labels("day/sweep", "t=0.8", "pipeline")) as tracker:
        for stage, *artifacts in (("count", count), ("bpe", tokenizer, record), ("shards bpe", shards)):
            for artifact in artifacts:
                tracker.uses(artifact)
            tracker.done(stage, artifacts[-1], {"train_bytes_per_token": 4.5} if stage == "shards bpe" else {})
        tracker.log("lm/bpe", {"loss": 2.0, "train_bits_per_byte": 1.0, "bytes_seen": 10, "step": 1})
        tracker.uses(model)
        tracker.done("lm bpe", model, {})
        tracker.uses(judged)
        tracker.done("evaluate bpe", judged, {"bits_per_byte": 1.25, "bytes_per_token": 4.0})
        tracker.log("comparison", {"difference": -0.1})
        tracker.summary({"bpe/val/bpb": 1.25})


@pytest.mark.parametrize("logger", ["wandb-offline", "wandb"])
def test_wandb_gets_a_run_of_the_pipeline_and_one_per_model_with_their_lineage(
    tmp_path: Path, started: list[Mock], logger: str
) -> None:
    _work(tmp_path, logger)
    runs = {run.settings["job_type"]: run for run in started}
    assert [run.settings["job_type"] for run in started] == ["pipeline", "lm"]
    assert {run.settings["group"] for run in started} == {"day/sweep"}
    assert all(run.finish.mock_calls == [call(exit_code=0)] for run in started)
    runs["lm"].log.assert_called_once_with({"train/loss": 2.0, "train/bpb": 1.0, "bytes_seen": 10, "step": 1})
    assert runs["lm"].summary["val/bpb"] == 1.25
    assert runs["lm"].summary["val/bytes_per_token"] == 4.0
    assert runs["lm"].summary["seconds"] == 1.5
    assert runs["pipeline"].summary["comparison/difference"] == -0.1
    assert runs["pipeline"].summary["shards/bpe/train_bytes_per_token"] == 4.5
    logged = {one.args[0].name: one.args[0] for run in started for one in run.log_artifact.mock_calls if one.args}
    assert {name: artifact.type for name, artifact in logged.items()} == {
        "tokenizer-1": "tokenizer",
        "bpe-1": "bpe",
        "shards-1": "dataset",
        "lm-1": "model",
        "evaluation-1": "evaluation",
        f"corpus-{'c' * 12}": "corpus",
    }
    assert logged["shards-1"].add_reference.call_args.args == ((tmp_path / "shards-1").as_uri(),)
    assert logged["lm-1"].add_dir.call_args.args == (str(tmp_path / "lm-1"),)
    inputs = runs["lm"].settings["config"]["lm"]["inputs"]
    assert inputs == {"shards": {"hash": "hash of shards-1", "artifact": "shards-1"}}
    used = {job: [one.args[0] for one in run.use_artifact.mock_calls] for job, run in runs.items()}
    online = {"pipeline": ["count-1:latest"] * 3, "lm": ["shards-1:latest"]}  # as the stage, and as inputs
    assert used == (online if logger == "wandb" else {"pipeline": [], "lm": []})


def test_a_missing_logger_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'superbpe-framework\[experiments\]'"):
        load(["logger=wandb"])


@pytest.mark.slow
def test_the_real_wandb_offline(tiny: list[str], tmp_path: Path) -> None:
    """The whole pipeline with the real library, which writes runs that can be synced later."""
    own = {f"WANDB_{name}_DIR": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}
    command = [sys.executable, "-m", "experiments", "pipeline", *tiny, "logger=wandb-offline"]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = list((tmp_path / "outputs" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(found) == 1 + 2  # the pipeline, two models
    contents = b"".join(path.read_bytes() for path in found)
    for expected in (b"val/bpb", b"train/loss", b"total_training_flops", b"tokenizer-"):
        assert expected in contents
