"""Every configuration file composes, and says the same as the code that it mirrors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import configs
from experiments.compose import load
from experiments.config import part, transition_size
from superbpe.rules import PRESETS, Rules

_ROOT = Path(configs.__file__).parent
_NEEDS = {
    "corpus/files": ["corpus.paths=[a.txt]"],
    "corpus/dclm": ["corpus.paths=[a]"],
    "corpus/dclm-edu": ["corpus.paths=[a]"],
    "corpus/hf": ["corpus.dataset=a"],
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
