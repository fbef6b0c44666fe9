"""The model that will be deployed, as users name it: a preset of `configs/deployment`, and settings."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from experiments.numbers import with_sizes
from lm.evaluate.deployment import Deployment
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable


def presets() -> dict[str, Traversable]:
    """Files of the presets of `deployment`, by name."""
    paths = sorted((files("configs") / "deployment").iterdir(), key=lambda path: path.name)
    return {path.name.removesuffix(".yaml"): path for path in paths}


def read(words: Sequence[str]) -> Deployment:
    """The deployment of presets and settings; later ones override earlier ones. They are data, without interpolation.

    Raises:
        UserError: A preset or a setting is unknown, or a value is not allowed.
    """
    known = presets()
    kinds = {name: (*get_args(hint), hint)[0] for name, hint in get_type_hints(Deployment).items()}  # of `float | None`
    settings: dict[str, Any] = {}
    for word in words:
        lines = known[word].read_text(encoding="utf-8").splitlines() if word in known else [word.replace("=", ": ")]
        for key, colon, value in (line.partition(": ") for line in lines if line and not line.startswith("#")):
            if not colon:
                hint = f"{did_you_mean(word, known)} nor KEY=VALUE; the presets are {', '.join(known)}"
                raise UserError(f"deployment: {word} is neither a preset{hint}")
            if key not in kinds:
                raise UserError(f"deployment: {key}={value}: unknown setting{did_you_mean(key, kinds)}")
            try:
                settings[key] = kinds[key](with_sizes(value))
            except ValueError:
                raise UserError(f"deployment: {key}={value} is not a number; write one, such as {key}=1000") from None
    return Deployment(**settings)
