"""Every configuration file composes, and says the same as the code that it mirrors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import configs
from experiments.compose import load
from experiments.config import BUDGETS, part, transition_size
from lm.model import Transformer
from superbpe.rules import PRESETS, Rules
from tokenizer.errors import UserError

_ROOT = Path(configs.__file__).parent
_NEEDS = {
    "corpus/files": ["corpus.paths=[a.txt]"],
    "corpus/dclm": ["corpus.paths=[a]"],
    "corpus/dclm-edu": ["corpus.paths=[a]"],
    "corpus/hf": ["corpus.dataset=a"],
    "experiment/seed_004": ["corpus.paths=[a]"],
    "pattern/custom": ["pattern.regex=a+"],
}
_OPTIONS = sorted(path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.glob("*/*.yaml"))


@pytest.mark.parametrize("option", _OPTIONS)
def test_every_option_composes(option: str) -> None:
    load([option.replace("/", "="), *_NEEDS.get(option, [])])


def test_the_default_is_the_demonstration() -> None:
    config = load()
    assert config.corpus.source == "embedded"
    assert config.report.demonstration
    assert config.wandb == "off"
    assert config.lm.train.train_bytes == config.budget.train_bytes
    assert config.eval.context_bytes <= config.lm.train.context_bytes
    assert transition_size(config) == round(0.8 * config.bpe.vocab_size)


def test_every_preset_of_the_rules_has_its_file_and_no_other() -> None:
    assert {path.stem for path in (_ROOT / "superbpe").glob("*.yaml")} == set(PRESETS)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_file_says_what_the_preset_says(name: str) -> None:
    assert dataclasses.asdict(part(Rules, load([f"superbpe={name}"]).superbpe)) == dataclasses.asdict(PRESETS[name])


def test_a_key_of_an_earlier_version_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'superbpe\.drop_unused' no longer exists; remove it: phase 2 keeps every"):
        load(["superbpe.drop_unused=true"])
    (tmp_path / "superbpe").mkdir()
    uw = (_ROOT / "superbpe" / "uw-2025.yaml").read_text()
    (tmp_path / "superbpe" / "mine.yaml").write_text(f"{uw}drop_unused: false\n")
    with pytest.raises(UserError, match=r"'superbpe\.drop_unused' no longer exists"):
        load(["superbpe=mine"], config_dir=str(tmp_path))


def test_special_tokens_that_could_not_be_saved_are_rejected() -> None:
    with pytest.raises(UserError, match="special token 'a' is also how"):
        load(["bpe.special_tokens=[a]"])
    with pytest.raises(UserError, match="repeats a string"):
        load(["bpe.special_tokens=[xyz,xyz]"])


def test_the_seed_documents_comparison() -> None:
    """24,000 steps of 96 rows of 512 tokens; 26,000 of 32,700; the debug scale keeps the ratio."""
    config = load(["experiment=seed_004", "corpus.paths=[a]"])
    assert (config.bpe.vocab_size, transition_size(config) - 256) == (32_700, 26_000)
    assert (config.lm.train.rows, config.lm.train.context_tokens, config.lm.train.steps) == (96, 512, 24_000)
    assert config.corpus.min_score == 2.75
    assert config.budget.mode == "equal_tokens"
    with torch.device("meta"):
        model = Transformer(config.lm.model, config.bpe.vocab_size, 512)
    assert model.lm_head.weight.shape[0] == 32_768
    assert model.n_parameters()["non_embedding"] == pytest.approx(70e6, rel=0.02)
    assert load(["experiment=seed_004", "corpus.paths=[a]", "budget=equal_bytes"]).budget.mode == "equal_bytes"

    debug = load(["experiment=seed_004_debug", "corpus=files", "corpus.paths=[a]"])
    assert debug.corpus.source == "files"
    assert (transition_size(debug) - 256) / debug.bpe.vocab_size == pytest.approx(26_000 / 32_700, abs=1e-4)
    assert debug.superbpe == dataclasses.replace(config.superbpe, transition_merges=debug.superbpe.transition_merges)


@pytest.mark.parametrize("mode", BUDGETS)
def test_every_budget_has_its_file(mode: str) -> None:
    assert load([f"budget={mode}", "budget.train_bytes=20000000"]).budget.mode == mode


def test_what_training_cannot_do() -> None:
    for override, message in [
        ("lm.train.precision=fp8", "precision=fp8 is not one of"),
        ("lm.train.compile=maybe", "compile=maybe is not one of"),
        ("lm.train.max_steps=0", "max_steps=0: use 1 or more, or null"),
        ("budget.mode=equal_byte", "did you mean 'equal_bytes'"),
    ]:
        with pytest.raises(UserError, match=message):
            load([override])
    assert load(["lm.train.compile=true"]).lm.train.compile is True
