"""The GPU script at its smallest, on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.benchmarks import gpu
from lm.data.stream import DocumentStream

ROOT = Path(__file__).parents[3]
MISSING = (
    "hydra",
    "omegaconf",
    "pyarrow",
    "datasets",
    "wandb",
    "sortedcontainers",
    "transformers",
    "zstandard",
    "altair",
)
"""Modules that a bare machine may lack."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    words = ["the", "of", "in", "town", "hill", "history"]
    documents = [{"text": " ".join(words[(i * j) % 6] for j in range(1, 90)) + f" {i}."} for i in range(60)]
    (folder / "text.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    to = folder / "data"
    command = ["prepare", str(folder / "text.jsonl"), "--data", str(to), "--vocab-size", "300", "--heldout-every", "5"]
    assert gpu.main(command) == 0
    return to


def measured(part, data, to, *options):
    command = ["measure", "--part", part, "--toy", "--device", "cpu", "--data", str(data), "--to", str(to), *options]
    assert gpu.main(command) == 0
    content = json.loads((to / f"{part}.json").read_text())
    assert (to / f"{part}.md").read_text().count("\n") == 2 + len(content["rows"])
    assert (content["part"], content["device"]) == (part, "cpu")
    return content["rows"]


def test_training(data, tmp_path):
    rows = measured("training", data, tmp_path)
    assert [(row["layers"], row["context"], row["vocabulary"]) for row in rows] == [(1, 16, 300), (2, 32, 600)]
    assert all(row["tokens/s"] > 0 and row["MFU, measured limit"] > 0 for row in rows)


@pytest.mark.parametrize("installed", [True, False])
def test_peer(data, tmp_path, monkeypatch, installed):
    if installed:
        pytest.importorskip("transformers")
    else:
        monkeypatch.setitem(sys.modules, "transformers", None)
    ours, theirs = measured("peer", data, tmp_path)
    assert ours["model"] == "ours"
    assert theirs["model"].startswith("transformers" if installed else "plain Llama")
    assert theirs["ours / peer"] == ours["tokens/s"] / theirs["tokens/s"]


def test_matmul(data, tmp_path):
    rows = measured("matmul", data, tmp_path)
    assert rows[0]["FLOPs/s"] > 0
    assert sum("attention" in row["work"] for row in rows) == 2


def test_evaluation(data, tmp_path):
    rows = measured("evaluation", data, tmp_path)
    assert all(row["of plain"] > 0 for row in rows[:-1])
    assert rows[-1]["prompts/s, batches"] > 0


@pytest.mark.slow
def test_bakeoff(data, tmp_path):
    rows = measured("bakeoff", data, tmp_path, "--layers", "1", "--budgets", "0.002", "--seeds", "2")
    assert [row["arm"] for row in rows] == [*gpu.ARMS, *gpu.ARMS, "superwords - bpe"]
    comparison = rows[-1]["comparison"]
    means = [sum(row["bits per byte"] for row in rows if row["arm"] == arm) / 2 for arm in gpu.ARMS]
    assert comparison["difference"] == pytest.approx(means[1] - means[0])
    assert comparison["n_seeds"] == 2


@pytest.mark.slow
def test_tests(data, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    [row] = measured("tests", data, tmp_path)
    assert row["result"] == "tests=2 failures=0 errors=0 skipped=1"


def test_synthetic_shards_are_shards():
    shards = gpu.SyntheticShards(300, 5000, 40)
    shards._check()
    assert shards.tokens(0, 5000).max() == shards.eos_id == 299
    assert all(shards.spelled_bytes(i) == shards.document_token_bytes(i).sum() for i in range(shards.n_documents))
    assert len(DocumentStream(shards, seed=0).read(0, 12_000)) == 12_000


@pytest.mark.slow
def test_it_runs_without_what_a_bare_machine_lacks():
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({MISSING}))\n"
        "from experiments.benchmarks import gpu; sys.exit(gpu.main(['measure', '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--part" in done.stdout


def test_too_much_data_is_reported(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "MIB", 1000)
    command = ["prepare", str(data / "train.jsonl.gz"), "--data", str(tmp_path), "--vocab-size", "300"]
    assert gpu.main([*command, "--max-mib", "1"]) == 2
    assert "has more than 1 MiB; use a smaller --max-bytes" in capsys.readouterr().err
