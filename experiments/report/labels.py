"""Names of the arms of several runs: the settings in which their runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.results import ArmRecord

_SHORT = {"transition": "t", "transition_merges": "merges", "vocab_size": "vocab", "superbpe": "preset"}
# Where things lie and run, what is shown, and what models of one tokenizer differ in: no part of a name.
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
    """What tells one tokenizer from others.

    Attributes:
        label: Its name.
        series: The same without transition and size, and without what kind of tokenizer it is.
    """

    label: str
    series: str


def settings(overrides: Iterable[str], arm: ArmRecord) -> dict[str, str]:
    """Keys and values of overrides that matter to an arm and its model; of a key given twice, the last counts.

    Phase 2's settings say nothing about an arm without one, except for the preset, which brings its phase 1.

    Args:
        overrides: As on a command line.
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
    """Name tokenizers apart.

    Args:
        kinds: `BPE`, `SuperBPE`.
        superwords: Whether each has a second phase.
        told: Settings of each.
        unique: Something different for each, for those that settings do not tell apart.
    """
    # What phase 2 was told tells superword tokenizers apart from each other; no other has been told any of it.
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
    # The transition first: sweeps over it are the most frequent.
    parts = [sorted(each, key=lambda part: part[0] not in _TRANSITION) for each in parts]
    labels = [" ".join([kind, *(text for _, text in each)]) for kind, each in zip(kinds, parts, strict=True)]
    labels = [
        f"{label} ({name})" if labels.count(label) > 1 else label for label, name in zip(labels, unique, strict=True)
    ]
    series = [" ".join(text for key, text in each if key not in (*_TRANSITION, *_SIZE)) for each in parts]
    return [Told(*each) for each in zip(labels, series, strict=True)]


def _names(keys: Iterable[str]) -> dict[str, str]:
    """Short names of keys: their last part, where that is no other's.

    >>> _names(["superbpe.transition", "superbpe"])
    {'superbpe.transition': 't', 'superbpe': 'preset'}
    """
    found = {key: _SHORT.get(last, last) for key in keys for last in [key.rpartition(".")[2]]}
    names: list[Any] = list(found.values())
    return {key: name if names.count(name) == 1 else key for key, name in found.items()}


def _shown(value: str) -> str:
    """A value without quotes around it, its middle left out if it is long.

    >>> _shown("'a b'")
    'a b'
    """
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    half = _LONGEST // 2
    return value if len(value) <= _LONGEST else f"{value[: half - 1]}…{value[-half:]}"
