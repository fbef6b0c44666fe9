"""The option `--deployment PRESET KEY=VALUE...`, with the presets of the configuration."""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experiments.cli.arguments import with_sizes
from lm.evaluate.deployment import Deployment
from tokenizer.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_deployment(options: argparse.ArgumentParser) -> None:
    """Add `--deployment`, whose words `deployment` reads."""
    options.add_argument(
        "--deployment", nargs="+", default=["dense-8b"], metavar="PRESET|KEY=VALUE",
        help="model to price serving for: a preset of `deployment` and its other settings (%(default)s)",
    )  # fmt: skip


def deployment(words: Sequence[str]) -> Deployment:
    """Read presets and settings; later ones override earlier ones. Hydra, which is slow to import, is not needed.

    Raises:
        UserError: A preset or a setting is unknown, or a value is not allowed.
    """
    presets = {path.name.removesuffix(".yaml"): path for path in (files("configs") / "deployment").iterdir()}
    kinds: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(Deployment)}
    settings: dict[str, Any] = {}
    for word in words:
        lines = presets[word].read_text(encoding="utf-8").splitlines() if word in presets else [word.replace("=", ": ")]
        for key, colon, value in (line.partition(": ") for line in lines if line and not line.startswith("#")):
            if not colon:
                near = did_you_mean(word, presets)
                presets_named = f"the presets are {', '.join(sorted(presets))}"
                raise UserError(f"--deployment {word} is neither a preset{near} nor KEY=VALUE; {presets_named}")
            if key not in kinds:
                raise UserError(f"--deployment {key}={value}: unknown setting{did_you_mean(key, kinds)}")
            try:
                settings[key] = kinds[key](with_sizes(value))
            except ValueError:
                raise UserError(f"--deployment {key}={value} is not a number; write one, such as {key}=1000") from None
    return Deployment(**settings)
