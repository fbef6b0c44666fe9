"""Labels for the arms of several runs, and lines of the transition chart, by the settings in which the arms differ."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from superbpe.rules import PHASE1, PRESETS
from tokenizer.files import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Settings = Mapping[str, Any]
    """Settings of an arm, see `experiments.settings.resolved`; empty if an earlier version recorded the run."""

_SHORT = {"transition": "t", "vocab_size": "vocab"}
_TRANSITION = "superbpe.transition"
# Arms on one line of the transition chart may differ in these.
_WITHIN_A_LINE = ("vocab_size", _TRANSITION)
_LONGEST = 32


def describe_phase1(tokenizers: Mapping[str, Any]) -> str:
    """A sentence about tokenizers by label that differ in the pattern or the unit of phase 1; empty if they do not."""
    alike: dict[str, list[str]] = {}
    for label, tokenizer in tokenizers.items():
        pattern = getattr(tokenizer, "pattern", None)  # other software's tokenizers have none
        if pattern is not None and pattern.name == "none":  # bytes
            continue
        unit = getattr(tokenizer, "provenance", {}).get("phase1", {}).get("unit", "document")
        name = "other software" if pattern is None else pattern.name if pattern.name != "custom" else pattern.regex
        alike.setdefault(f"{_shown(name)} in {unit}s", []).append(label)
    if len(alike) < 2:
        return ""
    parts = (f"{phase1} ({', '.join(labels)})" for phase1, labels in alike.items())
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
        places = [i for i, each in enumerate(kinds) if each == kind]
        for i, text in zip(places, _differences([settings[i] for i in places]), strict=True):
            labels[i] = f"{kind} {text}".strip()
    return _distinct(labels, unique)


def lines(
    labels: Sequence[str], sizes: Sequence[int], settings: Sequence[Settings], superwords: Sequence[bool]
) -> list[list[str]]:
    """Find the lines of the transition chart that each arm is on.

    The superword arms on a line differ only in their transition. A BPE arm is the end of every line with its vocabulary
    size and settings.

    Args:
        labels: Distinct labels of the arms.
        sizes: Size of each vocabulary.
        settings: Settings of each arm; an arm without settings has a line of its own.
        superwords: Whether each arm has a phase 2.
    """
    rest = [{key: value for key, value in each.items() if key not in _WITHIN_A_LINE} for each in settings]
    members: dict[str, list[int]] = {}
    for i, phase2 in enumerate(superwords):
        if phase2:
            members.setdefault(digest([sizes[i], rest[i] or labels[i]]), []).append(i)
    firsts = [line[0] for line in members.values()]
    texts = _differences([rest[i] for i in firsts])
    names = _distinct(
        [f"{sizes[i]:,} {text}".strip() for i, text in zip(firsts, texts, strict=True)], [labels[i] for i in firsts]
    )
    found: list[list[str]] = [[] for _ in labels]
    for name, line in zip(names, members.values(), strict=True):
        first = line[0]
        ends = [i for i, each in enumerate(settings) if sizes[i] == sizes[first] and _ends_line(each, settings[first])]
        for i in (*line, *ends):
            found[i].append(name)
    return found


def _ends_line(arm: Settings, superword: Settings) -> bool:
    """Whether an arm is the BPE arm with a superword arm's settings of phase 1 and of the model."""
    ignored = ("recipe", *_WITHIN_A_LINE)
    return arm.get("recipe") == "bpe" and all(
        superword.get(key) == value for key, value in arm.items() if key not in ignored
    )


def _differences(group: Sequence[Settings]) -> list[str]:
    """The settings of each arm in which it differs from others that have the same setting.

    Where presets differ, the name of the preset replaces all settings that follow from it.
    """
    presets = [_preset(each) for each in group]
    group = [{**each, "preset": name} if name else each for each, name in zip(group, presets, strict=True)]
    values: dict[str, set[str]] = {}
    for each in group:
        for key, value in each.items():
            values.setdefault(key, set()).add(json.dumps(value))
    differing = {key for key, found in values.items() if len(found) > 1}
    short = _names(differing)
    texts = []
    for each, name in zip(group, presets, strict=True):
        implied = _preset_settings(name) if name and "preset" in differing else {}
        told = [(key, each[key]) for key in differing & each.keys() if key not in implied or each[key] != implied[key]]
        # The transition comes first: it is swept most often.
        told.sort(key=lambda item: (item[0] != _TRANSITION, item[0]))
        texts.append(" ".join(f"{short[key]}={_shown(value)}" for key, value in told))
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
    found: Settings = json.loads(
        json.dumps({**rules, "pattern": PHASE1[name]["pattern"], "bpe.unit": PHASE1[name]["unit"]})
    )
    return found


def _distinct(texts: Sequence[str], unique: Sequence[str]) -> list[str]:
    """Append the unique string to every text that occurs more than once."""
    return [
        f"{text} ({name})".lstrip() if texts.count(text) > 1 else text for text, name in zip(texts, unique, strict=True)
    ]


def _names(keys: Iterable[str]) -> dict[str, str]:
    """Shorten keys to their last part where that is unambiguous.

    >>> _names(["superbpe.transition", "preset"])
    {'superbpe.transition': 't', 'preset': 'preset'}
    """
    found = {key: _SHORT.get(last, last) for key in keys for last in [key.rpartition(".")[2]]}
    names = list(found.values())
    return {key: name if names.count(name) == 1 else key for key, name in found.items()}


def _shown(value: Any) -> str:
    """A value as on the command line; the middle of a long value is left out.

    >>> _shown("a b"), _shown(None), _shown([": "])
    ('a b', 'null', '[": "]')
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"
