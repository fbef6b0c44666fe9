import json
import multiprocessing
import os
import signal
import time

import pytest

from experiments.store import inventory, records
from experiments.store.artifacts import Store
from tests.experiments.store.demo import Demo, make
from tokenizer.errors import UserError


def _write(text):
    def build(folder):
        (folder / "result.txt").write_text(text)
        return {"length": len(text)}

    return build


def _make(store, text="hello", **config):
    return make(store, "demo", config=config, inputs={"corpus": "c" * 64}, build=_write(text))


def test_an_artifact_is_made_once_and_then_found(tmp_path):
    store = Store(tmp_path)
    first, second = _make(store, size=1), _make(store, "something else", size=1)
    assert first.fresh
    assert not second.fresh
    assert second.path == first.path
    assert second.name == f"demo-{second.hash[:12]}"
    assert (second.path / "result.txt").read_text() == "hello"
    assert _make(store, size=2).path != first.path


def test_the_manifest_says_where_it_came_from_and_what_it_cost(tmp_path):
    manifest = json.loads((_make(Store(tmp_path), size=1).path / "manifest.json").read_text())
    assert manifest["stage"] == "demo"
    assert manifest["config"] == {"size": 1}
    assert manifest["inputs"] == {"corpus": "c" * 64}
    assert manifest["contents"] == {"length": 5}
    assert manifest["files"] == {"result.txt": {"bytes": 5, "xxh3_128": "b5e9c1ad071b3e7fc779cfaa5e523818"}}
    assert manifest["seconds"] >= 0
    assert manifest["peak_memory_bytes"] > 1_000_000
    assert {"python", "numpy"} <= set(manifest["versions"])
    assert manifest["command"].startswith("python ")


def test_a_failing_stage_leaves_nothing(tmp_path):
    def build(folder):
        (folder / "half.txt").write_text("half")
        raise UserError("no text")

    with pytest.raises(UserError):
        make(Store(tmp_path), "demo", config={}, inputs={}, build=build)
    assert [path.name for path in tmp_path.iterdir()] == [".locks"]


def test_a_resumable_stage_finds_its_unfinished_folder(tmp_path):
    store, sittings = Store(tmp_path), []

    def build(folder):
        sittings.append((folder / "checkpoint").exists())
        (folder / "checkpoint").write_text("step 7")
        if len(sittings) == 1:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        make(store, "lm", config={}, inputs={}, build=build, resumable=True)
    artifact = make(store, "lm", config={}, inputs={}, build=build, resumable=True)
    assert sittings == [False, True]
    assert set(artifact.manifest.files) == {"checkpoint"}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("shorter", "is damaged: it has 2 bytes, not 5"), ("missing", "is missing"), ("manifest", "is not JSON")],
)
def test_a_damaged_artifact_is_rejected_with_the_remedy(tmp_path, damage, reason):
    path = _make(Store(tmp_path)).path
    if damage == "shorter":
        (path / "result.txt").write_text("he")
    elif damage == "missing":
        (path / "result.txt").unlink()
    else:
        (path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=rf"{reason}.*delete the folder .*demo-"):
        _make(Store(tmp_path))


def test_a_root_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="artifacts="):
        _make(Store(tmp_path / "file"))


def _slow(root, started):
    def build(folder):
        (folder / "half.txt").write_text("half")
        started.set()
        time.sleep(60)
        return {}

    make(Store(root), "demo", config={}, inputs={"corpus": "c" * 64}, build=build)


def test_a_killed_process_frees_its_lock_and_its_files_are_not_used(tmp_path):
    processes = multiprocessing.get_context("spawn")
    started = processes.Event()
    process = processes.Process(target=_slow, args=(tmp_path, started))
    process.start()
    assert started.wait(30)
    (item,) = inventory.take(Store(tmp_path))
    assert item.state == inventory.BUSY
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    (item,) = inventory.take(Store(tmp_path))
    assert item.state == inventory.UNFINISHED
    made = _make(Store(tmp_path))
    assert made.fresh
    assert set(made.manifest.files) == {"result.txt"}


def _appending(root, log):
    def build(folder):
        time.sleep(0.3)
        with log.open("a") as file:
            file.write("made\n")
        (folder / "x").write_text("x")
        return {}

    make(Store(root), "demo", config={}, inputs={}, build=build)


def test_two_processes_do_the_work_once_and_waiting_is_announced(tmp_path):
    waited: list[str] = []
    processes = multiprocessing.get_context("spawn")
    process = processes.Process(target=_appending, args=(tmp_path, tmp_path / "log"))
    process.start()
    while not list(tmp_path.glob(".demo-*.partial")) and process.is_alive():
        time.sleep(0.005)
    artifact = make(Store(tmp_path, on_wait=waited.append), "demo", config={}, inputs={}, build=_write("x"))
    process.join()
    assert waited == [artifact.name]
    assert (tmp_path / "log").read_text() == "made\n"
    assert not artifact.fresh


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[]", "{"])
def test_damaged_records_are_a_users_error(text, tmp_path):
    (tmp_path / "count-0").mkdir()
    for path in (tmp_path / "count-0" / "manifest.json", tmp_path / "run.json"):
        path.write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json (is not JSON|is not a JSON object|nests JSON values)"):
        Store(tmp_path).find("count-0", Demo)
    with pytest.raises(UserError, match=r"run\.json is not the record of a run"):
        records.load(tmp_path / "run.json")


def test_keys_of_another_version_do_not_make_a_record_unreadable(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"folder": "", "overrides": ["a=1"], "stage": "report"}))
    assert records.load(tmp_path / "run.json").overrides == ["a=1"]
