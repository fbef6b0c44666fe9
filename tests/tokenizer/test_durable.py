"""Writing and reading on a disk that fails."""

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest

from lm.evaluate.bits_per_byte import FORMAT_VERSION, Evaluation
from tokenizer.durable import new_folder, remove_leftovers, replacing_path, write_whole
from tokenizer.errors import UserError
from tokenizer.files import checksum, read_arrays, read_bytes
from tokenizer.train.counting import PretokenCounts

UNREADABLE = {errno.EIO: "/proc/self/mem", errno.ELOOP: "loop"}
"""Targets of symbolic links that fail: a file whose first byte cannot be read, and the link itself."""


@pytest.mark.skipif(not Path(UNREADABLE[errno.EIO]).exists(), reason="needs Linux")
@pytest.mark.parametrize(
    ("load", "fault", "named"),
    [
        (lambda folder: PretokenCounts.load(folder / "counts.parquet"), errno.ELOOP, True),
        (lambda folder: read_arrays(folder / "arrays.npz", "delete it"), errno.EIO, False),
        (lambda folder: checksum(folder / "arrays.npz"), errno.EIO, True),
        (lambda folder: read_bytes(folder / "arrays.npz"), errno.EIO, True),
        (Evaluation.load, errno.EIO, False),
        (Evaluation.load, errno.ELOOP, True),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_is_not_reported_as_damage(load, fault, named, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for name in ("counts.parquet", "arrays.npz", "documents.npz"):
        (tmp_path / name).symlink_to(UNREADABLE[fault])
    (tmp_path / "evaluation.json").write_text(json.dumps({"format_version": FORMAT_VERSION}))
    with pytest.raises(OSError, match=re.escape(os.strerror(fault))) as caught:
        load(tmp_path)
    assert caught.value.errno == fault
    if named:
        assert str(tmp_path) in str(caught.value.filename)


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_file_is_old_or_new_and_the_error_names_it(failing, tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("old")

    def fail(source, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(source)] if failing == "replace" else []))

    resource = pytest.importorskip("resource")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with monkeypatch.context() as patch:
        if failing == "write":
            resource.setrlimit(resource.RLIMIT_FSIZE, (2, unlimited[1]))
        else:
            patch.setattr(os, failing, fail)
        try:
            with pytest.raises(OSError, match=r"No space|File too large") as caught:
                write_whole(path, "new")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert str(path.parent) in str(caught.value.filename)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_files_and_folders_are_synced_before_and_after_their_rename(tmp_path, monkeypatch):
    steps = []
    replace = os.replace

    def renamed(source, target):
        steps.append(f"rename {Path(target).name}")
        replace(source, target)

    def synced(handle):
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name.split('.')[-1]}")

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    write_whole(tmp_path / "x", "content")
    assert steps == ["sync x", "rename x", f"sync {tmp_path.name}"]
    with new_folder(tmp_path / "folder") as partial:
        (partial / "y").touch()
    assert steps[3:] == ["sync y", "sync partial", "rename folder", f"sync {tmp_path.name}"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks no folders")
def test_a_writer_removes_what_dead_ones_left_and_nothing_of_a_live_one(tmp_path):
    dead, other = tmp_path / ".x.0123abcd.partial", tmp_path / ".y.0123abcd.partial"
    for folder in (dead / "inner", other):
        folder.mkdir(parents=True)
    with new_folder(tmp_path / "x") as alive:
        assert not dead.exists()
        with pytest.raises(UserError, match="another process is writing"), new_folder(tmp_path / "x"):
            pass
        (alive / "file").touch()
    dead.mkdir()
    write_whole(tmp_path / "x" / "file", "new")
    with replacing_path(tmp_path / "z") as first, replacing_path(tmp_path / "z") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "z").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == [dead.name, other.name, "x", "z"]
    assert not remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "x", "z"]


def test_a_new_folder_does_not_replace_files_that_appear_meanwhile(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()

    def write(other):
        with new_folder(path) as partial:
            (partial / "new").touch()
            if other:
                (path / "other").touch()

    with pytest.raises(UserError, match="folder already exists"):
        write(other=True)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder", "other"]
    (path / "other").unlink()
    write(other=False)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder", "new"]
