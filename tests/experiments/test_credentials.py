"""Credentials in the environment do not reach any file of a run, or its output."""

import gzip
import os
import subprocess
import sys
import zlib

import pytest

PLANTED = {
    "HF_TOKEN": "hf_plantedplantedplantedplantedplanted",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdefplanted0",
    "AWS_SECRET_ACCESS_KEY": "planted/secret/access/key/wJalrXUtnFEMIK7",
}


def secrets_in(content):
    """Names of the credentials in a file, which may be compressed with gzip or zlib."""
    for decompress in (gzip.decompress, zlib.decompress):
        try:
            content += decompress(content)
        except (OSError, EOFError, zlib.error):
            continue
    return [name for name, value in PLANTED.items() if value.encode() in content]


def leaks(command, folder):
    """Run a command with the credentials in its environment; return the files that contain one, with its names."""
    own = {f"WANDB_{name}_DIR": str(folder / name) for name in ("CACHE", "CONFIG", "DATA")}
    ran = subprocess.run(command, env={**os.environ, **own, **PLANTED}, capture_output=True, check=False, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    contents = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()} | {
        "output": ran.stdout + ran.stderr
    }
    return {path: found for path, content in contents.items() if (found := secrets_in(content))}


@pytest.mark.slow
def test_no_credential_is_written_by_a_run(tiny, tmp_path):
    """Manifests, logs, pages, the configuration, and the runs of the real W&B, which can be synced later."""
    assert leaks([sys.executable, "-m", "experiments", "pipeline", *tiny, "logger=wandb-offline"], tmp_path) == {}
    for kind in ("artifacts/*/manifest.json", "artifacts/*/report.html", "outputs/*.log"):
        assert list(tmp_path.glob(kind)), kind
    runs = [path.read_bytes() for path in tmp_path.glob("outputs/wandb/offline-run-*/*.wandb")]
    assert len(runs) == 1 + 2  # the pipeline, two models
    for expected in (b"val/bpb", b"train/loss", b"total_training_flops", b"shards-"):
        assert any(expected in content for content in runs), expected


def test_no_credential_is_written_by_a_first_stage(tiny, tmp_path):
    assert leaks([sys.executable, "-m", "experiments", "pipeline", "--until", "count", *tiny], tmp_path) == {}
    assert list(tmp_path.glob("artifacts/*/manifest.json"))


def test_a_credential_is_found(tmp_path):
    program = "import os, pathlib, zlib; pathlib.Path('x').write_bytes(zlib.compress(os.environ['HF_TOKEN'].encode()))"
    assert leaks([sys.executable, "-c", program], tmp_path) == {str(tmp_path / "x"): ["HF_TOKEN"]}
