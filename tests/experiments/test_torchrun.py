"""The command line in several processes: `torchrun --nproc-per-node 2 -m experiments pipeline ...`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_the_first_process_runs_the_stages_and_all_train(tiny, tmp_path):
    out, err = (process := torchrun("report", tiny)).communicate()
    assert process.returncode == 0, out + err
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "artifacts").glob("lm-*/summary.json")]
    assert [summary["processes"] for summary in summaries] == [2, 2]
    assert out.count("report: ") == 1


def test_two_nodes_that_find_each_other_train_together(tiny, tmp_path):
    endpoint = f"127.0.0.1:{free_port()}"
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-id=1", "--rdzv-backend=c10d", "--local-addr=127.0.0.1"]
    options.append(f"--rdzv-endpoint={endpoint}")
    nodes = [torchrun("evaluate", tiny, options) for _ in range(2)]
    texts = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], texts
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "artifacts").glob("lm-*/summary.json")]
    assert [summary["processes"] for summary in summaries] == [2] * len(summaries) != []
    assert sorted("evaluat" in out + err for out, err in texts) == [False, True]  # one node reports


def test_a_signal_stops_every_process_and_the_same_command_resumes(tiny, tmp_path):
    longer = [*tiny, "budget.train_bytes=1228800", "lm.train.log_every=1"]
    process = torchrun("train-lm", longer)
    logged(tmp_path, ".lm-*", process)
    process.send_signal(signal.SIGTERM)  # to torchrun, which passes it on
    _, err = process.communicate()
    assert "the same command continues" in err, err
    (checkpoint,) = (tmp_path / "artifacts").glob(".lm-*/checkpoint.safetensors")
    steps = len((checkpoint.parent / "metrics.jsonl").read_text().splitlines())
    assert 0 < steps < 300
    process = torchrun("train-lm", longer)
    logged(tmp_path, "lm-*", process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    (done,) = (tmp_path / "artifacts").glob("lm-*/metrics.jsonl")
    assert [json.loads(line)["step"] for line in done.read_text().splitlines()] == list(range(1, 301))


def test_a_users_mistake_ends_all_processes(tiny):
    _, err = (process := torchrun("train-lm", [*tiny, "lm.train.bytes_per_step=512"])).communicate()
    assert process.returncode != 0
    assert "a batch of 1 rows" in err
    assert "exitcode  : 2" in err
