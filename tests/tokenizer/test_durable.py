"""Writing and reading on a disk that fails."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from lm.evaluate.bits_per_byte import FORMAT_VERSION, Evaluation
from tests.injection import FAULTS, FaultyDisk
from tokenizer import Batch, count_pretokens, storage
from tokenizer.checksums import checksum
from tokenizer.durable import new_folder, write_whole
from tokenizer.files import read_bytes
from tokenizer.train.checkpoint import Checkpoint
from tokenizer.train.counting import PretokenCounts


def _counts(folder: Path) -> None:
    PretokenCounts.load(folder / "counts.parquet")


def _checkpoint(folder: Path) -> None:
    Checkpoint(folder / "merges.npz", "identity", 1.0).load()


def _evaluation(folder: Path) -> None:
    Evaluation.load(folder)


@pytest.mark.parametrize("load", [_counts, _checkpoint, _evaluation])
def test_an_error_of_the_disk_is_not_reported_as_damage(
    load: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_pretokens([Batch.from_texts(["a b"])], "gpt2").save(tmp_path / "counts.parquet")
    for name in ("merges.npz", "documents.npz"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "evaluation.json").write_text(json.dumps({"format_version": FORMAT_VERSION}))
    reading = 2 if load is _evaluation else 0  # the evaluation's JSON file is opened and read first
    monkeypatch.setattr(storage, "disk", FaultyDisk(reading, "eio"))
    with pytest.raises(OSError, match="Input/output") as caught:
        load(tmp_path)
    assert caught.value.errno == errno.EIO
    assert str(tmp_path) in str(caught.value.filename)


@pytest.mark.parametrize("read", [checksum, read_bytes])
def test_an_error_while_reading_names_the_file(read: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"content")
    monkeypatch.setattr(storage, "disk", FaultyDisk(1, "eio"))  # after opening it
    with pytest.raises(OSError, match="Input/output") as caught:
        read(tmp_path / "x")
    assert caught.value.filename == str(tmp_path / "x")


@pytest.mark.parametrize("fault", ["full", "short", "eio"])
def test_a_file_is_old_or_new_and_the_error_names_it(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    operations = []
    with monkeypatch.context() as patch:
        patch.setattr(storage, "disk", FaultyDisk(on_operation=lambda name, _: operations.append(name)))
        write_whole(path, "old")
    assert operations == ["create", "write", "sync", "rename", "sync"]
    for at, operation in enumerate(operations):
        if operation not in FAULTS[fault]:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(storage, "disk", FaultyDisk(at, fault))
            with pytest.raises(OSError, match=r"No space|Input/output") as caught:
                write_whole(path, "new")
            assert str(path.parent) in str(caught.value.filename), (at, operation)
        assert path.read_text() == ("old" if at < 4 else "new")
        assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_the_name_of_a_new_folder_is_synced(tmp_path, monkeypatch):
    operations = []
    monkeypatch.setattr(storage, "disk", FaultyDisk(on_operation=lambda name, path: operations.append((name, path))))
    with new_folder(tmp_path / "folder") as partial:
        partial.mkdir()
    assert operations[-1] == ("sync", str(tmp_path))


def test_a_new_folder_does_not_replace_files_that_appear_meanwhile(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()

    def write(other):
        with new_folder(path) as partial:
            partial.mkdir()
            (partial / "new").touch()
            if other:
                (path / "other").touch()

    with pytest.raises(OSError, match="folder"):
        write(other=True)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder", "other"]
    (path / "other").unlink()
    write(other=False)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder", "new"]
