"""Composes and checks a configuration before anything runs; errors suggest the closest key, group or choice."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.arms import check_name, override_presets
from experiments.cli import presets, renamed
from experiments.cli.sizes import with_sizes
from experiments.cli.validate import validate
from experiments.config import ArmConfig, BpeConfig, Config, PatternConfig, SuperbpeConfig, build, schema
from tokenizer.errors import UserError, did_you_mean
from tokenizer.urls import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

_SWEEP_EXTRA = "install the extra: pip install 'superbpe-framework[sweep]'"
# Launchers of sweeps, and how to get them.
_LAUNCHERS = {
    "joblib": _SWEEP_EXTRA,
    "submitit_local": _SWEEP_EXTRA,
    "submitit_slurm": _SWEEP_EXTRA,
    "ray": "pip install hydra-ray-launcher (large, and not tested here)",
}
# What the keys of an arm begin with.
_ARM = re.compile(r"^arms\.[^.]+\.")
_SOURCES = re.compile(r"corpus\.sources(\.|$)")
# Keys of earlier versions, with the remedy.
_REMOVED = {
    "eval.bootstrap_samples": "remove it: intervals do not resample",
    "eval.seed": "remove it: intervals do not resample",
    "superbpe.drop_unused": "remove it: phase 2 keeps every phase-1 merge up to the transition",
}

ConfigStore.instance().store(name="schema", node=schema(Config))
presets.register(ConfigStore.instance())


def to_config(cfg: DictConfig, overrides: Sequence[str]) -> Config:
    """Convert the configuration that Hydra composed into the typed one.

    Args:
        cfg: The composed configuration.
        overrides: The overrides that it was composed with.

    Raises:
        UserError: If a value is missing or not allowed.
    """
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise _explained(error) from None
    assert isinstance(values, dict)
    values.pop("hydra", None)
    override_presets(values, {text.partition("=")[0].lstrip("+") for text in overrides})  # type: ignore[arg-type]
    config = build(Config, values)  # type: ignore[arg-type]
    validate(config)
    return config


def load(overrides: Sequence[str] = (), config_name: str | None = None, config_dir: str | None = None) -> Config:
    """Compose and check the configuration of one run.

    Args:
        overrides: Overrides as on the command line: `["corpus=files", "corpus.paths=[a.txt]"]`.
        config_name: Primary configuration to use instead of `config`.
        config_dir: Folder with additional configuration files.

    Raises:
        UserError: If a key, a group or a value is wrong.
    """
    current, notes = current_names(overrides)
    for note in notes:
        warnings.warn(note, FutureWarning, stacklevel=2)
    with initialize_config_module("configs", version_base="1.3"):
        loader = _loader()
        _check_keys(_parse(current, loader), loader, custom=config_dir is not None)
        return to_config(_compose(current, config_name, config_dir), current)


def check(
    overrides: Sequence[str],
    config_name: str | None = None,
    config_dir: str | None = None,
    *,
    sweep: bool = False,
) -> dict[str, list[str]]:
    """Check a command line. In a sweep, check every value once, together with the first values of the other keys.

    Args:
        overrides: What the user typed after the command, without Hydra's flags.
        config_name: Primary configuration to use instead of `config`.
        config_dir: Folder with additional configuration files.
        sweep: Whether `a=1,2` means two runs.

    Returns:
        The values of every swept key.

    Raises:
        UserError: If a key, a group or a value is wrong.
    """
    for text in overrides:
        if without_credentials(text) != text:
            raise UserError(
                f"{without_credentials(text)} has a password or a query in a URL, which would be stored with the run; "
                "put the URL in an environment variable: corpus.paths=['${oc.env:NAME}']"
            )
    overrides, _ = current_names(overrides)
    with initialize_config_module("configs", version_base="1.3"):
        loader = _loader()
        parsed = _parse(overrides, loader)
        _check_keys(parsed, loader, custom=config_dir is not None)
        for override in parsed:
            if override.is_sweep_override() and not sweep:
                raise UserError(f"{override.input_line} lists several values; add --multirun to run each of them")
        values = [_values(override) for override in parsed]
        firsts = [choices[0] for choices in values]
        cells = [firsts]
        for i, choices in enumerate(values):
            cells.extend([*firsts[:i], other, *firsts[i + 1 :]] for other in choices[1:])
        given = {override.key_or_group for override in parsed}
        for cell in cells:
            config = to_config(_compose(cell, config_name, config_dir), cell)
            merges = config.superbpe.transition_merges
            if merges is not None and "superbpe.transition" in given and "superbpe.transition_merges" not in given:
                raise UserError(
                    f"superbpe.transition has no effect here: superbpe.transition_merges={merges} decides; add "
                    "superbpe.transition_merges=null"
                )
    return {
        override.key_or_group: [value.partition("=")[2] for value in choices]
        for override, choices in zip(parsed, values, strict=True)
        if override.is_sweep_override()
    }


def hydra_settings(
    overrides: Sequence[str], config_name: str | None = None, config_dir: str | None = None
) -> HydraSettings:
    """Return Hydra's own settings for a sweep.

    Args:
        overrides: Overrides that `check` has accepted.
        config_name: Primary configuration to use instead of `config`.
        config_dir: Folder with additional configuration files.
    """
    with initialize_config_module("configs", version_base="1.3"):
        firsts = [_values(override)[0] for override in _parse(overrides, _loader())]
        composed = _compose(firsts, config_name, config_dir, hydra=True)
        try:
            launcher = OmegaConf.to_container(composed.hydra.launcher, resolve=False)
            name = composed.hydra.runtime.choices["hydra/launcher"]
            assert isinstance(launcher, dict)
            return HydraSettings(Path(composed.hydra.sweep.dir).resolve(), name, launcher, composed.runner.threads)  # type: ignore[arg-type]
        except OmegaConfBaseException as error:
            raise _explained(error) from None


class HydraSettings(NamedTuple):
    """Hydra's settings for a sweep.

    Attributes:
        folder: Folder of the sweep.
        launcher_name: Name of the launcher that starts the cells.
        launcher: Settings of the launcher.
        threads: `runner.threads` of the first cell.
    """

    folder: Path
    launcher_name: str
    launcher: dict[str, Any]
    threads: int | None


def largest_size(sizes: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the override that makes a sweep over vocabulary sizes train phase 1 only once, for the largest size."""
    if any(override.startswith("bpe.train_size=") for override in overrides) or not all(s.isdigit() for s in sizes):
        return []
    return [f"bpe.train_size={max(map(int, sizes))}"]


def known_keys() -> list[str]:
    """Return every key and group that an override may name."""
    with initialize_config_module("configs", version_base="1.3"):
        return [*keys(), *_options(_loader(), "", ObjectType.GROUP)]


def current_names(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides with current names and with sizes such as `10GB` as numbers, and a note for each old name.

    `arms.NAME.bpe.KEY=VALUE` becomes an addition (`++`), since an arm contains only the settings in which it differs.
    So does `corpus.sources`, because users choose the names in it.
    """
    found, notes = [], []
    for text in overrides:
        key, equals, value = text.partition("=")
        bare = key.lstrip("+~")
        own = _ARM.sub("", bare)
        new = bare.removesuffix(own) + renamed.KEYS.get(own, own)
        new_choices = renamed.CHOICES.get(own, {})
        values = ",".join(new_choices.get(each, each) for each in value.split(","))
        if (new, values) != (bare, value):
            notes.append(f"{bare}{equals}{value} is now {new}{equals}{values}; the old name will be removed")
        adds = (own != bare and "." in own) or _SOURCES.match(bare)
        prefix = "++" if adds and bare == key else key.removesuffix(bare)
        found.append(with_sizes(f"{prefix}{new}{equals}{values}"))
    return found, notes


def choices(group: str) -> list[str]:
    """Return the sorted choices of a configuration group; an empty list for a key."""
    with initialize_config_module("configs", version_base="1.3"):
        return _options(_loader(), group)


def _loader() -> ConfigLoader:
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    return hydra.config_loader


def _options(loader: ConfigLoader, group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
    # Asks the repository, because `loader.get_group_options` first copies it, which takes 20 ms.
    return loader.repository.get_group_options(group, kind)  # type: ignore[attr-defined, no-any-return]


def _parse(overrides: Sequence[str], loader: ConfigLoader) -> list[Override]:
    parser = OverridesParser.create(config_loader=loader)
    parsed = []
    for text in overrides:
        try:
            parsed.extend(parser.parse_overrides([text]))
        except HydraException:
            raise UserError(
                f"cannot read the override {text!r}: write key=value, lists as key=[a,b], and quote a "
                "value with spaces, commas or brackets twice: 'key=\"a b\"'"
            ) from None
    return parsed


def _values(override: Override) -> list[str]:
    """Return one override per value: several for a sweep, otherwise one."""
    if not override.is_discrete_sweep():
        return [override.input_line or ""]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _define_arms(override: Override, loader: ConfigLoader) -> None:
    """Register every arm that an override chooses with Hydra; an arm without a file starts empty."""
    known = _options(loader, "arms")
    for name in _flat(override.value()):
        check_name(name)
        if name not in known:
            ConfigStore.instance().store(group="arms", name=name, package=f"arms.{name}", node={"recipe": None})


def _flat(value: Any) -> Iterator[str]:
    """The strings in nested lists and sweeps."""
    if isinstance(value, ChoiceSweep):
        value = value.list
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield str(value)


def _check_arm_key(key: str) -> None:
    """Raise a UserError unless `key` (`arms.NAME.…`) is a setting of an arm."""
    _, name, setting, *rest = [*key.split("."), ""]
    fields = [field.name for field in dataclasses.fields(ArmConfig)]
    at = f"arms.{name}"
    if setting not in fields:
        raise UserError(
            f"unknown configuration key '{key}'{did_you_mean(setting, fields)}; an arm has: {', '.join(fields)}"
        )
    inner = {"pattern": PatternConfig, "bpe": BpeConfig, "superbpe": SuperbpeConfig}.get(setting)
    below = ".".join(rest[:-1])
    if inner is None and not below:
        return
    names = [] if inner is None else [field.name for field in dataclasses.fields(inner)]
    if below not in names:
        raise UserError(f"unknown configuration key '{key}'{did_you_mean(below, names)} under {at}.{setting}")


def _check_keys(overrides: Sequence[Override], loader: ConfigLoader, *, custom: bool) -> None:
    groups = [group for group in _options(loader, "", ObjectType.GROUP) if group != "hydra"]
    for override in overrides:
        _check_key(override, loader, groups, custom=custom)


def _check_key(override: Override, loader: ConfigLoader, groups: Sequence[str], *, custom: bool) -> None:
    key = override.key_or_group
    if key == "arms":
        _define_arms(override, loader)
        return
    if key.startswith("arms."):
        _check_arm_key(key)
        return
    if key == "hydra/launcher":
        for value in _values(override):
            _check_launcher(value.partition("=")[2], loader)
    if key == "hydra" or key.startswith(("hydra.", "hydra/")):
        return
    if key in groups:
        options = _options(loader, key)
        for value in _values(override):
            chosen = value.partition("=")[2]
            if key == "experiment" and chosen == "null":
                raise UserError("experiment=null is not a choice; write '~experiment' to leave the experiment out")
            if not custom and re.fullmatch(r"[\w.-]+", chosen) and chosen not in options:
                raise UserError(
                    f"{key}={chosen} does not exist{did_you_mean(chosen, options)}; known: {', '.join(options)}"
                )
        return
    if key not in keys() and not custom and not _SOURCES.match(key):
        raise _unknown(key, groups)


def _check_launcher(chosen: str, loader: ConfigLoader) -> None:
    known = _options(loader, "hydra/launcher")
    if chosen in known:
        return
    if chosen in _LAUNCHERS:
        raise UserError(f"hydra/launcher={chosen} is not installed; {_LAUNCHERS[chosen]}")
    options = sorted({*known, *_LAUNCHERS})
    raise UserError(
        f"hydra/launcher={chosen} does not exist{did_you_mean(chosen, options)}; known: {', '.join(options)}"
    )


def _unknown(key: str, groups: Sequence[str] = ()) -> UserError:
    """Suggest the key closest to `key`, first among its siblings, then anywhere; otherwise list the siblings."""
    if key in _REMOVED:
        return UserError(f"the configuration key '{key}' no longer exists; {_REMOVED[key]}")
    known = [*keys(), *groups]
    siblings = [k for k in known if k.rpartition(".")[0] == key.rpartition(".")[0]]
    hint = did_you_mean(key.rpartition(".")[2], [k.rpartition(".")[2] for k in siblings]) and did_you_mean(
        key, siblings
    )
    if not hint and ("." not in key or not siblings):
        hint = did_you_mean(key, known)
    return UserError(f"unknown configuration key '{key}'{hint or '; known: ' + ', '.join(siblings or groups)}")


@functools.cache  # takes 40 ms, and every override is looked up here
def keys() -> tuple[str, ...]:
    """Return every key that an override may name."""
    return tuple(_dotted(OmegaConf.structured(schema(Config))))


def _dotted(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, node):
        yield f"{prefix}{key}"
        child = None if OmegaConf.is_missing(node, key) else node[key]
        if isinstance(child, DictConfig):
            yield from _dotted(child, f"{prefix}{key}.")


def _compose(
    overrides: Sequence[str], config_name: str | None, config_dir: str | None, *, hydra: bool = False
) -> DictConfig:
    extra = [] if config_dir is None else [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"]
    try:
        return compose(config_name or "config", overrides=[*overrides, *extra], return_hydra_config=hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from None


def _explained(error: BaseException) -> UserError:
    """Convert an error of Hydra or OmegaConf into a one-line UserError."""
    while isinstance(error.__cause__, (HydraException, OmegaConfBaseException)):
        error = error.__cause__
    lines = str(error).splitlines() or [type(error).__name__]
    where = next((line.split(":", 1)[1].strip() for line in lines if line.strip().startswith("full_key:")), "")
    message = lines[0].strip()
    arm = where.removeprefix("arms.")
    if (where.startswith("arms.") and "." not in arm) or "not a subclass of Arm" in message:
        return UserError(f"the arm {arm!r} is not chosen; add it to the list: arms=[bpe,superbpe,{arm}]")
    if unknown := re.search(r"Key '(.+?)' (?:not in|is not in)", str(error)):
        return _unknown(where or unknown[1])
    if message.startswith("Missing mandatory value"):
        key = where or message.rpartition(" ")[2]
        return UserError(f"{key} has no value; add {key}=… to the command")
    if "is not a ListConfig" in message:
        return UserError(f"{where} is a list: write {where}=[a,b]")
    details = " ".join(line.strip() for line in itertools.islice(lines, 0, 2) if "full_key" not in line)
    return UserError(f"{where}: {details}" if where else details)
