"""Tasks: finished ones are not run again, lost ones are repeated, hanging ones are replaced, slow ones are copied."""

import time
from functools import partial
from pathlib import Path

import pytest

from experiments.cluster import heartbeat, tasks
from experiments.cluster.heartbeat import Heartbeat
from experiments.cluster.tasks import ATTEMPTS, LostError, Task
from experiments.store.cache import cache_of
from tests.experiments.cluster.backend import Threads, cluster_of
from tokenizer.errors import UserError


def write(number: int, shared: str, path: Path) -> dict:
    with (path.parent / "executed").open("a") as file:
        file.write(f"{number}\n")
    path.write_text(f"{shared} {number}")
    return {"number": number}


def fail(shared: object, path: Path) -> dict:
    raise UserError("the text is damaged; write it again")


def numbered(n: int) -> list[Task]:
    return [Task(f"part-{i}", [i], partial(write, i), 10) for i in range(n)]


def executed(folder: Path) -> list[int]:
    return sorted(map(int, (folder / "executed").read_text().split()))


def run(backend, n: int, folder: Path, **settings) -> list[str]:
    results = list(cluster_of(backend, **settings).run(numbered(n), "of", folder))
    assert [result.value for result in results] == [{"number": i} for i in range(n)]
    return [result.data.read_text() for result in results]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(tasks, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(tasks, "_VISIBLE_SECONDS", 0.1)


def test_results_come_in_the_order_of_the_tasks_and_are_not_made_again(tmp_path):
    backend = Threads(slots=3, part_0=[0.1])
    assert run(backend, 9, tmp_path) == [f"of {i}" for i in range(9)]
    assert run(backend, 12, tmp_path) == [f"of {i}" for i in range(12)]
    assert executed(tmp_path) == list(range(12))


def test_a_damaged_record_is_made_again(tmp_path):
    run(Threads(), 3, tmp_path)
    record = next(tmp_path.glob("part-1-*.json"))
    record.write_text(record.read_text()[:-10])
    run(Threads(), 3, tmp_path)
    assert executed(tmp_path) == [0, 1, 1, 2]


def test_tasks_that_lose_their_worker_are_repeated(tmp_path):
    backend = Threads(part_1=["lost"] * 3, part_2=["lost"])
    run(backend, 4, tmp_path)
    assert (backend.submitted.count("part-1"), backend.submitted.count("part-2")) == (4, 2)
    assert executed(tmp_path) == [0, 1, 2, 3]


def test_a_task_that_is_always_lost_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"part-1 failed 12 times .* its worker died; if memory is short, lower"):
        run(Threads(part_1=["lost"] * ATTEMPTS), 3, tmp_path)


def test_losses_of_a_patient_task_that_progresses_are_not_added_up(tmp_path, monkeypatch):
    cluster = cluster_of(Threads(part_1=["lost"] * 2 * ATTEMPTS))
    with pytest.raises(UserError, match="failed 12 times"):
        list(cluster.run(numbered(2), "of", tmp_path / "short", patient=True))
    monkeypatch.setattr(tasks, "_PROGRESS_SECONDS", 0.0)
    cluster = cluster_of(Threads(part_1=["lost"] * 2 * ATTEMPTS))
    assert len(list(cluster.run(numbered(2), "of", tmp_path / "long", patient=True))) == 2


def test_a_hanging_task_is_started_again(tmp_path):
    backend = Threads(part_1=[20])
    run(backend, 4, tmp_path, timeout_s=0.3)
    backend.stop.set()
    assert backend.submitted.count("part-1") == 2


def test_a_slow_task_gets_one_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_LEAST_STRAGGLER_SECONDS", 0.2)
    backend = Threads(part_0=[20])
    run(backend, 5, tmp_path)
    backend.stop.set()
    assert backend.submitted.count("part-0") == 2
    assert backend.cancelled == 1


def test_an_error_for_the_user_ends_the_run_and_cancels_the_others(tmp_path):
    backend = Threads(slots=4, part_1=[5], part_2=[5])
    chosen = [Task("bad", [], fail), *numbered(3)[1:]]
    with pytest.raises(UserError, match=r"^the text is damaged; write it again$"):
        list(cluster_of(backend).run(chosen, None, tmp_path))
    backend.stop.set()
    assert backend.cancelled == 2


def test_closing_the_results_cancels_what_runs_and_keeps_what_is_finished(tmp_path):
    backend = Threads(part_1=[20], part_2=[20])
    results = cluster_of(backend).run(numbered(6), "of", tmp_path)
    assert next(results).value == {"number": 0}
    results.close()
    assert backend.cancelled == 3
    assert executed(tmp_path)[0] == 0
    backend.stop.set()


def test_a_folder_that_is_not_shared_is_an_error(tmp_path):
    def lose(shared: object, path: Path) -> dict:
        return {}

    with pytest.raises(UserError, match=r"does not see; set runner\.folder"):
        list(cluster_of(Threads()).run([Task("part", [], lose)], None, tmp_path))


def test_the_bytes_of_finished_tasks_are_reported(tmp_path):
    seen: list[int] = []
    list(cluster_of(Threads()).run(numbered(7), "of", tmp_path, seen.append))
    assert seen[-1] == 70
    assert seen == sorted(seen)


def test_several_machines_share_a_folder(tmp_path):
    backend = Threads()
    cache = cache_of("s3://bucket/artifacts", str(tmp_path / "cache"))
    with cluster_of(backend).results(cache / "count-1") as parts:
        assert parts == cache / "count-1" / "parts"
    backend.several = True
    message = r"artifacts=s3://bucket/artifacts are in a cache on this machine.*set runner.folder"
    with pytest.raises(UserError, match=message):
        cluster_of(backend).shared(cache)
    with pytest.raises(UserError, match=r"runner.folder=gs://other/tasks: name a folder of a file system"):
        cluster_of(backend, folder="gs://other/tasks").shared(cache)
    with cluster_of(backend, folder=str(tmp_path / "shared")).results(cache / "count-1") as parts:
        assert parts == tmp_path / "shared" / "count-1"
    with cluster_of(backend).results(tmp_path / "artifacts" / "count-1"):
        pass


def hang_once(shared: object, path: Path) -> dict:
    """Report half of the text; hang in the first attempt."""
    beat = Heartbeat(path)
    beat(5)
    if not (path.parent / "attempted").exists():
        (path.parent / "attempted").touch()
        time.sleep(2)
        raise LostError("the task was cancelled")
    return {}


def test_a_patient_task_without_progress_is_started_again_once_it_has_reported_some(tmp_path):
    """The second task waits for longer than the limit before it starts, and is not given up."""
    backend = Threads(waiting=[1.5])
    chosen = [Task("hanging", None, hang_once, 10), Task("waiting", None, report_quarters, 10)]
    results = list(cluster_of(backend).run(chosen, None, tmp_path, patient=True, silence=0.5))
    assert [result.value for result in results] == [{}, {}]
    assert (backend.submitted.count("hanging"), backend.submitted.count("waiting")) == (2, 1)
    assert backend.cancelled == 1


def test_a_patient_task_that_always_hangs_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "ATTEMPTS", 1)
    run = cluster_of(Threads()).run([Task("hanging", None, hang_once)], None, tmp_path, patient=True, silence=0.2)
    with pytest.raises(UserError, match=r"hanging failed 1 times .* no progress for runner.timeout_s=0.2 seconds"):
        list(run)


def report_quarters(shared: object, path: Path) -> dict:
    for done in (2, 5, 7):
        Heartbeat(path)(done)
        time.sleep(0.2)
    path.with_suffix(".progress").write_text('{"do')  # half-written
    time.sleep(0.1)
    return {}


def test_the_progress_of_patient_tasks_is_reported(tmp_path):
    seen: list[int] = []
    chosen = [Task(f"part-{i}", None, report_quarters, 10) for i in range(2)]
    list(cluster_of(Threads()).run(chosen, None, tmp_path, seen.append, patient=True))
    assert {4, 10, 14, 20} <= set(seen)
    assert seen == sorted(seen)


def save_when_asked(shared: object, path: Path) -> dict:
    beat = Heartbeat(path)
    try:
        while True:
            beat(1)
            time.sleep(0.02)
    except KeyboardInterrupt:
        path.with_suffix(".saved").touch()
        raise LostError("it was asked to stop") from None


@pytest.fixture
def _frequent(monkeypatch):
    monkeypatch.setattr(heartbeat, "_INTERVAL_SECONDS", 0.02)


def interrupt_after_a_beat(monkeypatch, again: bool = False):
    """Raise `KeyboardInterrupt` in this process, as Ctrl-C does, and once more while the tasks stop."""
    listen, stop = tasks._Run._listen, heartbeat.ask_to_stop

    def interrupting(state, shared):
        listen(state, shared)
        if any(attempt.heard is not None for attempt in state.attempts.values()):
            raise KeyboardInterrupt

    def asking(folder):
        stop(folder)
        if again:
            raise KeyboardInterrupt

    monkeypatch.setattr(tasks._Run, "_listen", interrupting)
    monkeypatch.setattr(tasks, "ask_to_stop", asking)


@pytest.mark.usefixtures("_frequent")
def test_patient_tasks_may_save_before_they_are_stopped(tmp_path, monkeypatch, caplog):
    interrupt_after_a_beat(monkeypatch)
    backend = Threads(waiting=[100])
    chosen = [Task("saving", None, save_when_asked), Task("waiting", None, save_when_asked)]
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(cluster_of(backend).run(chosen, None, tmp_path, patient=True))
    assert time.monotonic() - begun < heartbeat.STOP_SECONDS / 2
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*.saved")] == ["saving"]
    assert "waiting up to 20 s for 1 tasks to write their checkpoints; Ctrl-C ends them at once" in caplog.text
    assert backend.cancelled == 1, "only the task that had not started: the other ended of itself"
    backend.stop.set()


@pytest.mark.usefixtures("_frequent")
def test_a_second_interrupt_cancels_at_once(tmp_path, monkeypatch):
    interrupt_after_a_beat(monkeypatch, again=True)
    backend = Threads()
    with pytest.raises(KeyboardInterrupt):
        list(cluster_of(backend).run([Task("saving", None, save_when_asked)], None, tmp_path, patient=True))
    assert backend.cancelled == 1
