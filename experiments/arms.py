"""The arms of an experiment: the tokenizers that it compares, with their resolved settings."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config import BpeConfig, PatternConfig, SuperbpeConfig, build, check_choice, part, schema
from superbpe.rules import PHASE1, PRESETS, TRANSITION, Rules
from superbpe.transition import AUTO, competes, resolve_transition
from tokenizer import patterns
from tokenizer.definition import check_special_tokens
from tokenizer.errors import UserError, did_you_mean
from tokenizer.patterns import resolve

if TYPE_CHECKING:
    from collections.abc import Collection

    from experiments.config import ArmConfig, Config
    from tokenizer.patterns import Pattern

Recipe = Literal["bpe", "superbpe", "bytes", "file", "pretrained"]
RECIPES: tuple[str, ...] = get_args(Recipe)
_GROUPS = ("pattern", "bpe", "superbpe")
# What applies to the arms of a recipe.
_USEFUL = {"bpe": ("preset", "pattern", "bpe"), "superbpe": ("preset", *_GROUPS), "bytes": ("bpe",)}


@dataclass(frozen=True)
class Arm:
    """One tokenizer of the comparison.

    Attributes:
        name: Key of the arm in the configuration; part of the names of its stages and metrics.
        label: Name of the arm in tables and charts.
        recipe: How the tokenizer is made.
        pattern: Phase-1 pattern.
        bpe: Settings of phase 1.
        superbpe: Settings of phase 2.
        source: File or repository of an existing tokenizer.
        revision: Revision of the repository.
    """

    name: str
    label: str
    recipe: Recipe
    pattern: PatternConfig
    bpe: BpeConfig
    superbpe: SuperbpeConfig
    source: str | None = None
    revision: str | None = None

    @property
    def trained(self) -> bool:
        """Whether the experiment trains its merges."""
        return self.recipe in ("bpe", "superbpe")

    @cached_property
    def phase1_pattern(self) -> Pattern:
        """Phase 1's pattern, resolved."""
        return resolve(self.pattern.regex or self.pattern.name)

    @property
    def vocab_size(self) -> int:
        """Size of the trained vocabulary, special tokens included."""
        return (self.superbpe.vocab_size if self.recipe == "superbpe" else None) or self.bpe.vocab_size

    @property
    def competing(self) -> bool:
        """Whether superwords compete with phase-1 merges, so that training determines the transition."""
        return self.superbpe.transition == AUTO and self.superbpe.transition_merges is None

    @property
    def transition_size(self) -> int:
        """The transition as a number of tokens without special tokens; its maximum if training determines it."""
        if self.competing:
            return self.vocab_size - len(self.bpe.special_tokens)
        given, merges = self.superbpe.transition, self.superbpe.transition_merges
        return resolve_transition(self.vocab_size, given if merges is None else None, merges)

    @property
    def transition_key(self) -> str:
        """The setting that determines the transition."""
        return "superbpe.transition" if self.superbpe.transition_merges is None else "superbpe.transition_merges"

    @property
    def phase1_size(self) -> int:
        """Size of the phase-1 vocabulary that the arm needs, special tokens included."""
        if self.recipe == "bpe":
            return self.bpe.vocab_size
        return self.transition_size + len(self.bpe.special_tokens)


def resolve_arms(config: Config) -> list[Arm]:
    """Resolve every arm of a configuration: its recipe, and its own settings on top of the experiment's.

    Returns:
        The arms in the configured order, with the reference first.

    Raises:
        UserError: If an arm has no recipe or an invalid name, a setting has a wrong value, or two arms have the same
            label.
    """
    for name in config.arms:
        check_name(name)
    if not config.arms:
        raise UserError("no arms to compare; choose some, such as arms=[bpe,superbpe]")
    arms = [_resolve(name, arm, config) for name, arm in config.arms.items()]
    labels = [arm.label for arm in arms]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two arms have the label {twice[0]!r}; give one of them another label with arms.NAME.label=…")
    if config.reference is None:
        return arms
    if config.reference not in config.arms:
        raise UserError(
            f"reference={config.reference} is not an arm{did_you_mean(config.reference, config.arms)} "
            f"(the arms are: {', '.join(config.arms)})"
        )
    return sorted(arms, key=lambda arm: arm.name != config.reference)


def check_name(name: str) -> None:
    """Raise a UserError unless `name` is a valid name for an arm."""
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise UserError(f"arms={name}: the name of an arm consists of letters, digits, '_' and '-'")


def check_arms(config: Config) -> None:
    """Raise a UserError for every mistake in the arms that can be found before any text is read."""
    for arm in resolve_arms(config):
        try:
            _check(arm)
        except UserError as error:
            chosen = config.arms[arm.name]
            if not (chosen.preset or chosen.pattern or chosen.bpe or chosen.superbpe):  # the experiment's settings
                raise
            raise UserError(f"arm {arm.name}: {error}") from None


def override_presets(values: dict[str, Any], keys: Collection[str]) -> None:
    """Let settings of the experiment that were given explicitly override the presets of arms.

    Args:
        values: The configuration as plain values; the settings become those of each arm with a preset.
        keys: The keys that were given, such as `superbpe.max_words`, or `pattern`.
    """
    for arm in values["arms"].values():
        for group in _GROUPS:
            if arm["preset"] and group in _USEFUL.get(arm["recipe"], ()):
                whole = group == "pattern" and group in keys
                given = {key: value for key, value in values[group].items() if whole or f"{group}.{key}" in keys}
                arm[group] = _decisive(given) | _decisive(arm[group])


def _resolve(name: str, chosen: ArmConfig, config: Config) -> Arm:
    at = f"arms.{name}"
    recipe = chosen.recipe or ("file" if chosen.file else "pretrained" if chosen.pretrained else None)
    if recipe is None:
        near = did_you_mean(name, RECIPES)
        raise UserError(
            f"{at} has no recipe{near}; add {at}.recipe={'|'.join(RECIPES[:3])}, {at}.file=PATH or "
            f"{at}.pretrained=REPOSITORY"
        )
    check_choice(f"{at}.recipe", recipe, RECIPES)
    sources = {"file": chosen.file, "pretrained": chosen.pretrained}
    for key, value in sources.items():
        if value is None and recipe == key:
            raise UserError(f"{at}.recipe={recipe} needs {at}.{key}=…")
        if value is not None and recipe != key:
            raise UserError(f"{at}.{key}={value} and {at}.recipe={recipe} exclude each other; remove one of them")
    if chosen.revision is not None and recipe != "pretrained":
        raise UserError(f"{at}.revision={chosen.revision} is for {at}.pretrained; remove it")
    for key in ("preset", *_GROUPS):
        if getattr(chosen, key) and key not in _USEFUL.get(recipe, ()):
            raise UserError(f"{at}.{key} has no effect on an arm with recipe={recipe}; remove it")
    base = _preset(at, chosen.preset, config)
    pattern, bpe, superbpe = (
        _overridden(settings, getattr(chosen, key), f"{at}.{key}") for key, settings in zip(_GROUPS, base, strict=True)
    )
    return Arm(
        name=name,
        label=chosen.label or name,
        recipe=cast("Recipe", recipe),
        pattern=pattern,
        bpe=bpe,
        superbpe=superbpe,
        source=sources.get(recipe),
        revision=chosen.revision,
    )


def _preset(at: str, preset: str | None, config: Config) -> tuple[PatternConfig, BpeConfig, SuperbpeConfig]:
    """Base settings of an arm: the experiment's, or a preset's rules and phase 1."""
    if preset is None:
        return config.pattern, config.bpe, config.superbpe
    check_choice(f"{at}.preset", preset, PRESETS)
    rules, phase1 = PRESETS[preset], PHASE1[preset]
    superbpe = dataclasses.replace(
        config.superbpe, **vars(rules), transition=TRANSITION[preset], transition_merges=None
    )
    return PatternConfig(name=phase1["pattern"]), dataclasses.replace(config.bpe, unit=phase1["unit"]), superbpe


def _overridden(settings: Any, changes: dict[str, Any], at: str) -> Any:
    """Settings with some keys changed, type-checked like the experiment's."""
    if not changes:
        return settings
    names = [field.name for field in dataclasses.fields(settings)]
    for key in changes:
        if key not in names:
            raise UserError(f"unknown configuration key '{at}.{key}'{did_you_mean(key, names)}")
    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(schema(settings.__class__)), dataclasses.asdict(settings), _decisive(changes)
        )
        values = cast("dict[str, Any]", OmegaConf.to_container(merged, throw_on_missing=True))
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "")
        raise UserError(f"{at}.{key}: {str(error).splitlines()[0]}") from None
    return build(type(settings), values, f"{at}.")


def _decisive(changes: dict[str, Any]) -> dict[str, Any]:
    """Add None for every setting that would otherwise decide instead of a given one."""
    pairs = {"name": "regex", "transition": "transition_merges"}
    return {other: None for given, other in pairs.items() if given in changes} | changes


def _check(arm: Arm) -> None:
    if not arm.trained:
        return
    if arm.pattern.regex is None:
        if arm.pattern.name == "custom":
            raise UserError("pattern=custom needs its regex: add 'pattern.regex=\"REGEX\"'")
        check_choice("pattern.name", arm.pattern.name, patterns.NAMES)
    resolve(arm.pattern.regex or arm.pattern.name)
    check_special_tokens(arm.bpe.special_tokens)
    specials = len(arm.bpe.special_tokens)
    for key, size in (("bpe", arm.bpe.vocab_size), ("superbpe", arm.vocab_size)):
        if size < 256 + specials:
            raise UserError(
                f"{key}.vocab_size={size} is below 256 bytes + {specials} special token(s); "
                f"use at least {256 + specials}"
            )
    if arm.recipe == "superbpe":
        _check_phase2(arm, specials)


def _check_phase2(arm: Arm, specials: int) -> None:
    superbpe = arm.superbpe
    rules = part(Rules, superbpe)
    rules.check()
    competes(rules, superbpe.transition, superbpe.transition_merges)
    if not 256 <= arm.transition_size <= arm.vocab_size - specials:
        raise UserError(
            f"the transition at {arm.transition_size} tokens is not between 256 (bytes alone) and "
            f"{arm.vocab_size - specials} (the vocabulary of {arm.vocab_size} without its special tokens); change "
            f"{arm.transition_key} or bpe.vocab_size"
        )
