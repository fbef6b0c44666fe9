"""The store of artifacts under kills, full disks and damaged files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.store.artifacts import MANIFEST, Store
from tests.experiments.store.demo import Demo, make
from tests.flipping import flips
from tokenizer.errors import UserError
from tokenizer.files import read_sealed, write_sealed

ROOT = Path(__file__).parents[3]


def _build(folder):
    (folder / "inner").mkdir(exist_ok=True)
    (folder / "inner" / "data.bin").write_bytes(bytes(range(256)))
    (folder / "notes.txt").write_text("some text")
    return {"size": 256, "loss": 1.25}


@pytest.mark.parametrize("resumable", [pytest.param(False, marks=pytest.mark.slow), True])
def test_after_a_kill_at_any_change_of_a_file_nothing_finished_is_lost(tmp_path, resumable):
    command = [sys.executable, "-m", "tests.experiments.store.killed", tmp_path, *(["resumable"] if resumable else [])]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 10


@pytest.mark.parametrize(("file", "text"), [(MANIFEST, '{"half": '), ("notes.txt", "longer than before")])
def test_a_stale_manifest_does_not_get_into_the_next_attempt(tmp_path, file, text):
    store = Store(tmp_path)
    finished = make(store, "lm", config={}, inputs={}, build=_build, resumable=True)
    partial = finished.folder.rename(tmp_path / f".{finished.name}.partial")
    (partial / file).write_text(text)
    (half := partial / "inner" / ".model.safetensors.0123abcd.partial").mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    again = make(store, "lm", config={}, inputs={}, build=_build, resumable=True)
    assert again.fresh
    assert set(again.manifest.files) == {"inner/data.bin", "notes.txt"}
    assert Store(tmp_path).find(again.name, Demo) is not None


def test_no_flipped_bit_is_used(tmp_path):
    name = make(Store(tmp_path), "demo", config={"a": 1}, inputs={}, build=_build).name
    used = 0
    for path in sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()):
        for _ in flips(path, 100):
            try:
                artifact = Store(tmp_path, verify="always").find(name, Demo)
                assert artifact.path
            except UserError as error:
                assert "rebuild" in str(error)  # noqa: PT017  (most flips raise, white space does not)
                continue
            assert path.name == MANIFEST
            assert artifact.contents.values == {"size": 256, "loss": 1.25}
            used += 1
    assert used < 40  # flips of white space in the manifest that leave it valid JSON with the same content


@pytest.mark.parametrize(("verify", "noticed"), [("always", True), ("once", True), ("never", False)])
def test_verify_says_when_checksums_are_compared(tmp_path, verify, noticed):
    name = make(Store(tmp_path), "demo", config={}, inputs={}, build=_build).name
    damaged = tmp_path / name / "notes.txt"
    damaged.write_text("Some text")
    artifact = Store(tmp_path, verify=verify).find(name, Demo)
    if noticed:
        with pytest.raises(UserError, match=rf"{damaged} is damaged: its checksum .*delete the folder .*demo-"):
            _ = artifact.path
    else:
        assert artifact.path


def test_files_are_read_once_also_those_that_this_process_made(tmp_path, monkeypatch):
    made = make(Store(tmp_path), "demo", config={}, inputs={}, build=_build)
    read = []
    whole = Store(tmp_path, progress=lambda what, done, total: read.append(f"{done} of {total}")).find(made.name, Demo)
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", lambda *_: pytest.fail("read again"))
        assert whole.path == whole.path
    assert read[:2] == ["256 of 265", "265 of 265"]
    artifact = make(Store(tmp_path / "other", verify="always"), "demo", config={}, inputs={}, build=_build)
    (artifact.folder / "notes.txt").write_text("Some text")
    with pytest.raises(UserError, match="checksum"):
        _ = artifact.path


def test_a_removed_artifact_does_not_come_back(tmp_path, monkeypatch):
    store = Store(tmp_path)
    name = make(store, "demo", config={}, inputs={}, build=_build).name
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # killed after the rename
        store.remove(name)
    assert store.find(name, Demo) is None


@pytest.mark.parametrize("name", ["../../escaped", "device", "no seal"])
def test_names_that_leave_their_folder_and_manifests_without_a_seal_are_rejected(tmp_path, name):
    path = make(Store(tmp_path / "artifacts"), "lm", config={}, inputs={}, build=_build).path
    (tmp_path / "escaped").write_text("some text")
    (path / "device").symlink_to("/dev/zero")  # reading it would never end
    manifest = read_sealed(path / MANIFEST)
    if name == "no seal":
        (path / MANIFEST).write_text(json.dumps(manifest))
    else:
        manifest["files"][name] = manifest["files"]["notes.txt"]
        write_sealed(path / MANIFEST, manifest)
    with pytest.raises(UserError, match=r"(not a plain path inside the folder|is a device|no seal).*delete the folder"):
        Store(tmp_path / "artifacts", verify="always").find(path.name, Demo)
    with pytest.raises(UserError, match="not a plain path inside the folder"):
        Store(tmp_path / "other").find(f"../artifacts/{path.name}", Demo)


def test_a_damaged_sealed_file_is_not_read(tmp_path):
    write_sealed(tmp_path / "x.json", {"n": 3, "text": "é", "share": 0.1})
    assert read_sealed(tmp_path / "x.json") == {"n": 3, "text": "é", "share": 0.1}
    (tmp_path / "x.json").write_text((tmp_path / "x.json").read_text().replace("3", "4", 1))
    with pytest.raises(ValueError, match="seal"):
        read_sealed(tmp_path / "x.json")
