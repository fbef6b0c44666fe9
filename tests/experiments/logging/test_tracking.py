from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

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


class FakeRun:
    """The calls that a run of wandb gets."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.summary: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.used: list[str] = []
        self.logged: list[Any] = []
        self.finished: int | None = None
        self.config = self

    def update(self, values: dict[str, Any], **_: Any) -> None:
        self.settings["config"].update(values)

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, row: dict[str, Any]) -> None:
        self.history.append(row)

    def log_artifact(self, artifact: Any) -> Any:
        self.logged.append(artifact)
        return artifact

    def use_artifact(self, name: str) -> None:
        if "offline" in self.settings["mode"]:
            raise TypeError("Cannot use artifact when in offline mode.")
        if name.startswith("lm-elsewhere"):
            raise ValueError(name)
        self.used.append(name)

    def finish(self, exit_code: int = 0) -> None:
        self.finished = exit_code


class FakeArtifact:
    def __init__(self, name: str, type: str, metadata: Any) -> None:  # noqa: A002
        self.name, self.type, self.metadata = name, type, metadata
        self.content: tuple[str, str] | None = None

    def add_reference(self, uri: str, **_: Any) -> None:
        self.content = ("reference", uri)

    def add_dir(self, path: str, **_: Any) -> None:
        self.content = ("files", path)

    def new_file(self, name: str) -> Any:
        return open(os.devnull, "w")  # noqa: PTH123

    def wait(self) -> None:
        pass


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    runs: list[FakeRun] = []

    def init(**settings: Any) -> FakeRun:
        runs.append(FakeRun(**settings))
        return runs[-1]

    errors = type("errors", (), {"Error": OSError, "CommError": OSError})
    fake = type(sys)("wandb")
    fake.__dict__.update(init=init, errors=errors, Artifact=FakeArtifact)
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
    tmp_path: Path, started: list[FakeRun], logger: str
) -> None:
    _work(tmp_path, logger)
    runs = {run.settings["job_type"]: run for run in started}
    assert [run.settings["job_type"] for run in started] == ["pipeline", "lm"]
    assert {run.settings["group"] for run in started} == {"day/sweep"}
    assert all(run.finished == 0 for run in started)
    assert runs["lm"].history == [{"train/loss": 2.0, "train/bpb": 1.0, "bytes_seen": 10, "step": 1}]
    assert runs["lm"].summary["val/bpb"] == 1.25
    assert runs["lm"].summary["val/bytes_per_token"] == 4.0
    assert runs["lm"].summary["seconds"] == 1.5
    assert runs["pipeline"].summary["comparison/difference"] == -0.1
    assert runs["pipeline"].summary["shards/bpe/train_bytes_per_token"] == 4.5
    logged = {artifact.name: artifact for run in started for artifact in run.logged}
    assert {name: artifact.type for name, artifact in logged.items()} == {
        "tokenizer-1": "tokenizer",
        "bpe-1": "bpe",
        "shards-1": "dataset",
        "lm-1": "model",
        "evaluation-1": "evaluation",
        f"corpus-{'c' * 12}": "corpus",
    }
    assert logged["shards-1"].content == ("reference", (tmp_path / "shards-1").as_uri())
    assert logged["lm-1"].content == ("files", str(tmp_path / "lm-1"))
    inputs = runs["lm"].settings["config"]["lm"]["inputs"]
    assert inputs == {"shards": {"hash": "hash of shards-1", "artifact": "shards-1"}}
    used = {job: run.used for job, run in runs.items() if run.used}
    assert used == (
        {}
        if logger == "wandb-offline"
        else {
            "pipeline": ["count-1:latest"] * 3,  # as the stage, and as the input of two artifacts
            "lm": ["shards-1:latest"],
        }
    )


def test_a_missing_logger_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'superbpe-framework\[experiments\]'"):
        load(["logger=wandb"])


@pytest.mark.slow
def test_the_real_wandb_offline(tiny: list[str], tmp_path: Path) -> None:
    """The whole pipeline with the real library, which writes runs that can be synced later."""
    own = {f"WANDB_{name}_DIR": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}
    command = [sys.executable, "-m", "experiments.pipeline", *tiny, "logger=wandb-offline"]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = list((tmp_path / "outputs" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(found) == 1 + 2  # the pipeline, two models
    contents = b"".join(path.read_bytes() for path in found)
    for expected in (b"val/bpb", b"train/loss", b"total_training_flops", b"tokenizer-"):
        assert expected in contents
