import json
import sys
from unittest.mock import Mock, call

import pytest

from experiments.compose import load
from experiments.logging import tracking
from experiments.logging.tracking import Labels, Tracker
from experiments.results import Folder
from experiments.store.artifacts import Artifact
from experiments.store.manifest import Manifest
from tokenizer.errors import UserError


def test_rows_are_json_lines_and_wandb_is_not_imported(tmp_path):
    loaded = "wandb" in sys.modules
    with Tracker(tmp_path, "none", "p", {}) as tracker:
        tracker.log("lm/bpe", {"bytes_seen": 10, "loss": 1.5})
        tracker.log("summary", {"bits_per_byte": 1.2})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["group"] for row in rows] == ["lm/bpe", "summary"]
    assert rows[0]["loss"] == 1.5
    assert ("wandb" in sys.modules) == loaded


@pytest.fixture
def started(monkeypatch):
    """The runs that a made-up wandb starts; they record their calls."""
    runs = []

    def init(**settings):
        run = Mock(settings=settings, summary={})
        run.config.update = lambda values, **_: settings["config"].update(values)
        runs.append(run)
        return run

    monkeypatch.setitem(sys.modules, "wandb", Mock(init=init, errors=Mock(Error=OSError)))
    return runs


def _made(folder, stage, name, inputs, *, fresh=True):
    manifest = Manifest(stage, f"hash of {name}", 3, inputs, {}, {}, {"a": 1}, seconds=1.5)
    return Artifact(folder / name, manifest, Folder(), fresh)


@pytest.mark.parametrize("logger", ["wandb-offline", "wandb"])
def test_wandb_gets_a_run_of_the_pipeline_and_one_per_model(tmp_path, started, logger):
    shards = _made(tmp_path, "shards", "shards-1", {"tokenizer": "hash of tokenizer-1"})
    model = _made(tmp_path, "lm", "lm-1", {"shards": "hash of shards-1"})
    scores = _made(tmp_path, "evaluation", "evaluation-1", {"lm": "hash of lm-1"})
    with Tracker(tmp_path, logger, "p", {}, Labels("day/sweep", "t=0.8", "pipeline")) as tracker:
        tracker.done("shards bpe", shards, {"train_bytes_per_token": 4.5})
        tracker.log("lm/bpe", {"loss": 2.0, "train_bits_per_byte": 1.0, "bytes_seen": 10, "step": 1})
        tracker.done("lm bpe", model, {})
        tracker.done("evaluate bpe", scores, {"bits_per_byte": 1.25, "bytes_per_token": 4.0})
        old = _made(tmp_path, "evaluation", "evaluation-2", {"lm": "hash of lm-2"}, fresh=False)
        tracker.done("evaluate superbpe", old, {"bits_per_byte": 1.5})
        tracker.log("comparison", {"difference": -0.1})
        tracker.log("summary", {"bpe/val/bpb": 1.25})
    pipeline, lm = started
    assert [run.settings["job_type"] for run in started] == ["pipeline", "lm"]
    assert {run.settings["mode"] for run in started} == {"online" if logger == "wandb" else "offline"}
    assert {run.settings["group"] for run in started} == {"day/sweep"}
    assert all(run.finish.mock_calls == [call(exit_code=0)] for run in started)
    lm.log.assert_called_once_with({"train/loss": 2.0, "train/bpb": 1.0, "bytes_seen": 10, "step": 1})
    assert lm.summary["val/bpb"] == 1.25
    assert lm.summary["val/bytes_per_token"] == 4.0
    assert lm.summary["seconds"] == 1.5
    assert lm.settings["config"]["lm"] == {"a": 1, "artifact": "lm-1", "inputs": {"shards": "hash of shards-1"}}
    assert pipeline.summary["comparison/difference"] == -0.1
    assert pipeline.summary["shards/bpe/train_bytes_per_token"] == 4.5
    assert pipeline.summary["superbpe/val/bpb"] == 1.5


def test_a_missing_logger_is_one_line_that_names_the_extra(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install '\.\[experiments\]'"):
        load(["logger=wandb"])
