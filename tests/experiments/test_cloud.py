"""Runs on a loopback bucket: the same results as on local files, and no credentials in any file of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.results import Folder
from experiments.store.artifacts import Store
from tests.experiments.conftest import tiny_overrides
from tests.experiments.outputs import run_until as run
from tests.tokenizer.corpus.endpoint import SECRETS

DOCUMENT = {"text": "the cat sat on the mat, and the dog sat on the log\n" * 3}


@pytest.fixture
def bucket(endpoint, tmp_path: Path) -> Path:
    """Folder of the files that are in s3://bucket/text as well; the second one is damaged."""
    folder = tmp_path / "text"
    folder.mkdir()
    lines = [json.dumps({"text": f"{DOCUMENT['text']}{i}"}) for i in range(500)]
    for i, content in enumerate([lines, [*lines[:250], "damaged", *lines[250:]], lines]):
        (folder / f"{i}.jsonl").write_text("\n".join(content) + "\n")
        endpoint.objects[f"bucket/text/{i}.jsonl"] = (folder / f"{i}.jsonl").read_bytes()
    return folder


def count(folder: Path, *settings: str) -> tuple[int, Path | None]:
    """Run `superbpe count`; return the exit code and the artifact's folder."""
    common = ["corpus=files", "corpus.heldout_fraction=0.1", f"hydra.run.dir={folder}", f"artifacts={folder}/artifacts"]
    code = run("count", [*common, *settings])
    return code, next(iter((folder / "artifacts").glob("count*")), None)


def test_counts_and_skipped_lines_of_a_bucket(bucket: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name, where in (("near", str(bucket)), ("far", "s3://bucket/text/*.jsonl")):
        code, artifact = count(tmp_path / name, f"corpus.paths=['{where}']", "corpus.on_error=skip")
        assert code == 0
        assert artifact is not None
        about = json.loads((artifact / "manifest.json").read_text())
        found[name] = (artifact / "counts.parquet").read_bytes()
        damaged = f"{where.removesuffix('/*.jsonl')}/1.jsonl"
        assert damaged in json.dumps(about)
        assert f"{damaged}: line 251: not a JSON object" in json.dumps(about)
    assert found["near"] == found["far"]
    assert capfd.readouterr().out.count("warning: 1 damaged records or rests of files skipped") == 2
    code, _ = count(tmp_path / "error", "corpus.paths=['s3://bucket/text']")
    assert code == 2
    assert "s3://bucket/text/1.jsonl: line 251: not a JSON object" in capfd.readouterr().err


@pytest.mark.slow
def test_a_signed_url_is_not_stored(
    bucket: Path,
    tmp_path: Path,
    endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = f"{endpoint.url.replace('//', '//me:pw@')}/bucket/text/0.jsonl?X-Amz-Signature=signed"
    code, _ = count(tmp_path / "given", f"corpus.paths=['{url}']")
    assert code == 2
    assert "corpus.paths=['${oc.env:NAME}']" in capfd.readouterr().err
    monkeypatch.setenv("SIGNED", url)
    code, artifact = count(tmp_path / "variable", "corpus.paths=['${oc.env:SIGNED}']", "logger=wandb-offline")
    assert code == 0
    assert artifact is not None
    to = tmp_path / "tokenizer"
    assert main.run(["train", url, "--vocab-size", "300", "--to", str(to), "--threads", "1"]) == 0
    assert f"{endpoint.url}/bucket/text/0.jsonl" in (to / "superbpe.json").read_text()
    output = capfd.readouterr()
    for kept in [
        output.out + output.err,
        *(path.read_text(errors="ignore") for path in tmp_path.rglob("*") if path.is_file()),
    ]:
        assert not any(secret in kept for secret in SECRETS)


@pytest.mark.slow
def test_artifacts_of_a_run_in_a_bucket_equal_local_ones(
    endpoint,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "s3://bucket/artifacts"

    def overrides(name: str, artifacts: str) -> list[str]:
        monkeypatch.setenv("SUPERBPE_CACHE", str(tmp_path / name / "caches"))
        common = [each for each in tiny_overrides(corpus, tmp_path / name) if not each.startswith("artifacts=")]
        return [*common, f"artifacts={artifacts}"]

    def made(store: Store) -> dict[str, Any]:
        artifacts = store.open_all([name for name in store.names("") if name[0] != "."], Folder)
        # The training's duration is in superbpe.json; the tokenizer's hash is in the name.
        return {a.name: {n: file for n, file in a.manifest.files.items() if n != "superbpe.json"} for a in artifacts}

    local = str(tmp_path / "near" / "artifacts")
    assert run("shard", overrides("near", local)) == 0
    endpoint.upload_faults.extend([503, None, "cut", None] * 5)
    assert run("shard", overrides("far", url)) == 0
    assert not endpoint.upload_faults
    assert json.loads((tmp_path / "far" / "outputs" / "run.json").read_text())["store"] == url
    near, far = made(Store.at(local)), made(Store.at(url))
    assert far == near
    assert any(name.startswith("shards-") for name in far)
    capsys.readouterr()
    endpoint.faults.extend([503, None, "cut", None] * 5)
    assert run("shard", overrides("third", url)) == 0
    assert {path.name for path in Store.at(url).root.iterdir() if path.name.startswith("count-")} == set()
    assert made(Store.at(url)) == near
    assert main.run(["status", f"artifacts={url}"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in near)
    for content in endpoint.objects.values():
        assert not any(secret.encode() in content for secret in SECRETS)
