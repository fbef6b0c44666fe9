import shutil

import pytest

from experiments.characters import harmless
from experiments.cli import main
from experiments.commands import generate
from experiments.store import trained_models
from experiments.store.trained_models import load_models
from lm.bytelevel.byte_model import ByteModel
from lm.model.sampling import SamplingConfig
from tests.experiments.models import write_models
from tokenizer.errors import UserError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate") / "artifacts"
    write_models(folder)
    return folder


def test_models_of_a_folder_come_with_their_tokenizers_and_the_labels_of_their_arms(root, tmp_path, monkeypatch):
    models = load_models([root], "cpu")
    assert [saved.label for saved in models] == ["BPE", "SuperBPE"]
    names = [saved.artifact.path for saved in models]
    assert [saved.label for saved in load_models(names[::-1], "cpu")] == ["SuperBPE", "BPE"]
    twice = load_models([names[0], names[0]], "cpu")
    assert twice[0].label == f"BPE {names[0].name}"
    labels = {path.name: [label] for path, label in zip(names, ("BPE 4k", "BPE 8k"), strict=True)}
    with monkeypatch.context() as patch:
        patch.setattr(trained_models, "arm_labels", lambda _: labels)
        assert [saved.label for saved in load_models([root], "cpu")] == ["BPE 4k", "BPE 8k"]
    renamed = shutil.copytree(names[0], root / "my-model")
    assert [saved.artifact.name for saved in load_models([renamed], "cpu")] == ["my-model"]
    shutil.copytree(names[0], tmp_path / "alone" / names[0].name)
    with pytest.raises(UserError, match="neither in"):
        load_models([tmp_path / "alone"], "cpu")


def test_samples_are_shown_side_by_side(root, capsys):
    options = ["--prompt", "A", "--prompt", "the", "--samples", "2", "--max-bytes", "40", "--seed", "3"]
    assert main.run(["generate", str(root), *options]) == 0
    shown = capsys.readouterr().out
    config = SamplingConfig(seed=3, max_new_bytes=40)
    models = load_models([root], "cpu")
    for saved in models:
        assert all(f"#{n} {saved.label}:" in shown for n in range(1, 5))
        for sample in generate._samples(saved, ["A", "A", "the", "the"], config, heal=True):
            assert len(sample.data) <= 40
            whole = harmless(sample.prompt + sample.text)
            assert " ".join(whole.split()) in " ".join(shown.split())  # a terminal shows tabs as spaces


def test_prompts_are_healed_by_default(root, monkeypatch):
    [saved, _] = load_models([root], "cpu")
    samples = []
    monkeypatch.setattr(generate, "_show", lambda models, found: samples.extend(found))
    options = [str(saved.artifact.path), "--prompt", "of th", "--max-bytes", "8", "--temperature", "0"]
    assert main.run(["generate", *options]) == 0
    assert main.run(["generate", *options, "--no-heal"]) == 0
    healed = ByteModel(saved.lm).heal("of th", seed=None)
    expected = [len(healed), len(saved.lm.tokenizer.encode_ordinary("of th"))]
    assert [sample.n_prompt_tokens for [sample] in samples] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "a", "--top-p", "2"], "--top-p: '2' is not a number above 0 and at most 1"),
        ([], "the following arguments are required: --prompt"),
        (["--prompt", "a", "--samples", "0"], "--samples: '0' is not a whole number of at least 1"),
        (["--prompt", "a", "--device", "all"], "--device: 'all' is unknown; use auto"),
        (["--prompt", "a", "--temperature", "inf"], "--temperature inf"),
        (["--prompt", "caf\udce9"], "not UTF-8"),
        (["--prompt", "a", "--stop", "\udce9"], "not UTF-8"),
    ],
)
def test_mistakes_are_one_line(root, tmp_path, options, message, mistake):
    assert message in mistake("generate", root, *options)
    assert "no trained model" in mistake("generate", tmp_path, "--prompt", "a")
