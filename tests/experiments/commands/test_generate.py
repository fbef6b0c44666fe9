from __future__ import annotations

import json
import os
import shutil

import pytest

from experiments.cli import main
from experiments.commands import generate
from experiments.store import trained_models
from experiments.store.trained_models import load_models
from lm.bytelevel.byte_model import ByteModel
from lm.model.generation import SamplingConfig
from tests.experiments.models import write_models
from tokenizer.errors import UserError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate") / "artifacts"
    write_models(folder)
    return folder


def test_models_of_a_folder_come_with_their_tokenizers(root):
    models = load_models([root], "cpu")
    assert [saved.label for saved in models] == ["BPE", "SuperBPE"]
    names = [saved.artifact.path for saved in models]
    assert [saved.label for saved in load_models(names[::-1], "cpu")] == ["SuperBPE", "BPE"]
    twice = load_models([names[0], names[0]], "cpu")
    assert twice[0].label == f"BPE {names[0].name}"


def test_models_have_the_labels_of_their_arms(root, monkeypatch):
    one, two = (saved.artifact for saved in load_models([root], "cpu"))
    monkeypatch.setattr(trained_models, "arm_labels", lambda store: {one.name: ["BPE 4k"], two.name: ["BPE 8k"]})
    assert [saved.label for saved in load_models([root], "cpu")] == ["BPE 4k", "BPE 8k"]


def test_samples_are_shown_side_by_side(root, tmp_path, capsys):
    out, prompts = tmp_path / "samples.json", tmp_path / "prompts.txt"
    prompts.write_text("the\n\nof th\n", encoding="utf-8")
    options = ["--prompts", str(prompts), "--prompt", "A", "--samples", "2", "--max-bytes", "200", "--seed", "3"]
    assert main.run(["generate", str(root), *options, "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "SuperBPE" in shown
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [model["label"] for model in found["models"]] == ["BPE", "SuperBPE"]
    assert [entry["prompt"] for entry in found["prompts"]] == ["A", "A", "the", "the", "of th", "of th"]
    assert all(sample["n_bytes"] <= 200 for entry in found["prompts"] for sample in entry["samples"])
    assert found["config"]["seed"] == 3
    for entry in found["prompts"]:
        for sample in entry["samples"]:
            whole = generate._shown(entry["prompt"] + sample["text"])
            assert " ".join(whole.split()) in " ".join(shown.split())  # a terminal shows tabs as spaces
    again = tmp_path / "again.json"
    assert main.run(["generate", str(root), *options, "--json", str(again)]) == 0
    assert out.read_bytes() == again.read_bytes()


def test_prompts_are_healed_by_default(root, tmp_path):
    [saved, _] = load_models([root], "cpu")
    options = [str(saved.artifact.path), "--prompt", "of th", "--max-bytes", "8", "--temperature", "0"]
    files = [tmp_path / "healed.json", tmp_path / "not.json"]
    assert main.run(["generate", *options, "--json", str(files[0])]) == 0
    assert main.run(["generate", *options, "--no-heal", "--json", str(files[1])]) == 0
    counts = [json.loads(f.read_text())["prompts"][0]["samples"][0]["n_prompt_tokens"] for f in files]
    healed = ByteModel(saved.lm).heal("of th", seed=None)
    assert counts == [len(healed), len(saved.lm.tokenizer.encode_ordinary("of th"))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "a", "--top-p", "2"], "--top-p: '2' is not a number above 0 and at most 1"),
        ([], "no prompt given"),
        (["--prompt", "a", "--samples", "0"], "--samples: '0' is not a whole number of at least 1"),
        (["--prompts", "no-such-file"], "no-such-file"),
        (["--prompts", os.devnull], "is a device, not a regular file"),
        (["--prompt", "a", "--device", "tpu"], "--device 'tpu'"),
        (["--prompt", "a", "--temperature", "inf"], "--temperature inf"),
        (["--prompt", "caf\udce9"], "not UTF-8"),
        (["--prompt", "a", "--stop", "\udce9"], "not UTF-8"),
    ],
)
def test_mistakes_are_one_line(root, options, message, capsys):
    assert main.run(["generate", str(root), *options]) == 2
    assert message in capsys.readouterr().err


def test_prompts_in_another_encoding(root, tmp_path, capsys):
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    assert main.run(["generate", str(root), "--prompts", str(tmp_path / "latin.txt")]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_folders_without_models(root, tmp_path, capsys):
    assert main.run(["generate", str(tmp_path), "--prompt", "a"]) == 2
    assert "no trained model" in capsys.readouterr().err
    alone = tmp_path / "alone"
    [first, _] = load_models([root], "cpu")
    shutil.copytree(first.artifact.path, alone / first.artifact.name)
    with pytest.raises(UserError, match="neither in"):
        load_models([alone], "cpu")


def test_control_characters_do_not_reach_the_terminal():
    assert generate._shown("a\n\x1b[31mé\u202e中 \u200b") == "a\n\\x1b[31mé\\u202e中 \\u200b"


def test_the_record_names_the_settings():
    assert generate.record([], [], SamplingConfig(), heal=True)["config"]["top_p"] == 0.8
