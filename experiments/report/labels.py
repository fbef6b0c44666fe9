"""Labels for the arms of several runs, made of the settings in which the runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.results import ArmRecord

_SHORT = {"transition": "t", "transition_merges": "merges", "vocab_size": "vocab", "superbpe": "preset"}
# Settings that are not part of a label: folders, devices, output, and seeds.
_SILENT = (
    "arms",
    "reference",
    "artifacts",
    "wandb",
    "project",
    "experiment",
    "lm.train.seed",
    "lm.n_seeds",
    "lm.train.device",
)
_SILENT_GROUPS = ("runner", "report", "hydra")
_TRANSITION = ("superbpe.transition", "superbpe.transition_merges")
_SIZE = ("bpe.vocab_size", "superbpe.vocab_size")
_LONGEST = 32


class Told(NamedTuple):
    """What distinguishes a tokenizer from others.

    Attributes:
        label: Label of the tokenizer.
        series: The label without kind, transition and size.
    """

    label: str
    series: str


def settings(overrides: Iterable[str], arm: ArmRecord) -> dict[str, str]:
    """Return the overrides that affect an arm and its model; the last of repeated keys counts.

    Settings of phase 2 do not affect an arm without phase 2, except for the preset, which also sets phase 1.

    Args:
        overrides: Overrides as on the command line.
        arm: The arm.
    """
    found = {}
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        group, name, *_ = [*key.split("."), ""]
        silent = key in _SILENT or key == "bpe.train_size" or group in _SILENT_GROUPS
        other_arm = group == "arms" and name != arm.key
        if not silent and not other_arm and (arm.trained_phase2 or key == "superbpe" or group != "superbpe"):
            found[key] = value
    return found


def name_all(
    kinds: Sequence[str], superwords: Sequence[bool], told: Sequence[Mapping[str, str]], unique: Sequence[str]
) -> list[Told]:
    """Give every tokenizer a distinct label.

    Args:
        kinds: Kind of each tokenizer: `BPE`, `SuperBPE`.
        superwords: Whether each has a second phase.
        told: Settings of each.
        unique: A unique string for each, used where the settings are the same.
    """
    # Settings of phase 2 are compared among superword tokenizers only; the others have none.
    two_phases = [each for each, second in zip(told, superwords, strict=True) if second] or [{}]
    common = set.intersection(*(set(each.items()) for each in told))
    common |= {
        (key, value)
        for key, value in set.intersection(*(set(each.items()) for each in two_phases))
        if key.partition(".")[0] == "superbpe"
    }
    apart = [{key: value for key, value in each.items() if (key, value) not in common} for each in told]
    short = _names({key for each in apart for key in each})
    parts = [[(key, f"{short[key]}={_shown(value)}") for key, value in sorted(each.items())] for each in apart]
    # The transition comes first: it is swept most often.
    parts = [sorted(each, key=lambda part: part[0] not in _TRANSITION) for each in parts]
    labels = [" ".join([kind, *(text for _, text in each)]) for kind, each in zip(kinds, parts, strict=True)]
    labels = [
        f"{label} ({name})" if labels.count(label) > 1 else label for label, name in zip(labels, unique, strict=True)
    ]
    series = [" ".join(text for key, text in each if key not in (*_TRANSITION, *_SIZE)) for each in parts]
    return [Told(*each) for each in zip(labels, series, strict=True)]


def _names(keys: Iterable[str]) -> dict[str, str]:
    """Shorten keys to their last part where that is unambiguous.

    >>> _names(["superbpe.transition", "superbpe"])
    {'superbpe.transition': 't', 'superbpe': 'preset'}
    """
    found = {key: _SHORT.get(last, last) for key in keys for last in [key.rpartition(".")[2]]}
    names: list[Any] = list(found.values())
    return {key: name if names.count(name) == 1 else key for key, name in found.items()}


def _shown(value: str) -> str:
    """A value without surrounding quotes; the middle of a long value is left out.

    >>> _shown("'a b'")
    'a b'
    """
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    half = _LONGEST // 2
    return value if len(value) <= _LONGEST else f"{value[: half - 1]}…{value[-half:]}"
