"""The deployment that `--deployment PRESET KEY=VALUE...` names, from the presets of the configuration."""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experiments.cli.arguments import with_sizes
from lm.evaluate.deployment import Deployment
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(Deployment)}


def deployment(words: Sequence[str]) -> Deployment:
    """Read presets and settings; later ones override earlier ones. Hydra, which is slow to import, is not needed.

    Raises:
        UserError: A preset or a setting is unknown, or a value is not allowed.
    """
    presets = {path.name.removesuffix(".yaml"): path for path in (files("configs") / "deployment").iterdir()}
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            settings[key] = with_sizes(value)
        elif word in presets:
            lines = presets[word].read_text(encoding="utf-8").splitlines()
            settings |= dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))
        else:
            raise UserError(
                f"--deployment {word} is neither a preset{did_you_mean(word, presets)} nor KEY=VALUE; the presets are "
                f"{', '.join(sorted(presets))}"
            )
    for key, value in settings.items():
        if key not in _KINDS:
            raise UserError(f"--deployment {key}={value}: unknown setting{did_you_mean(key, _KINDS)}")
        try:
            _KINDS[key](value)
        except ValueError:
            raise UserError(f"--deployment {key}={value} is not a number; write one, such as {key}=1000") from None
    return Deployment(**{key: _KINDS[key](value) for key, value in settings.items()})
