import json
import multiprocessing

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


def test_an_artifact_is_made_once_and_its_manifest_says_where_it_came_from(tmp_path):
    store = Store(tmp_path)
    first, second = _make(store, size=1), _make(store, "something else", size=1)
    assert (first.fresh, second.fresh) == (True, False)
    assert first.path == second.path == tmp_path / f"demo-{second.hash[:12]}"
    assert (second.path / "result.txt").read_text() == "hello"
    assert _make(store, size=2).path != first.path
    manifest = json.loads((first.path / "manifest.json").read_text())
    expected = {"stage": "demo", "config": {"size": 1}, "inputs": {"corpus": "c" * 64}, "contents": {"length": 5}}
    expected["files"] = {"result.txt": {"bytes": 5, "xxh3_128": "b5e9c1ad071b3e7fc779cfaa5e523818"}}
    assert {key: manifest[key] for key in expected} == expected
    assert manifest["seconds"] >= 0
    assert manifest["peak_memory_bytes"] > 1_000_000
    assert {"python", "numpy"} <= set(manifest["versions"])
    assert manifest["command"].startswith("python ")


@pytest.mark.parametrize(("resumable", "left"), [(False, [".locks"]), (True, [".demo", ".locks"])])
def test_only_a_resumable_stage_leaves_and_finds_its_unfinished_folder(resumable, left, tmp_path):
    store, sittings = Store(tmp_path), []

    def build(folder):
        sittings.append((folder / "checkpoint").exists())
        (folder / "checkpoint").write_text("step 7")
        if len(sittings) == 1:
            raise UserError("no text")
        return {}

    with pytest.raises(UserError):
        make(store, "demo", config={}, inputs={}, build=build, resumable=resumable)
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == left
    artifact = make(store, "demo", config={}, inputs={}, build=build, resumable=resumable)
    assert sittings == [False, resumable]
    assert set(artifact.manifest.files) == {"checkpoint"}


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("result.txt", "he", "is damaged: it has 2 bytes, not 5"),
        ("result.txt", None, "is missing"),
        ("manifest.json", "{", "is not JSON"),
    ],
)
def test_a_damaged_artifact_is_rejected_with_the_remedy(tmp_path, file, content, reason):
    path = _make(Store(tmp_path)).path / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(UserError, match=rf"{reason}.*delete the folder .*demo-"):
        _make(Store(tmp_path))


def _hold(root, started, go):
    def build(folder):
        (folder / "other.txt").write_text("other")
        started.set()
        go.wait()
        return {}

    make(Store(root), "demo", config={}, inputs={"corpus": "c" * 64}, build=build)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_process_that_waits_makes_only_what_the_other_was_killed_in(tmp_path, killed):
    processes, waited = multiprocessing.get_context("spawn"), []
    started, go = processes.Event(), processes.Event()
    process = processes.Process(target=_hold, args=(tmp_path, started, go))
    process.start()
    assert started.wait(300)
    assert [item.state for item in inventory.take(Store(tmp_path))] == [inventory.BUSY]

    def on_wait(name):
        waited.append(name)
        process.kill() if killed else go.set()

    made = _make(Store(tmp_path, on_wait=on_wait))
    process.join()
    assert waited == [made.name]
    assert (made.fresh, set(made.manifest.files)) == (killed, {"result.txt" if killed else "other.txt"})


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[]", "{"])
def test_damaged_records_are_a_users_error(text, tmp_path):
    (tmp_path / "count-0").mkdir()
    for path in (tmp_path / "count-0" / "manifest.json", tmp_path / "run.json"):
        path.write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json (is not JSON|is not a JSON object|nests JSON values)"):
        Store(tmp_path).find("count-0", Demo)
    with pytest.raises(UserError, match=r"run\.json is not the record of a run"):
        records.load(tmp_path / "run.json")
    # Keys of another version do not make a record unreadable.
    (tmp_path / "run.json").write_text(json.dumps({"folder": "", "overrides": ["a=1"], "stage": "report"}))
    assert records.load(tmp_path / "run.json").overrides == ["a=1"]
    with pytest.raises(UserError, match="artifacts="):
        _make(Store(tmp_path / "run.json"))
