"""Text and artifacts of runs in a loopback bucket: the results of local files, and no credentials in any file."""

import json

import pyarrow.parquet as pq
import pytest

from experiments.cli import main
from experiments.store.artifacts import Store
from tests.experiments.conftest import tiny_overrides
from tests.experiments.outputs import run_until as run
from tests.tokenizer.corpus.endpoint import SECRETS

DOCUMENT = {"text": "the cat sat on the mat, and the dog sat on the log\n" * 3}


@pytest.fixture
def bucket(endpoint, tmp_path):
    """Folder of the files that are in s3://bucket/text as well; the second one is damaged."""
    folder = tmp_path / "text"
    folder.mkdir()
    lines = [json.dumps({"text": f"{DOCUMENT['text']}{i}"}) for i in range(500)]
    for i, content in enumerate([lines, [*lines[:250], "damaged", *lines[250:]], lines]):
        (folder / f"{i}.jsonl").write_text("\n".join(content) + "\n")
        endpoint.objects[f"bucket/text/{i}.jsonl"] = (folder / f"{i}.jsonl").read_bytes()
    return folder


def count(folder, *settings):
    """Run `superbpe count`; return the exit code and the artifact's folder."""
    common = ["corpus=files", "corpus.heldout_fraction=0.1", f"hydra.run.dir={folder}", f"artifacts={folder}/artifacts"]
    code = run("count", [*common, *settings])
    return code, next(iter((folder / "artifacts").glob("count*")), None)


@pytest.mark.slow
def test_a_signed_url_is_not_stored(bucket, tmp_path, endpoint, monkeypatch, capfd):
    url = f"{endpoint.url.replace('//', '//me:pw@')}/bucket/text/0.jsonl?X-Amz-Signature=signed"
    code, _ = count(tmp_path / "given", f"corpus.paths=['{url}']")
    assert code == 2
    assert "corpus.paths=['${oc.env:NAME}']" in capfd.readouterr().err
    monkeypatch.setenv("SIGNED", url)
    code, _ = count(tmp_path / "variable", "corpus.paths=['${oc.env:SIGNED}']", "logger=wandb-offline")
    assert code == 0
    to = tmp_path / "tokenizer"
    assert main.run(["train", url, "--vocab-size", "300", "--to", str(to), "--threads", "1"]) == 0
    assert f"{endpoint.url}/bucket/text/0.jsonl" in (to / "superbpe.json").read_text()
    files = [path.read_text(errors="ignore") for path in tmp_path.rglob("*") if path.is_file()]
    kept = "".join([*capfd.readouterr(), *files])
    assert not any(secret in kept for secret in SECRETS)


@pytest.mark.slow
def test_a_run_over_a_faulty_bucket_equals_one_over_files(bucket, tmp_path, endpoint, monkeypatch):
    url = "s3://bucket/artifacts"
    kinds = ("count-*/counts.parquet", "tokenizer-*/tokenizer.json", "shards-*/**/*.bin", "evaluation-*/*.npz")

    def run_on(machine, text, artifacts):
        monkeypatch.setenv("SUPERBPE_CACHE", str(tmp_path / machine))
        common = tiny_overrides(text, tmp_path / machine)
        assert run("evaluate", [*common, f"artifacts={artifacts}", "corpus.on_error=skip"]) == 0
        return Store.at(artifacts).root

    def content(path):
        if path.suffix == ".parquet":  # its metadata name the places
            return repr(pq.read_table(path).to_pydict()).encode()
        return path.read_bytes()

    def results(root):
        return {str(path.relative_to(root)): content(path) for kind in kinds for path in root.glob(kind)}

    near = results(run_on("near", str(bucket), str(tmp_path / "near" / "artifacts")))
    endpoint.faults.extend([500, None, 503, "cut", "slow"] * 3)
    endpoint.upload_faults.extend([500, None, 503, "cut", "slow"] * 3)
    far = results(run_on("far", "s3://bucket/text/*.jsonl", url))
    assert not endpoint.faults
    assert not endpoint.upload_faults
    assert {name.partition("-")[0] for name in far} == {kind.partition("-")[0] for kind in kinds}
    assert sorted(far.values()) == sorted(near.values())
    objects = dict(endpoint.objects)
    third = run_on("third", "s3://bucket/text/*.jsonl", url)
    assert endpoint.objects == objects
    assert not list(third.glob("count-*"))  # only what is read is downloaded
    assert json.loads((tmp_path / "third" / "outputs" / "run.json").read_text())["store"] == url
    for content in objects.values():
        assert not any(secret.encode() in content for secret in SECRETS)
