"""The command `status`, which also removes artifacts."""

import json
import multiprocessing
import os
import shutil
import signal
import threading

import pytest

from experiments.cli import main
from experiments.store import inventory, records
from experiments.store.artifacts import MANIFEST, Store
from tests.experiments.outputs import run_until as run
from tests.experiments.store.demo import make
from tests.properties import quick_first
from tokenizer.files import read_sealed, write_sealed


def _make(store, stage, inputs=None, **contents):
    def build(folder):
        (folder / "data").write_text("x" * 1000)
        return contents

    return make(store, stage, config=contents, inputs=inputs or {}, build=build)


@pytest.fixture
def store(tmp_path):
    """A report with all that it was made of, a model that nothing needs, and one of each kind of damage."""
    store = Store(tmp_path / "artifacts")
    count = _make(store, "count")
    tokenizer = _make(store, "tokenizer", {"counts": count.hash})
    _make(store, "bpe", {"counts": count.hash}, tokenizer=tokenizer.name)
    shards = _make(store, "shards", {"tokenizer": tokenizer.hash})
    lm = _make(store, "lm", {"shards": shards.hash})
    evaluation = _make(store, "evaluation", {"lm": lm.hash})
    _make(store, "report", {"evaluation bpe": evaluation.hash})
    _make(store, "lm", {"shards": shards.hash}, seed=1)
    (_make(store, "count", None, kind="damaged").path / "data").write_text("short")
    (store.root / ".count-0123456789ab.partial").mkdir()
    (store.root / ".lm-0123456789ab.partial").mkdir()
    return store


def _states(store):
    found = {}
    for item in inventory.take(store):
        state = item.state if item.needed or item.state != "whole" else "free"
        found.setdefault(state, []).append(item.name.partition("-")[0])
    return {state: sorted(stages) for state, stages in found.items()}


NEEDED = ["bpe", "count", "evaluation", "lm", "report", "shards", "tokenizer"]
UNFINISHED = ["count", "lm"]


def test_status_shows_state_cost_and_origin(store, capsys):
    assert _states(store) == {"whole": NEEDED, "free": ["lm"], "damaged": ["count"], "unfinished": UNFINISHED}
    assert main.run(["status", f"artifacts={store.root}"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("not needed", "damaged", "unfinished", "pytest", "kB"))
    assert all(len(line) <= 80 for line in out.splitlines() if "─" in line)
    assert f"  {records.command_line()}\n" in out  # on one line
    (item,) = (item for item in inventory.take(store) if item.manifest.stage == "evaluation")
    assert item.needs[0].startswith("lm-")
    # A flipped bit is found on request, and so is a missing manifest.
    evaluation, (tokenizer,) = item.name, store.names("tokenizer-")
    data = store.root / evaluation / "data"
    content = data.read_bytes()
    data.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert main.run(["status", f"artifacts={store.root}"]) == 0
    assert evaluation not in capsys.readouterr().err
    (store.root / tokenizer / "manifest.json").unlink()
    assert main.run(["status", f"artifacts={store.root}", "--verify"]) == 2
    complaint = capsys.readouterr().err
    assert "3 of 11 artifacts are damaged" in complaint
    assert evaluation in complaint
    assert tokenizer in complaint


def test_clean_lists_and_then_removes_unused_artifacts(store, tmp_path, capsys):
    (interrupted := tmp_path / "run").mkdir()
    with records.running(store, interrupted):
        records.Record(str(interrupted), [], started="2026-01-01T00:00:00+00:00").save()
    before = sorted(path.name for path in store.root.iterdir())
    assert main.run(["status", "--clean", f"artifacts={store.root}"]) == 0
    said = capsys.readouterr().out
    assert "2 artifacts" in said
    assert all(f".{stage}-0123456789ab.partial" in said for stage in UNFINISHED)
    assert sorted(path.name for path in store.root.iterdir()) == before
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert _states(store) == {"whole": NEEDED, "unfinished": UNFINISHED}
    assert capsys.readouterr().out.count("unfinished, kept") == 2
    assert main.run(["status", f"artifacts={store.root}"]) == 0
    assert "next:" not in capsys.readouterr().out
    (report,) = store.names("report-")
    shutil.rmtree(store.root / report)
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert _states(store) == {"unfinished": UNFINISHED}
    shutil.rmtree(interrupted)
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert _states(store) == {}


@pytest.mark.slow
def test_artifacts_of_a_run_are_needed_until_its_folder_is_removed(tiny, tmp_path):
    """Among them is the tokenizer with all phase-1 merges, which is no arm's tokenizer."""
    store, used = Store(tmp_path / "artifacts"), []
    for name in ("first", "second"):  # the second run makes nothing
        assert run("train_superbpe", [*tiny, "arms=[superbpe]", f"hydra.run.dir={tmp_path / name}"]) == 0
        used.append(set(json.loads((tmp_path / name / "run.json").read_text())["artifacts"]))
    assert used[0] == used[1] == {path.name for path in store.root.glob("[!.]*")}
    shutil.rmtree(tmp_path / "first")
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert {path.name for path in store.root.glob("[!.]*")} == used[1]
    shutil.rmtree(tmp_path / "second")
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert [path.name for path in store.root.glob("[!.]*")] == []
    assert records.entries(store) == {}


def _hold(root, folder, started):
    def build(_):
        started.set()
        signal.pause()
        return {}

    folder.mkdir()
    with records.running(Store(root), folder):
        make(Store(root), "demo", config={}, inputs={}, build=build)


@pytest.mark.slow
def test_nothing_that_a_live_run_uses_is_removed(store, tmp_path, capsys):
    processes = multiprocessing.get_context("spawn")
    started = processes.Event()
    process = processes.Process(target=_hold, args=(store.root, tmp_path / "run", started))
    process.start()
    assert started.wait(300)
    assert "in work" in _states(store)
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 2
    assert "1 runs are using" in capsys.readouterr().err
    assert len(_states(store)["free"]) == 1
    process.kill()
    process.join()
    assert main.run(["status", "--clean", f"artifacts={store.root}", "--yes"]) == 0
    assert set(_states(store)) == {"whole"}


def _sealed(path, **changes):
    write_sealed(path, read_sealed(path) | changes)


STRAY = {
    "a FIFO": lambda root: os.mkfifo(root / "lm-00000000abcd"),
    "a FIFO as manifest": lambda root: [
        (root / "lm-00000000abcd").mkdir(),
        os.mkfifo(root / "lm-00000000abcd" / MANIFEST),
    ],
    "a dangling link": lambda root: (root / "lm-00000000abcd").symlink_to("nowhere"),
    "a file": lambda root: (root / "count-00000000abcd").touch(),
    "a partial file": lambda root: (root / ".count-00000000abcd.partial").touch(),
    "another partial": lambda root: (root / "x.partial").mkdir(),
    "an empty entry": lambda root: (root / ".runs" / "run-1.json").write_text("{}"),
    "an entry of a number": lambda root: (root / ".runs" / "run-1.json").write_text('{"folder": 5}'),
    "a FIFO as entry": lambda root: os.mkfifo(root / ".runs" / "run-1.json"),
    **{
        f"a manifest with {name}={value!r}": lambda root, name=name, value=value: _sealed(
            min(root.glob("evaluation-*")) / MANIFEST, **{name: value}
        )
        for name, value in [("contents", 5), ("inputs", []), ("seconds", "x"), ("made", None), ("files", {"a": 5})]
    },
    **{
        f"a record with {name}={value!r}": lambda root, name=name, value=value: _record(root, **{name: value})
        for name, value in [("artifacts", 5), ("status", "?"), ("results", []), ("rungs", {}), ("number", "1")]
    },
}


def _record(root, **changes):
    folder = root.parent / "run"
    (root / ".runs" / "run-1.json").write_text(json.dumps({"folder": str(folder)}))
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"folder": str(folder), "overrides": [], **changes}))


@pytest.mark.parametrize("stray", quick_first(sorted(STRAY, key=lambda name: "with" in name), 7))
def test_stray_and_hostile_entries_are_ignored_or_one_line(stray, store, capsys):
    (store.root / ".runs").mkdir(exist_ok=True)
    STRAY[stray](store.root)
    for words in ([], ["--verify"], ["--clean", "--yes"]):
        code = main.run(["status", *words, f"artifacts={store.root}"])
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert (code, len(errors)) in ((0, 0), (2, 1)), words


@pytest.mark.parametrize("name", quick_first(["../..", 5, "missing", "/etc", "..", None, ["x"]], 3))
def test_a_training_record_names_only_artifacts_beside_it(name, store, mistake):
    stored = {"tokenizer": name, "sha256": "", "vocab_size": 1, "corpus": "", "split": "train"}
    record = min(store.root.glob("bpe-*"))
    _sealed(record / MANIFEST, contents=stored)
    for command in ("inspect", "export"):
        assert str(store.root) in mistake(command, record, *(["out", "--to", "hf"] if command == "export" else []))


def test_a_run_that_waits_for_another_in_its_folder_does_not_hold_the_store(tmp_path):
    waiting = threading.Event()
    store = Store(tmp_path / "artifacts", on_wait=lambda _: waiting.set())

    def run():
        with records.running(store, tmp_path):
            pass

    with records.running(store, tmp_path):
        second = threading.Thread(target=run)
        second.start()
        assert waiting.wait(60)
        with store.lock(records.CLEANING, wait=False) as free:
            assert free
    second.join(60)
    assert not second.is_alive()


def test_folders_that_are_not_artifacts_are_errors(tmp_path, mistake, store):
    for command in (["status"], ["status", "--clean"]):
        assert "no such folder" in mistake(*command, f"artifacts={tmp_path / 'nowhere'}")
        assert "write artifacts=FOLDER" in mistake(*command, "artefacts=x")
    assert "add --clean" in mistake("status", store.root, "--yes")
