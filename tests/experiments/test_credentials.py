"""Credentials in the environment and in URLs do not reach any file of a command, or its output."""

import base64
import gzip
import json
import os
import re
import subprocess
import sys
import zlib

import pytest

from experiments.cli import main
from tests import texts
from tests.properties import quick_first
from tokenizer import Batch, count_pretokens, train_bpe
from tokenizer.files import shown, without_credentials

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
    words = ["pipeline", *tiny, "arms=[bpe]", "logger=wandb-offline"]
    assert leaks([sys.executable, "-m", "experiments", *words], tmp_path) == {}
    for kind in ("artifacts/*/manifest.json", "artifacts/*/report.html", "outputs/*.log"):
        assert list(tmp_path.glob(kind)), kind
    runs = [path.read_bytes() for path in tmp_path.glob("outputs/wandb/offline-run-*/*.wandb")]
    assert len(runs) == 1 + 1  # the pipeline, a model
    for expected in (b"val/bpb", b"train/loss", b"total_training_flops", b"shards-"):
        assert any(expected in content for content in runs), expected


MARK = "PLANTEDmark"
TRAIN = ["--vocab-size", "300", "--threads", "1", "--to", "{out}"]
GRID = ["--patterns", "gpt2", "--presets", "uw-2025", "--transitions", "0.9", "--sizes", "300", "--heldout", "0.4"]
COMMANDS = {
    "choose": (0, ["{url}", "part={other}", *GRID, "--out", "{out}"]),
    "train": (0, ["{url}", *TRAIN]),
    "encode": (0, ["{tokenizer}", "{url}", "--to", "{out}"]),
    "fertility": (0, ["{tokenizer}", "--text", "part={url}", "{other}", "--out", "{out}"]),
    "inspect": (0, ["{tokenizer}", "--text", "{url}", "--out", "{out}"]),
    "export": (2, ["{url}", "{out}", "--to", "hf"]),
    "extend": (0, ["{tokenizer}", "{url}", *TRAIN]),
    "trim": (0, ["{tokenizer}", "{url}", "--to", "{out}"]),
    "push": (2, ["{tokenizer}", "{url}"]),
    "pipeline": (2, ["--until", "count", "corpus=files", "corpus.paths=['{url}']", "hydra.run.dir={out}"]),
    "compare": (2, ["{url}", "--out", "{out}"]),
    "status": (2, ["artifacts={url}"]),
    "score": (2, ["missing/model", "{url}", "part={other}", "--artifacts", "{out}/kept", "--out", "{out}"]),
    "generate": (2, ["{url}", "--prompt", "a"]),
    "downstream": (2, ["{url}", "--tasks", "{url}", "--out", "{out}"]),
    "extend-model": (2, ["{url}", "{tokenizer}", "{out}"]),
}


def contents(folder):
    """Everything that the files of a folder contain, also packed in pages."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield (content := path.read_bytes())
            for packed in re.findall(rb"[A-Za-z0-9+/]{64,}=*", content) if path.suffix == ".html" else ():
                for decompress in (gzip.decompress, lambda data: zlib.decompress(data, -15)):
                    try:
                        yield decompress(base64.b64decode(packed + b"==="))
                    except (OSError, EOFError, zlib.error, ValueError):
                        continue


# lm-eval takes seconds to list its tasks, and the choice trains many tokenizers.
QUICK = ("train", "fertility", "pipeline")


@pytest.mark.parametrize("command", quick_first(sorted(main.NAMES, key=lambda name: name not in QUICK), len(QUICK)))
def test_no_secret_of_a_url_is_written_or_printed(command, endpoint, tmp_path, monkeypatch, capfd, caplog):
    """Every command of `superbpe --help`, with the scheme in capitals, names before the URL, and commas in a query."""
    documents = [f"{part} {i}" for i, part in enumerate("\n\n".join(texts.english()[1]).split("\n\n"))][:200]
    content = "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    endpoint.objects["b/year=1/a.jsonl"] = endpoint.objects["b/year=1/b.jsonl"] = content
    train_bpe(count_pretokens([Batch.from_texts(documents)], "gpt2"), 290).save(tmp_path / "tokenizer")
    host = endpoint.url.removeprefix("http://")
    secret = f"me:{MARK},x@{host}/b/year=1", f"X-Amz-Signature={MARK}&b='c',[{MARK}]#{MARK}"
    urls = {"url": f"HTTP://{secret[0]}/a.jsonl?{secret[1]}", "other": f"http://{secret[0]}/b.jsonl?{secret[1]}"}
    code, words = COMMANDS[command]
    words = [word.format(**urls, tokenizer=tmp_path / "tokenizer", out=tmp_path / "out") for word in words]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["superbpe", command, *words])
    assert main.run([command, *words]) == code, capfd.readouterr().err
    output = "".join([*capfd.readouterr(), caplog.text])
    assert MARK not in output
    assert not any(MARK.encode() in content for content in contents(tmp_path))
    assert not code or "HTTP:/" in output  # the message names the URL


def test_secrets_in_configuration_files_are_rejected(tmp_path, mistake):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.yaml").write_text(f"source: files\npaths: ['s3://me:{MARK}@b/a.jsonl']\n")
    said = mistake("pipeline", "corpus=mine", f"--config-dir={tmp_path}", f"hydra.run.dir={tmp_path / 'out'}")
    assert "environment variable" in said
    assert MARK not in said


def test_generated_urls_keep_scheme_host_and_path():
    """In every place of a word or a sentence; of what is malformed, nothing but the scheme may stay."""
    for scheme in ("https", "HTTP", "s3", "gs", "ftp", "postgres"):
        for user in ("", "me@", f"me:{MARK}@", f"{MARK}:a,b@", f"me:{MARK}'@", f"${{a}}:{MARK}@"):
            for tail in (
                "",
                f"?X-Amz-Signature={MARK}",
                f"?a=b,c&s={MARK}]&d='e",
                f"?u=https://x:{MARK}@y/z#k={MARK}",
            ):
                url = f"{scheme}://{user}host/a/year=1/b.txt{tail}"
                expected = f"{scheme}://host/a/year=1/b.txt"
                for form in (
                    "{}",
                    "name={}",
                    "--text={}",
                    "a=['{}',{}]",
                    "cannot read {}: gone",
                    "({}).",
                    "http://h/{}",
                ):
                    shows = without_credentials if " " in form else shown
                    text, good = form.format(url, url), form.format(expected, expected)
                    assert MARK not in shows(text), text
                    if form != "http://h/{}" and (form != "a=['{}',{}]" or not tail):
                        assert shows(text) == good
    for url in (f"https://me:{MARK}/x@h/a", f"https://me:1{MARK}", f"http:/me:{MARK}@h/a", f"https://me:12/{MARK}@h/a"):
        assert MARK not in shown(url)
    for local in ("data/part-?.jsonl#x", "C:/a?b", "{web:/data/a?.txt}", "s3://b/part-?.jsonl", "[s3://a,s3://b/x]"):
        assert shown(local) == local
