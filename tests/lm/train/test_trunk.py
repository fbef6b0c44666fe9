import dataclasses
import os
import signal

import pytest

from lm.train.loop import train
from tests.lm.train import runs
from tests.lm.train.runs import MODEL
from tokenizer.errors import UserError

CONFIG = dataclasses.replace(runs.CONFIG, train_bytes=20 * 256, warmup_steps=3, decay_fraction=0.2, decay="sqrt")
LONGER = dataclasses.replace(CONFIG, train_bytes=40 * 256)
MEASURED = ("seconds", "tokens_per_second")


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def result(summary):
    return {key: value for key, value in dataclasses.asdict(summary).items() if key not in MEASURED}


def test_cooldowns_from_one_trunk_equal_runs_of_their_own(shards, tmp_path):
    direct = [train(MODEL, config, shards, tmp_path / f"direct{config.steps}") for config in (CONFIG, LONGER)]
    trunk = None
    for config, expected in zip((CONFIG, LONGER), direct, strict=True):
        folder = tmp_path / f"trunk{config.steps}"
        train(MODEL, config.trunk, shards, folder, trunk=trunk, keep_checkpoint=True)
        trunk, entries = folder, []
        made = train(MODEL, config, shards, tmp_path / f"rung{config.steps}", trunk=trunk, log=entries.append)
        assert [entry["step"] for entry in entries] == list(range(config.trunk.steps + 1, config.steps + 1))
        assert weights(tmp_path / f"rung{config.steps}") == weights(tmp_path / f"direct{config.steps}")
        assert result(made) == result(expected)


def test_interrupted_cooldown_resumes_from_its_own_checkpoint(shards, tmp_path):
    train(MODEL, CONFIG, shards, tmp_path / "direct")
    train(MODEL, CONFIG.trunk, shards, tmp_path / "trunk", keep_checkpoint=True)

    def interrupt(entry):
        if entry["step"] == 18:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(MODEL, CONFIG, shards, tmp_path / "rung", trunk=tmp_path / "trunk", log=interrupt)
    steps = []
    train(MODEL, CONFIG, shards, tmp_path / "rung", trunk=tmp_path / "trunk", log=lambda e: steps.append(e["step"]))
    assert steps == [19, 20]
    assert weights(tmp_path / "rung") == weights(tmp_path / "direct")


@pytest.mark.parametrize("change", [{"warmup_steps": None}, {"decay": "cosine"}, {"decay_fraction": 0.0}])
def test_runs_that_depend_on_their_length_from_the_start_have_no_trunk(change):
    assert dataclasses.replace(CONFIG, **change).trunk is None


def test_trunk_of_other_settings_is_rejected(shards, tmp_path):
    trunk = dataclasses.replace(CONFIG.trunk, matrix_lr=0.01)
    train(MODEL, trunk, shards, tmp_path / "trunk", keep_checkpoint=True)
    with pytest.raises(UserError, match=r"matrix_lr \(0.01 there, 0.02 now\)"):
        train(MODEL, CONFIG, shards, tmp_path / "rung", trunk=tmp_path / "trunk")


def test_trunk_that_is_longer_than_the_run_is_rejected(shards, tmp_path):
    train(MODEL, LONGER.trunk, shards, tmp_path / "trunk", keep_checkpoint=True)
    with pytest.raises(UserError, match=r"32 steps.* 20"):
        train(MODEL, CONFIG, shards, tmp_path / "rung", trunk=tmp_path / "trunk")


def test_warmup_that_reaches_into_the_decay_is_rejected():
    with pytest.raises(UserError, match=r"warmup_steps=17 and decay_fraction=0\.2 overlap in a run of 20 steps"):
        _ = dataclasses.replace(CONFIG, warmup_steps=17).schedule
