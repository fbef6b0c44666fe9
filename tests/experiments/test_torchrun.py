"""The command line in several processes: `torchrun --nproc-per-node 2 -m experiments pipeline ...`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.outputs import setting
from tests.lm.ranks import free_port

_ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def torchrun(stage, overrides, options=("--standalone", "--nproc-per-node=2")):
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    command += ["-m", "experiments", "pipeline", "--until", stage, *overrides]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def logged(folder, pattern, process):
    """Wait until a metrics file has rows."""
    while not any(path.stat().st_size for path in folder.glob(f"artifacts/{pattern}/metrics.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def own(tiny_module):
    """Overrides of runs that share the stages before training, and their folder."""
    return tiny_module, setting(tiny_module, "artifacts").parent


def test_two_nodes_that_find_each_other_train_together(own):
    """The first process of all runs the stages and writes the report."""
    tiny, tmp_path = own
    endpoint = f"127.0.0.1:{free_port()}"
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-id=1", "--rdzv-backend=c10d", "--local-addr=127.0.0.1"]
    options.append(f"--rdzv-endpoint={endpoint}")
    nodes = [torchrun("report", tiny, options) for _ in range(2)]
    texts = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], texts
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "artifacts").glob("lm-*/summary.json")]
    assert [summary["processes"] for summary in summaries] == [2, 2]
    assert sorted("evaluat" in out + err for out, err in texts) == [False, True]
    assert sorted(out.count("report: ") for out, _ in texts) == [0, 1]


def test_a_signal_stops_every_process_and_the_same_command_resumes(own):
    tiny, tmp_path = own
    finished = {*tmp_path.glob("artifacts/lm-*")}
    longer = [*tiny, "arms=[bpe]", "budget.train_bytes=1228800", "lm.train.log_every=1"]
    process = torchrun("train-lm", longer)
    logged(tmp_path, ".lm-*", process)
    process.send_signal(signal.SIGTERM)  # to torchrun, which passes it on
    _, err = process.communicate()
    assert "the same command continues" in err, err
    (checkpoint,) = (tmp_path / "artifacts").glob(".lm-*/checkpoint.safetensors")
    steps = len((checkpoint.parent / "metrics.jsonl").read_text().splitlines())
    assert 0 < steps < 300
    out, err = (process := torchrun("train-lm", longer)).communicate()
    assert process.returncode == 0, out + err
    (done,) = {*tmp_path.glob("artifacts/lm-*")} - finished
    rows = (done / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 301))


def test_a_users_mistake_ends_all_processes(own):
    _, err = (process := torchrun("train-lm", [*own[0], "lm.train.bytes_per_step=512"])).communicate()
    assert process.returncode != 0
    assert "a batch of 1 rows" in err
    assert "exitcode  : 2" in err
