"""Composes and checks a configuration before anything runs; errors suggest the closest key, group or choice."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.arms import check_arms, check_name, preset_settings
from experiments.config import ArmConfig, Config, schema, storable
from experiments.logging.tracking import check_installed
from experiments.numbers import with_sizes
from experiments.shell import setting, with_plain_keys
from superbpe.rules import PRESETS
from tokenizer.errors import UserError, did_you_mean
from tokenizer.fields import limits_of
from tokenizer.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

# Keys below a mapping whose names the user chooses; Hydra adds them only with `++`.
_FREE = re.compile(r"(corpus\.sources|eval\.weights|bpe\.ratios)(\.|$)|arms\.[^.]+\.[^.]+\.")
_SIZES = re.compile(r"(^|[._])bytes(_|$)|(^|\.)(ladder|vocab_size|transition)$")

ConfigStore.instance().store(name="schema", node=schema(Config))
for _preset in PRESETS:
    ConfigStore.instance().store(group="superbpe", name=_preset, node=preset_settings(_preset))


def to_config(cfg: DictConfig, overrides: Sequence[str]) -> Config:
    """Convert the configuration that Hydra composed into the typed one.

    Raises:
        UserError: If a value is missing or not allowed.
    """
    keys = {text.partition("=")[0].lstrip("+") for text in overrides}
    try:
        values = cast("dict[str, Any]", OmegaConf.to_container(cfg))
        values.pop("hydra", None)
        for everywhere, of_superwords in (("pattern", "phase1_pattern"), ("bpe.unit", "phase1_unit")):
            if everywhere in keys and f"superbpe.{of_superwords}" not in keys:
                values["superbpe"][of_superwords] = None
        # Resolved once: a value that was resolved is not an interpolation.
        config = cast("Config", OmegaConf.to_object(OmegaConf.merge(schema(Config), values)))
    except OmegaConfBaseException as error:
        raise _explained(error) from None
    validate(config)
    return config


def validate(config: Config) -> None:
    """Raise a UserError for every mistake that can be found before any text is read."""
    check_installed(config.logger)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.lm.train.device):
        raise UserError(f"lm.train.device={config.lm.train.device} is unknown; use auto, cpu, cuda or cuda:NUMBER")
    _check_corpus(config)
    for amount in config.budget.rungs():
        if config.budget.train_flops is None:
            dataclasses.replace(config.lm.train, train_bytes=amount).check_schedule()
    check_arms(config)


def _check_corpus(config: Config) -> None:
    """Raise a UserError for settings of the corpus that contradict each other or are out of range."""
    given = [name for name in ("paths", "sources", "dataset") if getattr(config.corpus, name)]
    if config.corpus.source == "files" and not given:
        raise UserError(
            "no text: give corpus.paths=[FILES, FOLDERS OR GLOBS] or corpus.dataset=NAME, or use corpus=embedded"
        )
    if config.corpus.source == "embedded" and given:
        raise UserError(
            f"corpus.{given[0]} is given, but the corpus is the embedded one; "
            "add corpus=files (or corpus=hf, for a dataset)"
        )
    if len(given) > 1:
        raise UserError(f"corpus.{given[0]} and corpus.{given[1]} are both given; the text comes from one of them")
    config.corpus.check("corpus.")
    if not config.corpus.heldout_fraction and not config.corpus.heldout_paths:
        raise UserError(
            "no documents are held out; set corpus.heldout_fraction (0.01, for example) or corpus.heldout_paths"
        )


def load(overrides: Sequence[str] = (), config_dir: str | None = None) -> Config:
    """Compose and check the configuration of one run.

    Args:
        overrides: Overrides as on the command line: `["corpus=files", "corpus.paths=[a.txt]"]`.
        config_dir: Folder with additional configuration files.

    Raises:
        UserError: If a key, a group or a value is wrong.
    """
    overrides = normalized(overrides)
    with initialize_config_module("configs", version_base="1.3"):
        _parse(overrides)
        return to_config(_compose(overrides, config_dir), overrides)


def check(overrides: Sequence[str], config_dir: str | None = None, *, sweep: bool = False) -> dict[str, list[str]]:
    """Check a command line. In a sweep, check every value once, together with the first values of the other keys.

    Args:
        overrides: What the user typed after the command, without flags.
        config_dir: Folder with additional configuration files.
        sweep: Whether `a=1,2` means two runs.

    Returns:
        The values of every swept key.

    Raises:
        UserError: If a key, a group or a value is wrong.
    """
    for text in overrides:
        _check_storable(text, shown(text))
    with initialize_config_module("configs", version_base="1.3"):
        parsed = _parse(normalized(overrides))
        for override in parsed:
            if override.is_sweep_override() and not sweep:
                raise UserError(f"{override.input_line} lists several values; add --multirun to run each of them")
        values = list(map(_values, parsed))
        firsts = [texts[0] for texts in values]
        cells = [firsts]
        for i, texts in enumerate(values):
            cells.extend([*firsts[:i], other, *firsts[i + 1 :]] for other in texts[1:])
        for cell in cells:
            composed = _compose(cell, config_dir)
            _check_storable(OmegaConf.to_container(composed), f"a file in {config_dir}")
            to_config(composed, cell)
    return {
        override.key_or_group: [text.partition("=")[2] for text in texts]
        for override, texts in zip(parsed, values, strict=True)
        if override.is_sweep_override()
    }


def _check_storable(settings: Any, where: str) -> None:
    """Raise a UserError for a secret in settings: Hydra stores them with the run, as they are written."""
    if storable(settings) != settings:
        raise UserError(
            f"{where} has a password or a query in a URL, which would be stored with the run; "
            "put the URL in an environment variable: corpus.paths=['${oc.env:NAME}']"
        )


def first_cell(overrides: Sequence[str], config_dir: str | None = None) -> DictConfig:
    """Return the configuration of a sweep's first cell, with Hydra's own settings; `check` has accepted it."""
    with initialize_config_module("configs", version_base="1.3"):
        return _compose([_values(each)[0] for each in _parse(normalized(overrides))], config_dir, hydra=True)


def normalized(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with sizes such as `10GB` as numbers, and with `++` for keys that the user names."""
    texts = []
    for text in overrides:
        key, equals, value = text.partition("=")
        adds = "++" if _FREE.match(key) else ""
        if adds:
            value = with_plain_keys(value)
        if _SIZES.search(key):
            value = with_sizes(value)
        texts.append(f"{adds}{key}{equals}{value}")
    return texts


def choices(group: str) -> list[str]:
    """Return the sorted choices of a configuration group; an empty list for a key."""
    with initialize_config_module("configs", version_base="1.3"):
        return _options(group)


def helped(cls: type = Config, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The main settings with what they are, as the fields declare it."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if text := limits_of(field).help:
            yield f"{prefix}{field.name}", text
        if dataclasses.is_dataclass(inner := hints[field.name]):
            yield from helped(cast("type", inner), f"{prefix}{field.name}.")


@functools.cache  # takes 40 ms
def keys() -> tuple[str, ...]:
    """Return every key that an override may name."""
    return tuple(_dotted(schema(Config)))


def _dotted(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, node):
        yield f"{prefix}{key}"
        child = None if OmegaConf.is_missing(node, key) else node[key]
        if isinstance(child, DictConfig):
            yield from _dotted(child, f"{prefix}{key}.")


def _loader() -> ConfigLoader:
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    return hydra.config_loader


def _options(group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
    # Asks the repository, because `loader.get_group_options` first copies it, which takes 20 ms.
    return _loader().repository.get_group_options(group, kind)  # type: ignore[attr-defined, no-any-return]


def _parse(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides, and let Hydra know the arms that they choose; an arm without a file starts empty."""
    parser = OverridesParser.create(config_loader=_loader())
    parsed: list[Override] = []
    for text in overrides:
        try:
            parsed.extend(parser.parse_overrides([text]))
        except HydraException:
            raise UserError(
                f"cannot read the override {text!r}: write key=value (for text: corpus=files corpus.paths=[FILE]), "
                "lists as key=[a,b], and quote a value with spaces, commas, brackets or ~ twice: 'key=\"a b\"'"
            ) from None
        if parsed[-1].key_or_group == "arms":
            for name in filter(None, map(str.strip, re.split(r"choice\(|[\[\]{},'\"()]", text.partition("=")[2]))):
                check_name(name)
                if name not in _options("arms"):
                    ConfigStore.instance().store(name, {"recipe": None}, group="arms", package=f"arms.{name}")
    return parsed


def _values(override: Override) -> list[str]:
    """Return one override per value: several for a sweep, otherwise one."""
    if not override.is_discrete_sweep():
        return [override.input_line or ""]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _compose(overrides: Sequence[str], config_dir: str | None, *, hydra: bool = False) -> DictConfig:
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir {config_dir} is not a folder; name one with configuration files")
    extra = [] if config_dir is None else [setting("hydra.searchpath", [f"file://{Path(config_dir).resolve()}"])]
    try:
        return compose("config", overrides=[*overrides, *extra], return_hydra_config=hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from None
    except (ValueError, TypeError) as error:  # the choice of a group is not a name
        raise UserError(f"{error}; write GROUP=NAME, or ~GROUP to leave a group out") from None


def _explained(error: BaseException) -> UserError:
    """Convert an error of Hydra or OmegaConf into a one-line UserError."""
    while isinstance(error.__cause__, (HydraException, OmegaConfBaseException)):
        error = error.__cause__
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, chosen = (error.missing_cfg_file or "").rpartition("/")
        hint = did_you_mean(chosen, error.options)
        known = ", ".join(error.options)
        if group == "hydra/launcher":
            known += "; launchers come with an extra: pip install '.[sweep]' in the clone"
        return UserError(f"{group}={chosen} does not exist{hint}; known: {known}")
    lines = str(error).splitlines() or [type(error).__name__]
    where = next((line.split(":", 1)[1].strip() for line in lines if line.strip().startswith("full_key:")), "")
    message = lines[0].strip()
    arm = where.removeprefix("arms.")
    if (where.startswith("arms.") and "." not in arm) or "not a subclass of Arm" in message:
        return UserError(f"the arm {arm!r} is not chosen; add it to the list: arms=[bpe,superbpe,{arm}]")
    if unknown := re.search(r"Key '(.+?)' (?:not in|is not in)", str(error)):
        return _unknown(where or unknown[1])
    if where == "eval.weights":
        return UserError(f"{where} takes names of kinds and numbers, for instance {where}={{english: 0.6, code: 0.4}}")
    if "is not a ListConfig" in message:
        return UserError(f"{where} is a list: write {where}=[a,b]")
    if "Cannot assign" in message and where.startswith("arms."):
        return UserError(
            f"{where} takes keys, not a value: write {where}.vocab_size=N, or arms.{arm.split('.')[0]}.preset=NAME"
        )
    if wrong := re.fullmatch(r"Value '(.*)' of type '.*' could not be converted to (\w+)", message):
        kind = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}.get(wrong[2], wrong[2])
        sizes = ", or a size such as 10MB or 32k" if _SIZES.search(where) else ""
        return UserError(f"{where}={wrong[1]} is not {kind}{sizes}")
    details = " ".join(line.strip() for line in lines[:2] if "full_key" not in line)
    return UserError(f"{where}: {details}" if where else details)


def _unknown(key: str) -> UserError:
    """Suggest the key closest to `key`: among its siblings, by the last part, or anywhere. Otherwise list siblings."""
    if key.startswith("arms."):
        known = [f"{key.rpartition('.')[0]}.{field.name}" for field in dataclasses.fields(ArmConfig)]
    else:
        known = [*keys(), *_options("", ObjectType.GROUP)]
    parent, _, name = key.rpartition(".")
    siblings = [each for each in known if each.rpartition(".")[0] == parent]
    hint = did_you_mean(name, [each.rpartition(".")[2] for each in siblings]) and did_you_mean(key, siblings)
    if not hint and (same := [each for each in known if each.rpartition(".")[2] == name]):
        hint = f" (did you mean {' or '.join(map(repr, same))}?)"
    if not hint and (not parent or not siblings):
        hint = did_you_mean(key, known)
    listed = f"; known: {', '.join(dict.fromkeys(siblings))}" if siblings else ""
    if parent and (choices := _options(parent)):
        listed += f"; {parent}=NAME chooses one of {', '.join(choices)}"
    return UserError(f"unknown configuration key '{key}'{hint or listed}")
