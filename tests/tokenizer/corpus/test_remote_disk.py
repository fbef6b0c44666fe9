"""Files on object storage through the functions that write and read local ones."""

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tokenizer.corpus.endpoint import Endpoint
from tokenizer import UserError, storage
from tokenizer.corpus import remote
from tokenizer.corpus.remote_disk import bucket_path, on_bucket
from tokenizer.durable import move_file, replacing, write_whole
from tokenizer.files import check_free, read_arrays, read_sealed, write_sealed

FAULTS = [500, 503, "cut", 500]


@pytest.fixture
def folder(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(storage, "disk", storage.disk)  # restored at the end
    return bucket_path("s3://me:secret@bucket/tasks/")


def test_only_urls_of_buckets_are_paths_of_objects(folder: Path) -> None:
    assert folder == Path("s3:/bucket/tasks"), "without credentials"
    assert on_bucket(folder / "a")
    assert on_bucket(bucket_path("gs://b/a"))
    assert not on_bucket(bucket_path("/tmp/s3:/a"))
    assert not on_bucket(Path())
    with pytest.raises(UserError, match=r"hf://datasets/a cannot be written; name a folder, s3://BUCKET"):
        bucket_path("hf://datasets/a")


def test_long_reads_take_few_requests(folder: Path, endpoint: Endpoint, tmp_path: Path) -> None:
    block = remote.BLOCK_BYTES
    write_whole(folder / "x.bin", bytes(20 * block))

    def requests() -> int:
        found = sum(method == "GET" and "bytes=" in str(headers) for method, _, headers in endpoint.requests)
        endpoint.requests.clear()
        return found

    requests()
    assert len(storage.disk.read(folder / "x.bin")) == 20 * block
    assert requests() == 20
    with storage.disk.open(folder / "x.bin", "rb") as file:
        for at in range(0, 20 * block, block // 4):  # small pieces in order, as blocks of tokens are read
            file.seek(at)
            file.readinto(bytearray(block // 4))  # type: ignore[attr-defined]
    assert requests() == 20
    move_file(folder / "x.bin", tmp_path / "y.bin")
    assert requests() == 20


@pytest.mark.parametrize("size", [0, 10, 5000, 100_000])
def test_a_file_is_read_as_it_was_written_despite_faults(folder: Path, endpoint: Endpoint, size: int) -> None:
    path, data = folder / "x.bin", os.urandom(size)
    endpoint.upload_faults.extend(FAULTS)
    write_whole(path, data)
    assert endpoint.objects == {"bucket/tasks/x.bin": data}
    endpoint.faults.extend(FAULTS)
    assert storage.disk.read(path) == data
    endpoint.faults.extend(FAULTS)
    with storage.disk.borrowed(path) as local:
        assert local.read_bytes() == data
    assert not local.exists()
    with storage.disk.open(path, "rb") as file:
        file.seek(size // 2)
        assert file.read(3) == data[size // 2 : size // 2 + 3]
        file.seek(1)
        rest = bytearray(max(size - 1, 0))
        assert file.readinto(rest) == len(rest)  # type: ignore[attr-defined]
        assert rest == data[1:]
    assert storage.disk.size(path) == size
    assert stat.S_ISREG(storage.disk.mode(path))


def test_objects_appear_as_a_whole_and_leave_nothing_behind(
    folder: Path, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = folder / "parts" / "a.npz"

    def write() -> None:
        with replacing(path) as file:
            np.savez(file, numbers=np.arange(1000))
            assert not endpoint.objects
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())
    with replacing(path) as file:
        np.savez(file, numbers=np.arange(1000))
    assert (read_arrays(path, "")["numbers"] == np.arange(1000)).all()
    assert not list(tmp_path.iterdir())
    move_file(path, tmp_path / "b.npz")
    assert (read_arrays(tmp_path / "b.npz", "")["numbers"] == np.arange(1000)).all()
    assert not storage.disk.exists(path)


def test_what_is_missing_or_deleted_is_not_found(folder: Path, endpoint: Endpoint) -> None:
    with pytest.raises(FileNotFoundError):
        read_sealed(folder / "a.json")
    storage.disk.make_folder(folder)
    for name in ("a", "b", "c"):
        write_sealed(folder / f"{name}.json", {"value": name})
    assert read_sealed(folder / "b.json") == {"value": "b"}
    storage.disk.remove(folder / "b.json")
    storage.disk.remove(folder / "b.json", missing_ok=True)
    assert [storage.disk.exists(folder / f"{name}.json") for name in "abc"] == [True, False, True]
    storage.disk.remove_folder(folder)
    storage.disk.remove_folder(folder)
    assert not any(endpoint.objects.values())


def test_local_files_are_as_before(folder: Path, tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "text")
    with storage.disk.borrowed(tmp_path / "a") as local:
        assert local == tmp_path / "a"
    assert storage.disk.size(tmp_path / "a") == 4
    storage.disk.rename(tmp_path / "a", tmp_path / "b")
    assert storage.disk.read(tmp_path / "b") == b"text"
    assert 0 < storage.disk.free_bytes(tmp_path / "none" / "yet") < sys.maxsize
    check_free(folder, 10**18, "results", "…")
