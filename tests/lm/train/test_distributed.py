"""Several processes, as torchrun starts them, train what one process trains."""

import dataclasses
import json

import pytest
import torch

from lm.model.transformer import ModelConfig
from lm.model.weights import load_model
from lm.train.loop import train
from tests.lm import ranks
from tests.lm.train import runs
from tests.lm.train.runs import EXACT
from tokenizer.errors import UserError

LOST = "training or evaluation aborted: another process failed or does not answer (see its own message)"
MODEL = ModelConfig(n_layers=3, hidden_size=128, head_dim=32)
# Micro-batches of one process: 2 + 2 + 2 + 2 + 1 rows; of three: 2 + 1 each.
CONFIG = dataclasses.replace(
    runs.CONFIG, train_bytes=8 * 576, bytes_per_step=576, microbatch_size=2, document_mask=True
)


def start(shards, root, jobs, n=3):
    """Start N processes that do these jobs."""
    values = {"model": dataclasses.asdict(MODEL), "train": dataclasses.asdict(CONFIG), "jobs": jobs}
    arguments = [str(shards.folder), str(root), json.dumps(values)]
    return ranks.start("tests.lm.train.training_processes", arguments, n)


def ended(started):
    """Exit codes and error output of processes."""
    errors = [process.communicate(timeout=240)[1] for process in started]
    return [process.returncode for process in started], errors


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_three_processes_train_what_one_trains_and_resume_exactly(shards, tmp_path):
    """With more than two, the sum of gradients depends on its order."""
    root = tmp_path / "three"
    jobs = [
        {"name": "whole", "folder": "whole"},
        {"name": "before", "folder": "broken", "stop_at": 4},
        {"name": "alone", "folder": "alone", "absent": True},
        {"name": "after", "folder": "broken"},
    ]
    codes, errors = ended(start(shards, root, jobs))
    assert codes == [0, 0, 0], errors
    assert entries(root / "alone.jsonl") == [{"refused": "process 1: there is no second device"}]

    one = []
    train(MODEL, CONFIG, shards, tmp_path / "one", log=one.append)
    three = entries(root / "whole.jsonl")
    assert len(three) == len(one) == CONFIG.steps
    for ours, theirs in zip(three, one, strict=True):
        for key in ("loss", "train_bits_per_byte", "activation_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
        assert all(ours[key] == theirs[key] for key in ("step", "bytes_seen", "tokens_seen", "flops", "lr"))
    assert json.loads((root / "whole" / "summary.json").read_text())["processes"] == 3

    # Only the second process got the signal. All stopped after the same step and resumed exactly.
    before, after = entries(root / "before.jsonl"), entries(root / "after.jsonl")
    assert len(before) == 5
    assert before.pop() == {"stopped": True}
    assert [[row[key] for key in EXACT] for row in before + after] == [[row[key] for key in EXACT] for row in three]
    weights = [load_model(root / name).state_dict() for name in ("whole", "broken")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_the_others_do_not_wait_for_a_failed_process(shards, tmp_path):
    rows_for_two = {"train_bytes": 8 * 512, "bytes_per_step": 512}
    job = {"name": "run", "folder": "run", "fail_at": 3, "train": rows_for_two}
    first_fails = start(shards, tmp_path / "run", [job], 2)
    second_fails = start(shards, tmp_path / "other", [job | {"fail_rank": 1}], 2)

    codes, errors = ended(first_fails)
    assert codes == [1, 1]
    assert errors[0].endswith("failed: disk full\n")
    assert errors[1].endswith(f"process 1: {LOST}\n")
    assert "Traceback" not in "".join(errors)

    codes, errors = ended(second_fails)
    assert codes == [2, 1]
    assert "Traceback" not in errors[0]
    assert errors[1].count("Traceback") == 1
    assert entries(tmp_path / "other" / "run.jsonl")[-1] == {"refused": LOST}


def test_rows_that_do_not_divide_are_rejected(shards, tmp_path, monkeypatch):
    from lm.train import distributed, trainer

    monkeypatch.setattr(trainer, "current", lambda: distributed.World(0, 2))
    with pytest.raises(UserError, match=r"9 rows .* cannot be shared by 2 processes"):
        train(MODEL, CONFIG, shards, tmp_path / "run")
