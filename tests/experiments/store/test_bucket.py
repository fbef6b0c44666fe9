"""Artifacts in a loopback bucket, with failing requests and killed processes."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from experiments.cli import main
from experiments.results import Folder
from experiments.store.artifacts import Store
from experiments.store.bucket import CACHE, BucketStore
from tests.experiments.store.demo import make
from tests.tokenizer.corpus.endpoint import SECRETS
from tokenizer.corpus import remote
from tokenizer.errors import UserError
from tokenizer.files import read_sealed, write_sealed

if TYPE_CHECKING:
    from tests.tokenizer.corpus.endpoint import Endpoint

URL = "s3://bucket/some/prefix"
FILES = {"a.txt": b"hello", "deep/b.gz": bytes(range(256)) * 100, "deep/empty": b""}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches in the test's own folder."""
    monkeypatch.setenv(CACHE, str(tmp_path / "caches"))


def build(folder: Path) -> dict[str, Any]:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return {"size": 1}


def made(store: Store, stage: str = "lm", build: Any = build, **config: Any) -> Any:
    return make(store, stage, config=config, inputs={}, build=build)


def not_again(_: Path) -> dict[str, Any]:
    raise AssertionError("built again")


def other_machine(tmp_path: Path, name: str = "other", **options: Any) -> Store:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(tmp_path / name))
        return Store.at(URL, **options)


def contents(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    del found["manifest.json"]
    return found


@pytest.mark.parametrize("fault", [None, 500, 503, 429, "cut", "slow"])
def test_an_artifact_is_found_on_another_machine(fault: Any, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.upload_faults.extend([fault, None] * 2 if fault else [])
    first = made(Store.at(URL))
    assert first.fresh
    assert not endpoint.upload_faults
    endpoint.faults.extend([fault, None] * 4 if fault else [])
    second = made(other_machine(tmp_path), build=not_again)
    assert (second.fresh, second.contents, second.hash) == (False, first.contents, first.hash)
    assert not second.folder.exists()  # only the manifest was read
    assert contents(second.path) == FILES
    assert not endpoint.faults
    manifests = [(each.folder / "manifest.json").read_bytes() for each in (first, second)]
    assert manifests[0] == manifests[1] == endpoint.objects[f"bucket/some/prefix/{first.name}/manifest.json"]
    assert not any(secret in manifests[0].decode() for secret in SECRETS)


def test_the_manifest_is_written_last_and_large_files_in_parts(endpoint: Endpoint) -> None:
    large = bytes(range(256)) * (12 << 12)

    def build(folder: Path) -> dict[str, Any]:
        (folder / "large").write_bytes(large)
        return {}

    endpoint.upload_faults.extend([None, 500, "cut"])
    artifact = made(Store.at(URL), build=build)
    written = [path for method, path, _ in endpoint.requests if method in ("PUT", "POST")]
    assert artifact.name in written[-1]
    assert "manifest.json" in written[-1]
    assert not any("manifest.json" in path for path in written[:-3])
    assert large in endpoint.objects.values()


@pytest.mark.slow
def test_a_failed_upload_resumes_without_building_again(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    endpoint.upload_faults.extend([503] * 200)
    with pytest.raises(
        UserError, match=rf"{URL}/lm-\w+/\w+/.*: cannot be written after 2 attempts.*run the same"
    ) as error:
        made(Store.at(URL))
    assert not any(secret in str(error.value) for secret in SECRETS)
    endpoint.upload_faults.clear()
    assert other_machine(tmp_path).names("lm-") == []
    made(Store.at(URL), build=not_again)
    assert contents(other_machine(tmp_path).open_all(Store.at(URL).names("lm-"), Folder)[0].path) == FILES


def test_a_prefix_without_a_manifest_is_unfinished(endpoint: Endpoint, tmp_path: Path) -> None:
    name = made(Store.at(URL)).name
    del endpoint.objects[f"bucket/some/prefix/{name}/manifest.json"]
    assert made(other_machine(tmp_path)).fresh
    assert Store.at(URL).names("lm-") == [name]


def test_uploads_of_two_machines_do_not_mix(endpoint: Endpoint, tmp_path: Path) -> None:
    """The second machine builds something else under the name, and uploads it before the first one does."""
    one, two = Store.at(URL), other_machine(tmp_path)
    assert isinstance(one, BucketStore)
    transfer = one._transfer

    def interleaved(*arguments: Any) -> None:
        made(two, build=lambda folder: {"size": (folder / "a.txt").write_text("HELLO")})
        transfer(*arguments)

    one._transfer = interleaved  # type: ignore[method-assign]
    assert made(one).fresh
    third = other_machine(tmp_path, "third")
    assert contents(made(third, build=not_again).path) == FILES


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "deep/../../escaped"])
def test_names_in_a_manifest_of_the_bucket_stay_in_the_cache(name: str, endpoint: Endpoint, tmp_path: Path) -> None:
    artifact = made(Store.at(URL))
    manifest = read_sealed(artifact.folder / "manifest.json")
    manifest["files"][name] = manifest["files"]["a.txt"]
    write_sealed(tmp_path / "forged.json", manifest)
    forged = (tmp_path / "forged.json").read_bytes()
    prefix = f"some/prefix/{artifact.name}/{hashlib.sha256(forged).hexdigest()[:12]}"
    for key, content in list(endpoint.objects.items()):
        if key.endswith("manifest.json"):
            endpoint.objects[key] = forged
        else:
            endpoint.objects[f"bucket/{prefix}/{key.split('/', 5)[-1]}"] = content
    endpoint.objects[f"bucket/{prefix}/{name}"] = FILES["a.txt"]
    with pytest.raises(UserError, match="not a plain path inside the folder"):
        assert made(other_machine(tmp_path), build=not_again).path
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]


def test_damage_in_the_bucket_is_an_error(endpoint: Endpoint, tmp_path: Path) -> None:
    made(Store.at(URL))
    (key,) = (key for key in endpoint.objects if key.endswith("a.txt"))
    endpoint.objects[key] = b"HELLO"
    artifact = made(other_machine(tmp_path), build=not_again)
    with pytest.raises(UserError, match=rf"a.txt is damaged.*delete {URL}/lm-.* in the bucket"):
        _ = artifact.path
    endpoint.objects[key] = b"hello"
    assert contents(artifact.path) == FILES


@pytest.mark.slow
@pytest.mark.parametrize("what", ["upload", "download"])
def test_a_killed_transfer_resumes(
    what: str, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from experiments.store.artifacts import Store\n"
        "from tests.experiments.store.demo import make\n"
        "def build(folder):\n"
        "    Path(sys.argv[1]).open('a').write('x')\n"
        "    for i in range(20):\n"
        "        (folder / f'{i:02}').write_bytes(b'%d' % i * 10000)\n"
        "    return {}\n"
        f"store = Store.at({URL!r})\n"
        "print(make(store, 'lm', config={}, inputs={}, build=build).path)\n"
    )
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    arguments = [sys.executable, "-c", program, str(tmp_path / "built")]

    def run() -> Path:
        return Path(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip())

    if what == "download":
        shutil.copytree(run(), tmp_path / "first")
        shutil.rmtree(tmp_path / "cache")
    before = len(endpoint.requests)
    endpoint.delay = 0.1
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        ready = "PUT" if what == "upload" else "GET"
        while sum(method == ready for method, path, _ in endpoint.requests[before:] if "manifest" not in path) < 8:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    endpoint.delay = 0.0
    time.sleep(0.2)  # requests in flight
    assert any(key.endswith("manifest.json") for key in endpoint.objects) == (what == "download")
    folder, again = run(), len(endpoint.requests)
    assert (tmp_path / "built").read_text() == "x"
    assert contents(folder) == {f"{i:02}": b"%d" % i * 10000 for i in range(20)}
    fresh = other_machine(tmp_path)
    assert contents(fresh.open_all(fresh.names("lm-"), Folder)[0].path) == contents(folder)
    if what == "download":
        assert contents(tmp_path / "first") == contents(folder)
        data = [path for method, path, _ in endpoint.requests[before:again] if method == "GET" and "/lm-" in path]
        assert len(data) < 20 + 8  # files of the killed attempt are not read again


def test_status_lists_a_bucket_and_removes_nothing_there(
    endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(Store.at(URL))
    monkeypatch.setenv(CACHE, str(tmp_path / "other"))
    assert main.run(["status", f"artifacts={URL}", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["n_bytes"] == sum(map(len, FILES.values()))
    assert main.run(["status", "--clean", f"artifacts={URL}", "--yes"]) == 2
    assert "nothing is removed there" in capsys.readouterr().err
    assert other_machine(tmp_path).names("lm-") == [row["name"]]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("hf://datasets/a/b", "write a folder, s3://BUCKET/PREFIX or gs://"),
        ("https://me:pw@host/a?sig=X", "artifacts=https://host/a: write"),
        ("s3://bucket/*", "write a folder"),
        ("s3://", "write a folder"),
    ],
)
def test_wrong_urls_are_errors(where: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Store.at(where)
