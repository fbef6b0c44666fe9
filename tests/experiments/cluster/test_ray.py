"""A real Ray cluster of several processes: results equal those of threads, whatever dies or hangs."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from experiments.cluster import tasks
from experiments.cluster.tasks import Task, connect
from experiments.config import RunnerConfig
from lm.model.weights import load_tensors
from lm.train.trainer import CHECKPOINT
from tests.experiments.cluster import ray_tasks, test_models
from tests.experiments.cluster.test_stages import files_by_artifact
from tests.experiments.conftest import run_stages, tiny_overrides, write_corpus
from tokenizer import Corpus, UserError

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("KILLS", "2"))
"""Workers to kill in each stage."""
ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Address of a cluster of two machines with one core each and the smallest object store.

    Ray's handler of SIGTERM ends the machines and hangs in forked processes, which other tests terminate.
    """
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    # Ray's sockets are in this folder, and their names must not exceed 107 bytes.
    folder = Path(f"/tmp/ray-{os.getpid()}")
    home = tmp_path_factory.mktemp("home")
    os.environ |= {**ENVIRONMENT, "HOME": str(home), "RAY_TMPDIR": str(folder)}
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Machines

    machine = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    machines = Machines(initialize_head=True, head_node_args=machine)
    machines.add_node(num_cpus=1, object_store_memory=80 << 20)
    signal.signal(signal.SIGTERM, handler)
    try:
        yield machines.address
    finally:
        ray.shutdown()
        machines.shutdown()
        os.environ.clear()
        os.environ |= before
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def runner(address):
    return RunnerConfig(name="ray", address=address)


def workers():
    """The busy workers."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process().children(recursive=True)
        return [process for process in found if " ".join(process.cmdline()).startswith("ray::execute")]
    return []


@contextmanager
def killing(most):
    """Kill a busy worker now and then, until enough are killed in each stage."""
    killer, stopped, rng = SimpleNamespace(kills=Counter(), stage=""), threading.Event(), random.Random(1)

    def run():
        while not stopped.wait(rng.uniform(0.02, 0.2)):
            stage, busy = killer.stage, workers()
            if busy and killer.kills[stage] < most:
                with suppress(psutil.NoSuchProcess):
                    rng.choice(busy).kill()
                    killer.kills[stage] += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield killer
    finally:
        stopped.set()
        thread.join()


STAGES = {"count": "count", "seams": "superwords", "fragments": "superwords", "encode": "encode"}


def test_killed_workers_change_nothing(runner, tmp_path, monkeypatch):
    """Workers are killed while text is counted, searched for superwords and encoded."""
    rng, start, parts = random.Random(5), tasks._Run.__init__, Corpus.parts
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(40)]
    for i in range(16):
        rows = (json.dumps({"text": " ".join(rng.choices(words, k=60))}) for _ in range(500))
        (tmp_path / f"{i:02}.jsonl").write_text("\n".join(rows))
    overrides = tiny_overrides(tmp_path / "*.jsonl", tmp_path)
    monkeypatch.setattr(Corpus, "parts", lambda self, split="train", target=0: parts(self, split, 200_000))
    run_stages("shard", overrides, tmp_path / "local")

    def started(run, cluster, work, listed, *rest):
        killer.stage = STAGES[listed[0].name.partition("-")[0]]
        start(run, cluster, work, listed, *rest)

    monkeypatch.setattr(tasks, "RETRIES", 100)
    monkeypatch.setattr(tasks._Run, "__init__", started)
    with killing(KILLS) as killer:
        while min(killer.kills[stage] for stage in STAGES.values()) < KILLS:
            shutil.rmtree(tmp_path / "ray", ignore_errors=True)
            elsewhere = [f"artifacts={tmp_path}/ray", "runner=ray", f"runner.address={runner.address}"]
            run_stages("shard", [*overrides, *elsewhere], tmp_path / "remote")
            assert files_by_artifact(tmp_path / "ray") == files_by_artifact(tmp_path / "artifacts")


def test_a_worker_that_hangs_is_ended_and_its_core_is_free_again(runner, tmp_path, caplog):
    """There are two cores; both of the first tasks hang."""
    cluster = connect(replace(runner, timeout_s=5.0))
    found = cluster.run(partial(ray_tasks.hang_once, tmp_path), [Task(f"part-{i}", [i], i) for i in range(4)], tmp_path)
    assert [result.value for result in found] == [0, 1, 2, 3]
    assert "was ended: it showed no progress for runner.timeout_s=5 seconds" in caplog.text


def test_errors_of_tasks_reach_the_user(runner, tmp_path, monkeypatch):
    cluster = connect(runner)
    with pytest.raises(UserError, match=r"^a.jsonl: line 3: not JSON$"):
        list(cluster.run(ray_tasks.fail, [Task("bad", [], 0)], tmp_path))
    monkeypatch.setattr(tasks, "RETRIES", 1)
    with pytest.raises(UserError, match=r"task killed was lost again and again .* if memory is short, lower runner"):
        list(cluster.run(ray_tasks.kill, [Task("killed", [], 0)], tmp_path))


def test_a_cluster_that_does_not_exist_is_an_error():
    code = (
        "from experiments.cluster.tasks import connect; from experiments.config import RunnerConfig\n"
        "connect(RunnerConfig(name='ray', address='127.0.0.1:1'))"
    )
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT), "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "no Ray cluster can be used there" in ended.stderr


DRIVER = """
import sys, time
from functools import partial
from pathlib import Path
from experiments.cluster.tasks import Task, connect
from experiments.config import RunnerConfig
from tests.experiments.cluster.ray_tasks import slowly
cluster, folder = connect(RunnerConfig(name="ray", address=sys.argv[1])), Path(sys.argv[2])
for result in cluster.run(partial(slowly, folder), [Task(f"part-{i}", [i], i) for i in range(10)], folder):
    print(result.value, flush=True)
time.sleep(3)
"""


def test_finished_parts_survive_their_driver_and_a_lost_worker_is_one_line(address, tmp_path):
    """Ray's own paragraphs about the worker stay in its logs."""
    command = [sys.executable, "-c", DRIVER, address, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def executed():
        return list(map(int, (tmp_path / "executed").read_text().split()))

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as driver:
        assert [driver.stdout.readline() for _ in range(2)] == ["0\n", "1\n"]
        driver.kill()
    done = set(executed())
    assert len(done) < 10
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    assert ended.stdout.split() == list(map(str, range(10)))
    assert re.fullmatch(r"task part-9 lost its worker; attempt 2 runs on \S+\n", ended.stderr)
    again = executed()
    assert set(again) == set(range(10))
    assert sum(again.count(number) == 1 for number in done) >= 2
    assert len(again) <= 10 + 3, "at most those that were running are done twice"


def test_models_are_trained_side_by_side_and_survive_their_workers(runner, tmp_path, monkeypatch, caplog):
    """Two models on two machines; the command is interrupted, and then a worker is killed: others continue."""
    overrides = tiny_overrides(write_corpus(tmp_path / "tiny.jsonl"), tmp_path)
    overrides += ["budget.train_bytes=600000", "budget.max_epochs=1000", "lm.train.checkpoint_seconds=0.05"]
    elsewhere = [*overrides, f"artifacts={tmp_path}/ray", "runner=ray", "runner.gpus=0"]
    elsewhere.append(f"runner.address={runner.address}")
    run_stages("shard", elsewhere, tmp_path / "shards")

    def interrupt_after_checkpoints(_):
        both = len(list(tmp_path.glob(f"ray/.lm-*.partial/{CHECKPOINT}"))) == 2
        if both or list(tmp_path.glob("ray/lm-*")):  # on a busy machine, one may end before the other begins
            raise KeyboardInterrupt
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(tasks._Run, "done", interrupt_after_checkpoints)
        with pytest.raises(KeyboardInterrupt):
            run_stages("evaluate", elsewhere, tmp_path / "interrupted")
    assert not list((tmp_path / "ray").glob(".tasks*"))
    for checkpoint in tmp_path.glob(f"ray/.lm-*.partial/{CHECKPOINT}"):
        _, meta = load_tensors(checkpoint)
        assert meta["step"] >= 1
    with killing(1) as killer:
        run_stages("evaluate", elsewhere, tmp_path / "remote")
    assert killer.kills.total() == 1
    run_stages("evaluate", overrides, tmp_path / "local")
    assert test_models.results(tmp_path / "ray") == test_models.results(tmp_path / "artifacts")
