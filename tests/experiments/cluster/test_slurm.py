"""Array jobs, run by submitit's local executor."""

import json
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from experiments.cluster import connect
from experiments.cluster.counting import count
from experiments.cluster.tasks import Task
from experiments.config import RunnerConfig
from tests.experiments.cluster.test_tasks import executed, interrupt_after_a_beat, save_when_asked, write
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens

pytestmark = pytest.mark.slow
pytest.importorskip("submitit")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return connect(RunnerConfig(name="slurm", address="local"))


def killed_at_first(number: int, shared: object, path: Path) -> dict:
    marker = path.with_suffix(".attempted")
    if number == 1 and not marker.exists():
        marker.touch()
        # The job's process is the parent's child that runs the function.
        psutil.Process().kill()
        time.sleep(100)
    return write(number, "of", path)


def fail(shared: object, path: Path) -> dict:
    raise UserError("a.jsonl: line 3: not JSON")


def test_counts_equal_those_of_threads(cluster, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": f"some text {i}"}) for i in range(300)))
    corpus = Corpus(CorpusConfig(paths=[str(tmp_path / "a.jsonl")]))
    cluster.part_bytes = 4000
    settings = {"pattern": "gpt2", "threads": 1}
    assert count(cluster, corpus, tmp_path / "counts", settings) == count_pretokens(corpus, **settings)


def test_killed_jobs_are_repeated_and_errors_reach_the_user(cluster, tmp_path):
    chosen = [Task(f"part-{i}", [i], partial(killed_at_first, i)) for i in range(3)]
    assert [r.value["number"] for r in cluster.run(chosen, None, tmp_path)] == [0, 1, 2]
    assert executed(tmp_path) == [0, 1, 2]
    with pytest.raises(UserError, match=r"^a.jsonl: line 3: not JSON$"):
        list(cluster.run([Task("bad", [], fail)], None, tmp_path))


def test_jobs_that_report_progress_are_asked_to_stop(cluster, tmp_path, monkeypatch):
    interrupt_after_a_beat(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        list(cluster.run([Task("saving", None, save_when_asked)], None, tmp_path, patient=True))
    assert list(tmp_path.glob("*.saved"))
