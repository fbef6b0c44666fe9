"""Artifacts in a loopback bucket, with failing requests and killed processes."""

import gc
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.store.artifacts import Store
from experiments.store.bucket import CACHE
from tests.experiments.store.demo import Demo, make
from tests.properties import quick_first
from tests.tokenizer.corpus.endpoint import SECRETS
from tokenizer.corpus import remote
from tokenizer.errors import UserError
from tokenizer.files import read_sealed, write_sealed

URL = "s3://bucket/some/prefix"
FILES = {"a.txt": b"hello", "deep/b.gz": bytes(range(256)) * 100, "deep/empty": b"", "empty": b""}


FAULTS = [503, "cut", "slow"]


def store(machine, **options):
    """The store of one machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(machine))
        return Store.at(URL, **options)


def build(folder):
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return {"size": 1}


def made(store, build=build):
    return make(store, "lm", config={}, inputs={}, build=build)


def not_again(_):
    raise AssertionError("built again")


def contents(folder):
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files["manifest.json"]
    return files


@pytest.mark.parametrize(
    "fault", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in (503, "cut", "slow"))]
)
def test_an_artifact_is_found_on_another_machine(fault, endpoint, tmp_path):
    endpoint.upload_faults.extend([fault, None] * 2 if fault else [])
    first = made(store(tmp_path / "one"))
    assert first.fresh
    assert not endpoint.upload_faults
    endpoint.faults.extend([fault, None] * 4 if fault else [])
    second = made(store(tmp_path / "two"), not_again)
    assert (second.fresh, second.contents, second.hash) == (False, first.contents, first.hash)
    assert not second.folder.exists()  # only the manifest was read
    assert contents(second.path) == FILES
    assert not endpoint.faults
    manifests = [(each.folder / "manifest.json").read_bytes() for each in (first, second)]
    assert manifests[0] == manifests[1] == endpoint.objects[f"bucket/some/prefix/{first.name}/manifest.json"]
    assert not any(secret in manifests[0].decode() for secret in SECRETS)
    assert store(tmp_path / "three").names("lm-") == [first.name]


def test_the_manifest_is_written_last_and_a_failed_upload_resumes_without_building_again(
    endpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    endpoint.upload_faults.extend([503] * 100)
    message = rf"{URL}/lm-\w+/\w+: cannot be written after 2 attempts.*run the same command again"
    with pytest.raises(UserError, match=message) as error:
        made(store(tmp_path / "one"))
    assert not any(secret in str(error.value) for secret in SECRETS)
    while len(endpoint.upload_faults) > 100 - 3 * 2 * 3:  # three objects: our attempts, each of three by pyarrow
        time.sleep(0.01)
    endpoint.upload_faults.clear()
    name = made(store(tmp_path / "one"), not_again).name
    assert contents(made(store(tmp_path / "two"), not_again).path) == FILES
    written = [path for method, path, _ in endpoint.requests if method == "PUT"]
    assert [path for path in written if "manifest.json" in path] == written[-1:]
    del endpoint.objects[f"bucket/some/prefix/{name}/manifest.json"]
    assert store(tmp_path / "three").find(name, Demo) is None
    assert made(store(tmp_path / "three")).fresh


def test_two_machines_upload_one_artifact(endpoint, tmp_path, monkeypatch):
    """The second machine makes it with other content, as times in its files differ, while the first one uploads."""
    upload = remote.upload

    def interleaved(path, url):
        monkeypatch.setattr(remote, "upload", upload)
        made(store(tmp_path / "two"), lambda folder: {"size": (folder / "a.txt").write_text("HELLO")})
        upload(path, url)

    monkeypatch.setattr(remote, "upload", interleaved)
    assert made(store(tmp_path / "one")).fresh
    assert contents(made(store(tmp_path / "three"), not_again).path) == FILES


@pytest.mark.slow
def test_damage_in_the_bucket_is_an_error(endpoint, tmp_path):
    name = made(store(tmp_path / "one")).name
    (key,) = (key for key, content in endpoint.objects.items() if content == b"hello")
    artifact, other = made(store(tmp_path / "two"), not_again), store(tmp_path / "three")
    for damage in (b"HELLO", b"hell"):
        endpoint.objects[key] = damage
        with pytest.raises(UserError, match=rf"a.txt is damaged.*delete the folder {URL}/{name} and run"):
            _ = artifact.path
    assert not artifact.folder.exists()
    endpoint.objects[key] = b"hello"
    assert contents(artifact.path) == FILES
    manifest = read_sealed(artifact.folder / "manifest.json")
    manifest["files"]["../../escaped"] = manifest["files"]["a.txt"]
    write_sealed(tmp_path / "forged.json", manifest)
    key = f"bucket/some/prefix/{name}/manifest.json"
    whole, endpoint.objects[key] = endpoint.objects[key], (tmp_path / "forged.json").read_bytes()
    with pytest.raises(UserError, match="not a plain path inside the folder"):
        assert made(store(tmp_path / "four"), not_again).path
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]
    endpoint.objects[key] = whole + b" {"
    with pytest.raises(UserError, match=rf"manifest.json is not JSON.*delete the folder {URL}/{name} and run"):
        other.find(name, Demo)


def test_status_shows_and_removes_only_copies(endpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(CACHE, str(tmp_path))
    artifact, objects = made(store(tmp_path)), dict(endpoint.objects)
    assert main.run(["status", "--clean", "--yes", f"artifacts={URL}"]) == 0
    assert artifact.name in capsys.readouterr().out
    assert (artifact.folder.exists(), endpoint.objects) == (False, objects)
    assert contents(made(store(tmp_path), not_again).path) == FILES


def transfer(machine, built):
    """Make an artifact of 20 files; note that it was built, and print its folder."""

    def build(folder):
        with Path(built).open("a") as file:
            file.write("x")
        for i in range(20):
            (folder / f"{i:02}").write_bytes(b"%d" % i * 10000)
        return {}

    print(made(store(Path(machine)), build).path)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["PUT", "GET"])
def test_a_killed_transfer_resumes(what, endpoint, tmp_path):
    program = "import sys; from tests.experiments.store.test_bucket import transfer; transfer(*sys.argv[1:])"

    def arguments(machine):
        return [sys.executable, "-c", program, tmp_path / machine, tmp_path / "built"]

    def sent():
        return sum(method == what and "manifest" not in path for method, path, _ in endpoint.requests[before:])

    if what == "GET":
        subprocess.run(arguments("one"), check=True)
    before = len(endpoint.requests)
    endpoint.delay = 0.1
    with subprocess.Popen(arguments("two"), stdout=subprocess.PIPE) as process:
        while sent() < 12:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    endpoint.delay = 0.0
    time.sleep(0.2)  # requests in flight
    assert any(key.endswith("manifest.json") for key in endpoint.objects) == (what == "GET")
    folder = Path(subprocess.run(arguments("two"), capture_output=True, text=True, check=True).stdout.strip())
    assert (tmp_path / "built").read_text() == "x"
    assert contents(folder) == {f"{i:02}": b"%d" % i * 10000 for i in range(20)}
    if what == "PUT":
        assert sent() < 20 + 8  # complete files are not written again
    assert contents(made(store(tmp_path / "three"), not_again).path) == contents(folder)


@pytest.mark.parametrize(("faults", "size"), quick_first([([403], 100), ([None, 403], 12_000_000)]))
def test_an_object_appears_whole_or_not_at_all(faults, size, endpoint, tmp_path, monkeypatch):
    """Closing the stream of an upload that failed completes a truncated object."""
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 23)
    path, before = tmp_path / "a.bin", b"the version before"
    path.write_bytes(random.Random(0).randbytes(size))
    endpoint.objects["bucket/a.bin"] = before
    endpoint.upload_faults.extend(faults)
    with suppress(UserError):
        remote.upload(path, "s3://bucket/a.bin")
    gc.collect()
    assert endpoint.objects["bucket/a.bin"] in (before, path.read_bytes())
    endpoint.upload_faults.clear()
    remote.upload(path, "s3://bucket/a.bin")
    assert endpoint.objects["bucket/a.bin"] == path.read_bytes()


@pytest.mark.parametrize(
    "url", ["hf://datasets/a/b", "https://me:pw@host/a?sig=X", "s3://bucket/*", "s3://", "s3://me:pw@b"]
)
def test_wrong_urls_are_errors(url):
    with pytest.raises(UserError, match="write a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX") as error:
        Store.at(url)
    assert "me:pw" not in str(error.value)
