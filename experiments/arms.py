"""The arms of an experiment: the tokenizers that it compares, with their resolved settings."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from experiments.config import BpeConfig, SuperbpeConfig, part, schema
from superbpe.rules import PHASE1, PRESETS, TRANSITION, Rules
from superbpe.transition import AUTO, competes, resolve_transition
from tokenizer.definition import check_special_tokens
from tokenizer.errors import UserError, check_choice, did_you_mean, quoted
from tokenizer.patterns import Pattern, resolve
from tokenizer.train.balanced import check_balance
from tokenizer.train.bpe import check_forbid
from tokenizer.train.forced import NOT_FORCED, check_forced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.config import ArmConfig, Config

T = TypeVar("T")
Recipe = Literal["bpe", "superbpe", "bytes", "file", "pretrained"]
_USEFUL = {
    "bpe": ("pattern", "bpe"),
    "bpe_same": ("preset", "pattern", "bpe", "superbpe"),
    "superbpe": ("preset", "pattern", "bpe", "superbpe"),
    "bytes": ("bpe",),
    "file": ("file", "pattern", "end_of_text"),
    "pretrained": ("pretrained", "revision", "pattern", "end_of_text"),
}
"""Recipes, and the keys of an arm that have an effect on each."""


@dataclass(frozen=True)
class Arm:
    """One tokenizer of the comparison.

    Attributes:
        name: Key of the arm in the configuration; part of the names of its stages and metrics.
        label: Name of the arm in tables and charts.
        recipe: How the tokenizer is made.
        pattern: Phase-1 pattern, resolved.
        source: File or repository of an existing tokenizer.
        source_pattern: Its pattern; None if its format has one.
        end_of_text: Token that ends its documents; None for its own.
    """

    name: str
    label: str
    recipe: Recipe
    pattern: Pattern
    bpe: BpeConfig
    superbpe: SuperbpeConfig
    source: str | None = None
    source_pattern: str | None = None
    revision: str | None = None
    end_of_text: str | None = None

    @property
    def trained(self) -> bool:
        """Whether the experiment trains its merges."""
        return self.recipe in ("bpe", "superbpe")

    @property
    def vocab_size(self) -> int:
        """Size of the trained vocabulary, special tokens included."""
        return (self.superbpe.vocab_size if self.recipe == "superbpe" else None) or self.bpe.vocab_size

    @property
    def competing(self) -> bool:
        """Whether superwords compete with phase-1 merges, so that training determines the transition."""
        return self.superbpe.transition == AUTO

    @property
    def transition_size(self) -> int:
        """The transition as a number of tokens without special tokens; its maximum if training determines it."""
        if self.competing:
            return self.vocab_size - len(self.bpe.special_tokens)
        return resolve_transition(self.vocab_size, self.superbpe.transition)

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
    arms = resolve_arms(config)
    weights = config.corpus.weights
    weighted = any(arm.trained and (arm.recipe == "superbpe" or not arm.bpe.separate_counts) for arm in arms)
    for arm in arms:
        try:
            _check(arm, weights, weighted)
        except UserError as error:
            chosen = config.arms[arm.name]
            if not (chosen.preset or chosen.pattern or chosen.bpe or chosen.superbpe):  # the experiment's settings
                raise
            raise UserError(f"arm {arm.name}: {error}") from None


def _resolve(name: str, chosen: ArmConfig, config: Config) -> Arm:
    at = f"arms.{name}"
    recipe = chosen.recipe
    if not recipe and chosen.file:
        recipe = "file"
    elif not recipe and chosen.pretrained:
        recipe = "pretrained"
    if not recipe:
        raise UserError(
            f"{at} has no recipe{did_you_mean(name, _USEFUL)}; add {at}.recipe={'|'.join(list(_USEFUL)[:4])}, "
            f"{at}.file=PATH or {at}.pretrained=REPOSITORY"
        )
    check_choice(f"{at}.recipe", recipe, tuple(_USEFUL))
    for key, value in dataclasses.asdict(chosen).items():
        if value and key not in ("recipe", "label", *_USEFUL[recipe]):
            raise UserError(f"{at}.{key} has no effect on an arm with recipe={recipe}; remove it")
    source = chosen.file or chosen.pretrained
    if recipe in ("file", "pretrained") and source is None:
        raise UserError(f"{at}.recipe={recipe} needs {at}.{recipe}=…")
    superbpe, bpe, pattern = config.superbpe, config.bpe, config.pattern
    if chosen.preset is not None:
        check_choice(f"{at}.preset", chosen.preset, tuple(PRESETS))
        superbpe = dataclasses.replace(superbpe, **preset_settings(chosen.preset))
    superbpe = overridden(superbpe, chosen.superbpe, f"{at}.superbpe")
    if recipe in ("superbpe", "bpe_same"):
        bpe = dataclasses.replace(bpe, unit=superbpe.phase1_unit or bpe.unit)
        pattern = superbpe.phase1_pattern or pattern
    return Arm(
        name=name,
        label=chosen.label or name,
        recipe=cast("Recipe", "bpe" if recipe == "bpe_same" else recipe),
        pattern=resolve(pattern if source is not None else chosen.pattern or pattern),
        bpe=overridden(bpe, chosen.bpe, f"{at}.bpe"),
        superbpe=superbpe,
        source=source,
        source_pattern=None if source is None else chosen.pattern,
        revision=chosen.revision,
        end_of_text=chosen.end_of_text,
    )


def preset_settings(name: str) -> dict[str, Any]:
    """Keys of `superbpe` that a preset sets."""
    return {
        **dataclasses.asdict(PRESETS[name]),
        "transition": TRANSITION[name],
        "phase1_pattern": PHASE1[name]["pattern"],
        "phase1_unit": PHASE1[name]["unit"],
    }


def overridden(settings: T, changes: dict[str, Any], at: str) -> T:
    """Settings with some keys changed, type-checked like the experiment's."""
    names = [field.name for field in dataclasses.fields(cast("Any", settings))]
    if unknown := [key for key in changes if key not in names]:
        raise UserError(f"unknown configuration key '{at}.{unknown[0]}'{did_you_mean(unknown[0], names)}")
    from omegaconf import OmegaConf  # slow to import
    from omegaconf.errors import OmegaConfBaseException

    try:
        node = OmegaConf.merge(schema(cast("Any", type(settings))), dataclasses.asdict(cast("Any", settings)), changes)
        return cast("T", OmegaConf.to_object(node))
    except OmegaConfBaseException as error:
        raise UserError(f"{at}.{getattr(error, 'full_key', '')}: {str(error).splitlines()[0]}") from None


def _check(arm: Arm, weights: Mapping[str, int], weighted: bool) -> None:
    if not arm.trained:
        return
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
    check_forbid(arm.bpe.forbid)
    check_balance(
        weights, parallel=arm.bpe.parallel, ratios=arm.bpe.ratios, min_pretoken_count=arm.bpe.min_pretoken_count,
        competing=arm.recipe == "superbpe" and arm.competing, weighted=weighted, at="bpe.",
    )  # fmt: skip
    if arm.bpe.forced_tokens:
        if arm.recipe == "superbpe" and arm.competing:
            raise UserError(f"bpe.forced_tokens={quoted(arm.bpe.forced_tokens)} {NOT_FORCED}")
        check_forced(
            arm.bpe.forced_tokens,
            arm.pattern,
            n_merges=arm.phase1_size - 256 - specials,
            unit=arm.bpe.unit,
            special_tokens=arm.bpe.special_tokens,
            forbid=arm.bpe.forbid,
            max_token_bytes=arm.bpe.max_token_bytes,
        )


def _check_phase2(arm: Arm, specials: int) -> None:
    superbpe = arm.superbpe
    rules = part(Rules, superbpe)
    rules.check()
    competes(rules, superbpe.transition)
    if not 256 <= arm.transition_size <= arm.vocab_size - specials:
        raise UserError(
            f"the transition at {arm.transition_size} tokens is not between 256 (bytes alone) and "
            f"{arm.vocab_size - specials} (the vocabulary of {arm.vocab_size} without its special tokens); change "
            "superbpe.transition or bpe.vocab_size"
        )
