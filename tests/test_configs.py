"""Every choice of every configuration group composes; every bound of a setting holds."""

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

import configs
from experiments.arms import resolve_arms
from experiments.compose import choices, load
from experiments.config import (
    BUDGETS,
    BpeConfig,
    BudgetConfig,
    Config,
    CorpusSource,
    HeldoutConfig,
    LmConfig,
    RunnerConfig,
    part,
)
from lm.data.sharding import ShardConfig
from lm.evaluate.deployment import Deployment
from lm.model.config import ModelConfig
from lm.model.sampling import SamplingConfig
from lm.train.config import TrainConfig
from superbpe.rules import PHASE1, PRESETS, TRANSITION, Rules
from tests.composition import reuse_parts
from tokenizer.errors import UserError
from tokenizer.fields import limits_of

reuse_parts()


def _superbpe(config):
    (arm,) = (arm for arm in resolve_arms(config) if arm.recipe == "superbpe")
    return arm


_ROOT = Path(configs.__file__).parent
_OF_PATHS = {"corpus": ("files", "dclm_baseline", "dclm_edu", "fineweb_edu", "finepdfs", "starcoder")}
_OF_PATHS |= {"experiment": ("spans", "uw_2025", "uw_paper")}
_NEEDS = {f"{group}={name}": ["corpus.paths=[a]"] for group, names in _OF_PATHS.items() for name in names}
_NEEDS |= {"corpus=hf": ["corpus.dataset=a"]}
_GROUPS = {path.name for path in _ROOT.iterdir() if any(path.glob("*.yaml"))} | {"superbpe"}
_OPTIONS = {group: [f"{group}={choice}" for choice in choices(group)] for group in sorted(_GROUPS)}
# An experiment sets other groups, and arms are chosen together; of the rest, one option of each group at a time.
_ALONE = [f"arms=[{','.join(choices('arms'))}]", *_OPTIONS.pop("experiment")]
_ROWS = [[option] for option in _ALONE]
del _OPTIONS["arms"]
_ROWS += [list(filter(None, row)) for row in itertools.zip_longest(*_OPTIONS.values())]


@pytest.mark.slow
@pytest.mark.parametrize("options", _ROWS, ids=",".join)
def test_every_option_composes(options):
    config = load([*options, *(setting for option in options for setting in _NEEDS.get(option, []))])
    chosen = dict(option.split("=") for option in options)
    if (budget := chosen.get("budget")) is not None:
        assert config.budget.mode == budget
    if (preset := chosen.get("superbpe")) is not None:
        assert part(Rules, config.superbpe) == PRESETS[preset]
        assert {"pattern": config.superbpe.phase1_pattern, "unit": config.superbpe.phase1_unit} == PHASE1[preset]
        assert config.superbpe.transition == TRANSITION[preset]


_SETTINGS = [
    *(BpeConfig, BudgetConfig, Config, CorpusSource, Deployment, HeldoutConfig, LmConfig),
    *(ModelConfig, Rules, RunnerConfig, SamplingConfig, ShardConfig, TrainConfig),
]


def _outside(limits):
    """Values just outside of each bound, and one that is not a choice."""
    yield from ["no choice"] if limits.choices else []
    yield from [limits.least - 1] if limits.least is not None else []
    yield from [limits.most + 1] if limits.most is not None else []
    yield from [bound for bound in (limits.above, limits.below) if bound is not None]


@pytest.mark.parametrize("settings", _SETTINGS)
def test_a_value_outside_the_bounds_of_its_field_is_rejected(settings):
    for field in dataclasses.fields(settings):
        limits = limits_of(field)
        for value in _outside(limits):
            with pytest.raises(UserError, match=rf"\b{field.name}='?{re.escape(str(value))}") as error:
                getattr(settings(**{field.name: value}), "check", str)()
            assert limits.remedy in str(error.value)


def test_the_default_is_the_demo():
    config = load()
    assert config.corpus.source == "embedded"
    assert config.logger == "none"
    assert config.deployment == Deployment()
    assert config.lm.train.train_bytes == config.budget.train_bytes
    assert config.eval.context_bytes <= config.lm.train.context_bytes
    assert load(["lm.train.compile=true"]).lm.train.compile is True
    assert _superbpe(config).transition_size == round(0.9 * config.bpe.vocab_size)


def test_the_bakeoff_gives_a_verdict_about_tokenizers():
    config = load(["experiment=bakeoff"])
    assert list(config.arms) == ["bpe", "superbpe"]
    assert config.budget.rungs() == [800_000, 3_200_000]
    assert config.lm.train.trunk is not None
    assert (config.lm.n_seeds, config.budget.mode, config.lm.tune_rates) == (3, "equal_bytes", [0.5, 1, 2])


def test_presets_and_budgets_are_choices():
    assert set(choices("superbpe")) == set(PRESETS)
    assert choices("superbpe.unit") == []
    assert set(choices("budget")) == set(BUDGETS)


@pytest.mark.slow
def test_phase_1_of_superwords_and_of_bpe(tmp_path):
    """A preset sets phase 1 of superwords alone: `bpe` stays at full strength, `bpe_same` follows the preset."""

    def phase1(*overrides, folder=None):
        config = load(["arms=[bpe,bpe_same,superbpe]", *overrides], config_dir=None if folder is None else str(folder))
        found = [(arm.pattern.name, arm.bpe.unit) for arm in resolve_arms(config)]
        assert found[1] == found[2]
        return found[:2], config

    full = ("o200k", "document")
    # A rule on its own is about phase 2.
    rules = ("superbpe.unit=document", "superbpe.fence=none")
    assert phase1("superbpe=uw-2025", *rules)[0] == [full, ("superbpe", "line")]
    assert phase1("superbpe=runs")[0] == [full, full]
    # What is given explicitly applies to all arms.
    assert phase1("superbpe=uw-2025", "pattern=gpt2")[0] == [("gpt2", "document"), ("gpt2", "line")]
    assert phase1("superbpe=uw-2025", "bpe.unit=document")[0] == [full, ("superbpe", "document")]
    assert phase1("superbpe=uw-2025", "superbpe.phase1_pattern=llama3")[0] == [full, ("llama3", "line")]
    assert phase1("experiment=spans_debug")[0] == [full, ("spans", "document")]
    # Rules in a custom file without a phase 1 leave that of the experiment.
    (tmp_path / "superbpe").mkdir()
    (tmp_path / "superbpe" / "mine.yaml").write_text("transition: 0.5\nunit: line\n")
    (tmp_path / "superbpe" / "based.yaml").write_text("defaults:\n  - uw-paper\nmax_words: 3\n")
    assert phase1("superbpe=mine", folder=tmp_path)[0] == [full, full]
    of_arms, config = phase1("superbpe=based", "superbpe.min_count=3", folder=tmp_path)
    assert of_arms == [full, ("uw-paper", "line")]
    assert part(Rules, config.superbpe) == dataclasses.replace(PRESETS["uw-paper"], max_words=3, min_count=3)


def test_the_spans_comparison():
    """24,000 steps of 96 rows of 512 tokens; 26,000 of 32,700; the debug scale keeps the ratio."""
    config = load(["experiment=spans", "corpus.paths=[a]"])
    assert (config.bpe.vocab_size, _superbpe(config).transition_size - 256) == (32_700, 26_000)
    assert (config.lm.train.batch_size, config.lm.train.context_tokens, config.lm.train.steps) == (96, 512, 24_000)
    debug = load(["experiment=spans_debug", "corpus=files", "corpus.paths=[a]"])
    assert (_superbpe(debug).transition_size - 256) / debug.bpe.vocab_size == pytest.approx(26_000 / 32_700, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "tokens", "inherited"), [("uw_2025", 128_000, 100_000 - 1), ("uw_paper", 200_000, 180_000 - 1)]
)
def test_the_released_recipes(name, tokens, inherited):
    """Sizes of the released scripts: merges.txt begins with a header, and 243 bytes occur in UTF-8."""
    config = load([f"experiment={name}", "corpus.paths=[a]"])
    n_merges = config.bpe.vocab_size - 256 - len(config.bpe.special_tokens)
    assert (n_merges, _superbpe(config).transition_size - 256) == (tokens - 243, inherited)
    preset = name.replace("_", "-")
    assert dataclasses.asdict(part(Rules, config.superbpe)) == dataclasses.asdict(PRESETS[preset])
    same, superbpe = resolve_arms(config)  # the released comparison is between two arms with one phase 1
    assert {(arm.pattern.name, arm.bpe.unit) for arm in (same, superbpe)} == {tuple(PHASE1[preset].values())}
