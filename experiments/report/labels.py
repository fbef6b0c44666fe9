"""Labels for the arms of several runs, by the settings in which the arms differ."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from superbpe.rules import PHASE1, PRESETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Settings = Mapping[str, Any]
    """Settings of an arm, see `experiments.settings.resolved`; empty if an earlier version recorded the run."""

_SHORT = {"superbpe.transition": "t", "vocab_size": "vocab"}
_TRANSITION = "superbpe.transition"
_LONGEST = 32


def describe_phase1(tokenizers: Mapping[str, Any]) -> str:
    """A sentence about tokenizers by label that differ in the pattern or the unit of phase 1; empty if they do not."""
    by_phase1: dict[str, list[str]] = {}
    patterns, units = set[str](), set[str]()
    for label, tokenizer in tokenizers.items():
        pattern = getattr(tokenizer, "pattern", None)  # other software's tokenizers have none
        if pattern is not None and pattern.name == "none":  # bytes
            continue
        name = "unknown" if pattern is None else pattern.name
        if pattern is not None and name == "custom":
            name = pattern.regex
        phase1 = getattr(tokenizer, "provenance", {}).get("phase1")
        if phase1 is None and pattern is not None and len(tokenizer.superword_ids()):
            continue  # read from a file: this is the pattern of its superwords, and that of phase 1 is unknown
        unit = "" if phase1 is None else f" in {phase1.get('unit', 'document')}s"
        patterns.add(name)
        units |= {unit} - {""}
        by_phase1.setdefault(f"{_shown(name)}{unit}", []).append(label)
    if len(patterns) < 2 and len(units) < 2:
        return ""
    parts = (f"{phase1} ({', '.join(labels)})" for phase1, labels in by_phase1.items())
    return f"The tokenizers differ in the pattern or unit of phase 1: {'; '.join(parts)}."


def label_all(kinds: Sequence[str], settings: Sequence[Settings], unique: Sequence[str]) -> list[str]:
    """Give every arm a distinct label: its kind, and the settings in which it differs from others of that kind.

    Args:
        kinds: Kind of each arm: `BPE`, `SuperBPE`.
        settings: Settings of each.
        unique: A unique string for each, used where the settings are the same or unknown.
    """
    labels = list(kinds)
    for kind in set(kinds):
        places = [i for i, of_arm in enumerate(kinds) if of_arm == kind]
        for i, text in zip(places, _differences([settings[i] for i in places]), strict=True):
            labels[i] = f"{kind} {text}".strip()
    return [
        f"{label} ({name})".lstrip() if labels.count(label) > 1 else label
        for label, name in zip(labels, unique, strict=True)
    ]


def _differences(group: Sequence[Settings]) -> list[str]:
    """The settings of each arm in which it differs from others that have the same setting.

    Where presets differ, the name of the preset replaces all settings that follow from it.
    """
    presets = [_preset(settings) for settings in group]
    group = [{**arm, "preset": name} if name else arm for arm, name in zip(group, presets, strict=True)]
    values: dict[str, set[str]] = {}
    for settings in group:
        for key, value in settings.items():
            values.setdefault(key, set()).add(json.dumps(value))
    differing = {key for key, choices in values.items() if len(choices) > 1}
    texts = []
    for settings, name in zip(group, presets, strict=True):
        implied = _preset_settings(name) if name and "preset" in differing else {}
        keys = [key for key in differing & settings.keys() if key not in implied or settings[key] != implied[key]]
        keys.sort(key=lambda key: (key != _TRANSITION, key))  # the transition first: it is swept most often
        texts.append(" ".join(f"{_SHORT.get(key, key)}={_shown(settings[key])}" for key in keys))
    return texts


def _preset(settings: Settings) -> str | None:
    """The preset with the fewest differences from an arm's settings; None for an arm that trains no phase 2."""
    if settings.get("recipe") != "superbpe":
        return None
    return min(
        PRESETS, key=lambda name: sum(settings.get(key) != value for key, value in _preset_settings(name).items())
    )


@cache
def _preset_settings(name: str) -> Settings:
    """The settings that a preset sets, apart from the transition."""
    rules = {f"superbpe.{key}": value for key, value in dataclasses.asdict(PRESETS[name]).items()}
    settings: Settings = json.loads(
        json.dumps({**rules, "pattern": PHASE1[name]["pattern"], "bpe.unit": PHASE1[name]["unit"]})
    )
    return settings


def _shown(value: Any) -> str:
    """A value as on the command line; the middle of a long value is left out.

    >>> _shown("a b"), _shown(None), _shown([": "])
    ('a b', 'null', '[": "]')
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"
