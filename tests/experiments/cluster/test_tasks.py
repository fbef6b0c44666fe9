"""Tasks: finished ones are not run again, lost ones are repeated, silent ones are ended, waiting ones are explained."""

import threading
import time
from collections import Counter

import numpy as np
import pytest

from experiments.cluster import tasks
from experiments.cluster.parts import add_up
from experiments.cluster.tasks import RETRIES, Result, Task
from experiments.config import RunnerConfig
from tests.experiments.cluster.fake_ray import FakeRay, cluster_of
from tokenizer.errors import UserError


class Writing(list):
    """Work that notes what it has done, and returns its argument as an array."""

    def __call__(self, number, beat):
        self.append(number)
        beat(number)
        yield {"number": np.array([number])}
        return {"number": number}


@pytest.mark.parametrize("error", [Exception, RuntimeError])
def test_ray_that_does_not_start_is_one_line(error, monkeypatch):
    ray = pytest.importorskip("ray")

    def init(**_):
        raise error("The node timed out\n  during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match=r"^Ray does not start on this machine: The node timed out during startup"):
        tasks.started(RunnerConfig(name="ray"))


def numbered(n):
    return [Task(f"part-{i}", [i], i, 10) for i in range(n)]


def run(ray, work, n, folder, **settings):
    found = list(cluster_of(ray, **settings).run(work, numbered(n), folder))
    assert [result.value for result in found] == [{"number": i} for i in range(n)]
    assert [[block["number"].tolist() for block in result.blocks()] for result in found] == [[[i]] for i in range(n)]


def test_results_come_in_the_order_of_the_tasks_and_are_not_made_again(tmp_path):
    ray, work = FakeRay(slots=3, part_0=[0.1]), Writing()
    run(ray, work, 9, tmp_path)
    run(ray, work, 12, tmp_path)
    assert sorted(work) == list(range(12))


@pytest.mark.parametrize("damage", ["record", "data", "missing"])
def test_a_damaged_result_is_made_again_or_named(tmp_path, damage):
    work = Writing()
    run(FakeRay(), work, 3, tmp_path)
    record, data = next(tmp_path.glob("part-1-*.json")), next(tmp_path.glob("part-1-*.data"))
    if damage == "record":
        record.write_text(record.read_text()[:-10])
    elif damage == "data":
        data.write_bytes(data.read_bytes()[:-1] + b"x")
        with pytest.raises(UserError, match=r"part-1-.*data is damaged: its checksum .*; delete it, then run the same"):
            run(FakeRay(), work, 3, tmp_path)
    if damage != "record":
        data.unlink()
    run(FakeRay(), work, 3, tmp_path)
    assert sorted(work) == [0, 1, 1, 2]


def test_tasks_that_lose_their_worker_are_repeated_and_a_line_says_so(tmp_path, caplog):
    ray, work = FakeRay(part_1=["lost", "lost"], part_2=["lost"]), Writing()
    run(ray, work, 4, tmp_path)
    assert (ray.attempts["part-1"], ray.attempts["part-2"]) == (3, 2)
    assert sorted(work) == [0, 1, 2, 3]
    assert "task part-1 lost its worker; attempt 3 runs on" in caplog.text
    assert "task part-2 lost its worker; attempt 2 runs on" in caplog.text
    assert "task part-0" not in caplog.text
    ray = FakeRay(part_1=["lost"] * (RETRIES + 1))
    with pytest.raises(UserError, match=r"part-1 was lost again and again .* its worker died; if memory is short, low"):
        run(ray, Writing(), 3, tmp_path / "always")
    assert ray.attempts["part-1"] == RETRIES + 1


def test_an_error_for_the_user_ends_the_run_and_cancels_the_others(tmp_path):
    ray = FakeRay(slots=4, part_1=[5], part_2=[5])

    def fail(number, beat):
        yield from ()
        raise UserError("the text is damaged; write it again")

    with pytest.raises(UserError, match=r"^the text is damaged; write it again$"):
        list(cluster_of(ray).run(fail, numbered(3), tmp_path))
    assert sorted(ray.cancelled) == ["part-1", "part-2"]
    ray.stop.set()


def test_closing_the_results_cancels_what_runs_and_keeps_what_is_finished(tmp_path):
    ray, work = FakeRay(part_1=[20], part_2=[20]), Writing()
    found = cluster_of(ray).run(work, numbered(6), tmp_path)
    assert next(found).value == {"number": 0}
    found.close()
    assert {"part-1", "part-2"} <= set(ray.cancelled)
    ray.stop.set()
    assert Result.of(numbered(1)[0], tmp_path) is not None


def test_a_folder_that_is_not_shared_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"does not see .*gone; set artifacts .* to a folder that all machines"):
        tasks.execute(Writing(), numbered(1)[0], tmp_path / "gone")
    missing = Result({"number": 0}, tmp_path / "part.data", {"part.data": {"bytes": 3}}, [["number"]], 8)
    monkeypatch.setattr(tasks, "execute", lambda *_: missing)
    with pytest.raises(UserError, match=r"this machine does not see .*part\.data, which .*; set artifacts"):
        run(FakeRay(), Writing(), 1, tmp_path)


def test_all_machines_are_asked_whether_they_see_a_folder(tmp_path):
    class Ray(FakeRay):
        unseen = ()

        def nodes(self):
            return [{"NodeID": str(i), "Alive": i < 3, "Resources": {"CPU": 2}} for i in range(4)]

        def sent(self, arguments):
            work, task, folder = arguments
            return work, task, folder / "elsewhere" if task.identity in self.unseen else folder

    ray = Ray()
    cluster_of(ray).check_folder(tmp_path)
    assert ray.submitted == ["look"] * 3
    ray.unseen = [2]
    with pytest.raises(UserError, match=r"does not see .*elsewhere; set artifacts .* to a folder that all machines"):
        cluster_of(ray).check_folder(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_bytes_of_finished_and_running_tasks_are_reported(tmp_path):
    seen = []

    def slowly(number, beat):
        for done in (2, 5, 7):
            time.sleep(0.1)
            beat(done)
        time.sleep(0.2)
        yield from ()
        return number

    list(cluster_of(FakeRay(slots=4)).run(slowly, numbered(2), tmp_path, seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 20
    assert any(0 < done < 20 for done in seen)


def test_a_silent_task_is_ended_and_a_waiting_one_is_not(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tasks, "BEAT_SECONDS", 0.1)
    started, stop = Counter(), threading.Event()

    def silent(number, beat):
        started[number] += 1
        if number == 0 and started[0] < 3:
            stop.wait(20)
        yield from ()
        return {"number": number}

    ray = FakeRay(slots=4, part_1=[1.5])
    found = list(cluster_of(ray, timeout_s=1).run(silent, numbered(2), tmp_path))
    assert [result.value["number"] for result in found] == [0, 1]
    assert ray.cancelled == ["part-0"] * 2
    assert caplog.text.count("task part-0 on ") == 2
    assert "was ended: it showed no progress for runner.timeout_s=1 seconds" in caplog.text
    assert "task part-1 on" not in caplog.text
    assert ray.attempts == {"part-0": 3, "part-1": 1}
    monkeypatch.setattr(tasks, "RETRIES", 0)
    started.clear()
    with pytest.raises(UserError, match=r"part-0 was ended 1 times: .*runner\.timeout_s=1 .* set it to null"):
        list(cluster_of(FakeRay(), timeout_s=1).run(silent, numbered(2), tmp_path / "always"))
    stop.set()


def test_a_worker_that_hangs_before_its_first_sign_of_life_is_noticed(tmp_path, monkeypatch, caplog):
    """Tasks start in order, so one that has not started after a later one does not wait for a worker."""
    monkeypatch.setattr(tasks, "BEAT_SECONDS", 0.1)
    ray = FakeRay(slots=4, part_0=[20])
    found = list(cluster_of(ray, timeout_s=1).run(Writing(), numbered(4), tmp_path))
    ray.stop.set()
    assert [result.value["number"] for result in found] == [0, 1, 2, 3]
    assert ray.cancelled == ["part-0"]
    assert caplog.text.count("task part-0 on an unknown machine was ended: it showed no progress") == 1


@pytest.mark.parametrize("free", [0, 1])
def test_an_only_task_that_does_not_start_hangs_if_there_is_room_and_otherwise_a_line_says_that_it_waits(
    tmp_path, monkeypatch, caplog, free
):
    monkeypatch.setattr(tasks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(tasks, "WAIT_SECONDS", 1)
    ray = FakeRay(part_0=[2.5])
    ray.free = free
    run(ray, Writing(), 1, tmp_path, timeout_s=1)
    ray.stop.set()
    assert bool(ray.cancelled) == bool(free)
    waits = "1 tasks have waited for 1 seconds, each for 1 CPUs and 0 GPUs (free: 0 of 2 CPUs). Other programs use"
    assert caplog.text.count(waits) == 1 - free


def test_sums_ask_for_memory(tmp_path):
    """A multiple of what the results take that they add up, and at most what a machine has that runs tasks."""
    for most in (1 << 40, 100):
        ray, folder = FakeRay(memory=most), tmp_path / str(most)
        cluster = cluster_of(ray)
        results = list(cluster.run(Writing(), numbered(9), folder))
        add_up(cluster, "fragments", results, lambda group, beat: Writing()(len(group), beat), folder, None)
        assert [ray.memory[name] for name in sorted(ray.memory)] == [min(most, 6 * 8 * n) for n in (8, 1, 2)]


def test_that_no_machine_is_large_enough_is_said(tmp_path, caplog):
    for threads in (1, 4):
        list(cluster_of(FakeRay(), threads=threads).run(Writing(), numbered(2), tmp_path / str(threads)))
        waits = f"2 tasks wait: no machine of the Ray cluster has {threads} CPUs and 0 GPUs, which each takes"
        assert caplog.text.count(waits) == int(threads > 2)
