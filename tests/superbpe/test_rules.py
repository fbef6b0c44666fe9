import json
import random
import re
from dataclasses import asdict, replace

import pytest

from superbpe import PHASE1, PRESETS, Rules
from superbpe.rules import TRANSITION
from tokenizer import UserError, patterns


def test_presets_are_the_published_rules():
    spans = PRESETS["spans"]
    assert (spans.unit, spans.phase1_fence, spans.span_trigger, spans.span_cap) == ("document", "lifted", 20, 10)
    assert (spans.truncate_quantile, spans.sample, spans.max_words, spans.forbid) == (0.99, 0.25, None, ())
    assert replace(PRESETS["uw-2025"], fence="uw-paper-fence") == PRESETS["uw-paper"]
    assert PRESETS["none"] == replace(PRESETS["sentence"], fence="none") == replace(PRESETS["phrases"], fence="none")


def test_every_preset_has_a_phase_1_and_passes_its_own_checks():
    assert list(PHASE1) == list(TRANSITION) == list(PRESETS)
    for name, phase1 in PHASE1.items():
        PRESETS[name].check()
        patterns.resolve(phase1["pattern"])
        assert phase1["unit"] in ("document", "line")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fence": "uw-2025"}, "unknown pattern 'uw-2025' (did you mean 'uw-2025-fence'?)"),
        ({"fence": "(open"}, "does not compile"),
        ({"atoms": "pretokens"}, "atoms='pretokens' and phase1_fence='lifted' exclude each other"),
        ({"interleave": True, "phase1_fence": "kept"}, "interleave=True needs whole pretokens"),
        ({"atoms": "pretokens", "phase1_fence": "kept", "eligible": ""}, "eligible='' is not a regex of one line"),
        ({"atoms": "pretokens", "phase1_fence": "kept", "eligible": "(open"}, "does not compile"),
        ({"sample": float("nan")}, "sample=nan must be a number"),
        ({"forbid": ("",)}, 'the regex "" of forbid matches the empty string'),
        ({"forbid": ("a", "b(?!c)")}, 'the regex "b(?!c)" of forbid does not compile: look-around'),
        ({"forbid": ("a(",)}, 'the regex "a(" of forbid does not compile: unclosed group'),
    ],
)
def test_meaningless_values_are_errors(change, message):
    with pytest.raises(UserError) as error:
        replace(Rules(), **change).check()
    assert message in str(error.value)


def test_rules_that_are_written_as_text_are_read_back():
    draw = random.Random(5)
    characters = [*"ab =,:;#[]{}'\"\\.$&*!|>%@`~- \t\né", "null", "true", "1e3", r"\p{N}"]

    def string():
        return "".join(draw.choices(characters, k=draw.randint(1, 8)))

    for _ in range(200):
        rules = Rules(
            sample_salt=string(),
            forbid=tuple(re.escape(string()) for _ in range(draw.randint(0, 3))),
            fence=draw.choice(["none", "digits-fence", r"\p{N}+ #x", "[.!?]", "[a-z]+", "a=b", "null "]),
            max_words=draw.choice([None, draw.randint(1, 9)]),
            sample=draw.choice([1.0, draw.uniform(0.01, 1)]),
            tie_break=draw.choice([None, "lowest-ids"]),
            span_cap=draw.randint(2, 99),
        )
        written = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in asdict(rules).items()
        }
        assert PRESETS["runs"].changed(f"{key}={value}" for key, value in written.items()) == rules


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["max_words"], "--rule max_words is not KEY=VALUE"),
        (["max_wrds=3"], "unknown rule 'max_wrds' (did you mean 'max_words'?)"),
        (["unit=line", "unit=line"], "unit is given twice"),
        (["max_words=2.5"], "max_words='2.5' must be a whole number, or null for no limit"),
        (["max_words="], "max_words='' must be a whole number"),
        ([f"max_words={10**20}"], "at most"),
        (["interleave=yes"], "interleave='yes'; it is one of: true, false"),
        (["sample=half"], "sample='half' must be a number"),
        (['forbid=["a", 1]'], "is not a JSON array of strings"),
        (["forbid=[a, b]"], "is not a JSON array of strings"),
        (["forbid=[the,of]"], "is not a JSON array of strings"),
        (["forbid=['a']"], "is not a JSON array of strings"),
        (['forbid=["a"' + ",[" * 100_000], "is not a JSON array of strings"),
        (["forbid=[0-9"], 'the regex "[0-9" of forbid does not compile'),
        (["sample_salt=\ud800"], "lone surrogate"),
    ],
)
def test_text_that_is_no_value_of_its_rule_is_an_error(settings, message):
    with pytest.raises(UserError) as error:
        PRESETS["digits"].changed(settings)
    assert message in str(error.value)
