"""The main commands as functions: they return typed results, and importing the package stays cheap."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import experiments
from experiments import choose_tokenizers, compare_runs, inspect_vocabulary, measure_fertility, run_pipeline
from experiments.fertility.losses import measured_losses
from tests import texts
from tests.experiments.conftest import tiny_overrides, write_corpus
from tokenizer import Corpus, CorpusConfig
from tokenizer.errors import UserError


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "text.jsonl"
    prose = [part for text in texts.prose() for part in text.split("\n\n") if len(part) > 200]
    path.write_text("\n".join(json.dumps({"text": f"{text} {i}"}) for i, text in enumerate(prose)), encoding="utf-8")
    return Corpus(CorpusConfig(paths=[str(path)]))


@pytest.mark.slow
def test_a_choice_without_a_folder_has_the_tokenizers_and_writes_nothing(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    choice = choose_tokenizers(
        text, sizes=[600], patterns=["o200k"], presets=["uw-2025"], transitions=[0.5], heldout=0.4
    )
    assert {one.name for one in choice.tokenizers} == {"bpe-o200k-600", "uw-2025-o200k-600-t300"}
    assert choice.finalists[0].name == choice.reference
    assert choice.finalists[0].tokenizer.vocab_size == 600
    assert not choice.bakeoff.command
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match="reference='bpe' is not a tokenizer"):
        choose_tokenizers(text, reference="bpe")


def test_fertility_and_vocabulary_take_tokenizers_from_memory(text, trained, tmp_path):
    tokenizers = {"plain": trained["gpt2"], "super": trained["superwords"]}
    found = measure_fertility(tokenizers, text, out=tmp_path / "fertility")
    rows = {row.tokenizer: row for row in found.rows if row.by == "all"}
    assert rows["super"].parity.value == rows["super"].tokens / rows["plain"].tokens
    assert json.loads((tmp_path / "fertility" / "fertility.json").read_text())["reference"] == "plain"
    report = inspect_vocabulary(tokenizers, ["a text in memory"] * 3, out=tmp_path / "vocabulary")
    assert report.sides[0].measured.bytes == 3 * len("a text in memory")
    assert all(path.exists() for path in report.written)


def test_a_run_can_be_compared(tmp_path):
    write_corpus(tmp_path / "corpus.jsonl")
    settings = tiny_overrides(tmp_path / "corpus.jsonl", tmp_path)
    outcome = run_pipeline(settings, tmp_path / "run", until="evaluate")
    found = compare_runs([tmp_path / "run"])
    assert found.result.labels == outcome.rungs[-1].labels
    assert found.written == []
    losses = measured_losses(tmp_path / "run")
    assert list(losses) == [arm.tokenizer.sha256 for arm in found.result.arms]
    assert [loss.bits_per_byte for loss in losses.values()] == [arm.scores.bits_per_byte for arm in found.result.arms]
    with pytest.raises(UserError, match="unknown"):
        run_pipeline(["corpsu=files"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_import_is_cheap():
    code = "import experiments, sys; sys.exit(', '.join({'torch', 'numpy', 'hydra'} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0
    with pytest.raises(AttributeError, match="choose"):
        experiments.choose  # noqa: B018
